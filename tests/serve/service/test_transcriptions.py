"""`/v1/audio/transcriptions` through the unmodified client of OpenAI."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.service.conftest import Clients
from tests.serve.service.test_completions import client
from tests.tasks.recognition import RATE, tone
from unrolled import api

openai = pytest.importorskip("openai", reason="the client of OpenAI is missing: pip install openai")
soundfile = pytest.importorskip("soundfile", reason="soundfile, which reads recordings, is missing")

MODEL, OTHER, LINES = "listener", "classify", "recognize-transformer"
TEXT = "ab ba cab abc ba ab"


def recording(kind: str = "WAV", samples: Any = None, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, tone(TEXT) if samples is None else samples, rate, format=kind)
    return file.getvalue()


def clock(text: str) -> float:
    hours, minutes, seconds = text.replace(",", ".").split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def test_every_format_of_the_answer(client_of: Clients, listener: Path) -> None:
    samples = tone(TEXT)
    expected = api.load(listener).predict(soundfile.read(io.BytesIO(recording()), dtype="float32"))
    assert len(expected.text) > 10  # else there is nothing to compare
    asked: dict[str, Any] = {"model": MODEL, "file": ("speech.wav", recording())}
    with client(client_of, also={MODEL: listener}) as made:
        create = made.audio.transcriptions.create
        assert create(**asked).text == expected.text
        assert create(**asked, temperature=0, response_format="text") == f"{expected.text}\n"
        told = create(**asked, response_format="verbose_json", language="en")
        segments = create(**asked, response_format="verbose_json", timestamp_granularities=["segment"])
        words = create(**asked, response_format="verbose_json", timestamp_granularities=["word"])
        files = {kind: create(**asked, response_format=kind) for kind in ("srt", "vtt")}
        events = list(create(**asked, stream=True))
    assert told.text == expected.text
    assert (told.language, segments.language) == ("en", "und")
    assert told.duration == pytest.approx(len(samples) / RATE)
    assert [(one.word, one.start, one.end) for one in told.words] == [word[:3] for word in expected.words]
    assert words.words == told.words
    assert words.segments is None
    assert segments.words is None
    assert " ".join(one.text for one in segments.segments) == expected.text
    for kind, text in files.items():
        assert text.startswith("1\n" if kind == "srt" else "WEBVTT\n\n")
        times = re.findall(r"^(\S+) --> (\S+)$", text, re.M)
        assert [(clock(a), clock(b)) for a, b in times] == [(one.start, one.end) for one in segments.segments]
        lines = [line for line in text.splitlines() if re.fullmatch(r"[abc ]+", line)]
        assert lines == [one.text for one in segments.segments]
    assert "".join(one.delta for one in events[:-1]) == expected.text
    assert {one.type for one in events[:-1]} == {"transcript.text.delta"}
    assert (events[-1].type, events[-1].text) == ("transcript.text.done", expected.text)


@pytest.mark.parametrize("kind", ["FLAC", "MP3", "OGG"])
def test_every_format_of_the_recording(kind: str, client_of: Clients, listener: Path) -> None:
    samples = np.stack([tone(TEXT)] * 2, axis=1)
    data = recording(kind, samples, 16_000)
    expected = api.load(listener).predict((soundfile.read(io.BytesIO(data), dtype="float32")[0].mean(axis=1), 16_000))
    with client(client_of, also={MODEL: listener}) as made:
        found = made.audio.transcriptions.create(model=MODEL, file=(f"speech.{kind.lower()}", data))
    assert found.text == expected.text


def test_what_cannot_be_honoured(client_of: Clients, listener: Path) -> None:
    silence = np.zeros((80_000, 1))
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"prompt": "Names:"}, 400, "prompt is not supported: a model of recognize reads nothing but the recording."),
        (
            {"temperature": 0.5},
            400,
            "temperature is not supported: nothing is drawn. Leave it out, or give 0.",
        ),
        ({"language": "English!"}, 400, "language is no code of a language, such as en."),
        (
            {"timestamp_granularities": ["word"]},
            400,
            "timestamp_granularities is for response_format=verbose_json.",
        ),
        ({"stream": True, "response_format": "srt"}, 400, "stream is not for response_format=srt."),
        ({"chunking_strategy": "auto"}, 400, "chunking_strategy is not supported. Leave it out."),
        (
            {"response_format": "docx"},
            400,
            "response_format: Input should be 'json', 'text', 'srt', 'vtt' or 'verbose_json'.",
        ),
        ({"model": OTHER}, 400, "classify is a model of classify, not of recognize."),
        ({"model": LINES}, 400, "This model reads no recordings. Use /v1/models/NAME/predict for its inputs."),
        ({"file": ("a.wav", b"")}, 400, "There is no recording. Upload one as `file`."),
        (
            {"file": ("a.wav", recording(samples=silence, rate=8000))},
            413,
            "The recording has 10.0 seconds; the limit is 9. Cut it.",
        ),
        (
            {"file": ("a.wav", recording(samples=np.zeros((9, 17))))},
            413,
            "The recording has 17 channels at 8,000 Hz; the limits are 16 and 192,000.",
        ),
    ]
    with client(client_of, OTHER, LINES, also={MODEL: listener}, max_seconds=9.0) as made:
        for given, status, message in cases:
            with pytest.raises(openai.APIStatusError) as caught:
                made.audio.transcriptions.create(**{"model": MODEL, "file": ("a.wav", recording()), **given})
            assert caught.value.body["message"] == message
            assert caught.value.status_code == status
        with pytest.raises(openai.BadRequestError, match="The recording"):
            made.audio.transcriptions.create(model=MODEL, file=("a.wav", b"RIFF, no more"))
        with pytest.raises(openai.NotFoundError, match=r"Unknown model 'none'"):
            made.audio.transcriptions.create(model="none", file=("a.wav", recording()))
    with (
        client(client_of, also={MODEL: listener}, max_body=2000) as made,
        pytest.raises(openai.APIStatusError) as caught,
    ):
        made.audio.transcriptions.create(model=MODEL, file=("a.wav", recording()))
    assert caught.value.body["message"] == "The body is larger than 2,000 bytes."
