"""Streams of recognize: recordings in pieces and from a pipe."""

from __future__ import annotations

import io
import itertools
import json
import re
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from tests.fitting import fitting
from tests.tasks.recognition import (
    RATE,
    SMALL,
    marks,
    tone,
    words,
    write_lines,
    write_recordings,
)
from tests.tasks.recognize.conftest import learn
from unrolled import Model, api
from unrolled.data.readers.media.wav import SoundPipe
from unrolled.data.signals.line_images import prepared_line
from unrolled.errors import Note, UserError
from unrolled.jobs import TrainingJob
from unrolled.search import NGram
from unrolled.tasks.recognize.config import RecognizeConfig
from unrolled.tasks.recognize.task import Recognize
from unrolled.tasks.runner import Request

CAUSAL: dict[str, Any] = {"model.bidirectional": False, "train.max_steps": 300}


@pytest.fixture(scope="module")
def causal(place: Path) -> Model:
    return learn(place, "audio", "causal", **CAUSAL)


def test_streams_equal_files_however_they_are_cut(causal: Model) -> None:
    sound = tone("abc ca b")
    whole = causal.predict(sound, rate=RATE)
    assert whole.text.replace(" ", "") == "abccab"
    answers = []
    for seed in range(3):
        random, at, told = np.random.default_rng(seed), 0, [""]
        with causal.stream(rate=RATE) as stream:
            while at < len(sound):
                step = int(random.integers(1, 700))
                told.append(stream.feed(sound[at : at + step]))
                at += step
            answers.append(stream.finish())
        assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(told))
    assert answers[0] == answers[1] == answers[2]  # to the bit
    assert answers[0].text == whole.text
    assert answers[0].labels == whole.labels
    assert answers[0].score == pytest.approx(whole.score, abs=1e-3)


def test_a_stream_with_a_lexicon(causal: Model) -> None:
    with causal.stream(rate=RATE, lexicon=["abc", "ca", "b"]) as stream:
        for part in np.array_split(tone("abc ca b"), 9):
            stream.feed(part)
        found = stream.finish()
    assert found.text == "abc ca b"
    assert [word.text for word in found.words] == ["abc", "ca", "b"]


def test_a_long_file_streams_through_a_causal_model(causal: Model, tmp_path: Path) -> None:
    sound = np.concatenate([tone("abc ca b", seed=i) for i in range(4)])
    soundfile.write(tmp_path / "long.wav", sound, RATE)
    streamed = causal.predict(str(tmp_path / "long.wav"), window=1)
    whole = causal.predict(str(tmp_path / "long.wav"), window=100)
    assert streamed.text == whole.text
    assert streamed.labels == whole.labels


def test_models_that_cannot_stream_say_why(listener: Model, reader: Model, causal: Model) -> None:
    with pytest.raises(UserError, match="reads from both ends"):
        listener.stream()
    with pytest.raises(UserError, match="reads from both ends"):
        reader.stream()
    with pytest.raises(UserError, match="each step's best label, or words of a lexicon"):
        causal.stream(beam=5)


def test_a_model_comes_back_from_its_file(listener: Model, place: Path) -> None:
    again = api.load(place / "run-listener")
    sounds = [tone(text) for text in words(5, seed=5)]
    assert again.predict(sounds, rate=RATE) == listener.predict(sounds, rate=RATE)


def test_a_model_learns_new_letters(reader: Model, tmp_path: Path, place: Path) -> None:
    file = write_lines(tmp_path, ["ab", "bc"])
    file.write_text(file.read_text().replace("bc", "bd"))
    settings = fitting("recognize", {**SMALL, "train.max_steps": 2}, data__kind="line")
    config = api.configure("recognize", [], {**settings, "data.train": str(file), "data.valid": str(file)})
    more = TrainingJob(config, init=place / "run-reader").run(tmp_path / "run", quiet=True)
    assert more.assets.labels.names == (*reader.assets.labels.names, "d")


def test_the_embedded_data_is_said_plainly() -> None:
    data = Recognize().read(RecognizeConfig())
    assert "the scans are real, the lines are not" in data.source
    assert len(data.train) == 1600
    train = {example.input.tobytes() for example in data.train}
    assert not any(example.input.tobytes() in train for example in data.valid)


def test_samples_say_their_rate(listener: Model, causal: Model) -> None:
    fast = tone("ab c", 2 * RATE)
    with pytest.raises(UserError) as error:
        listener.predict(fast)
    assert str(error.value) == (
        "The input is samples, which do not say how many are a second. Give rate (--rate); the model reads 8000."
    )
    assert listener.predict(fast, rate=2 * RATE).text == "ab c"
    assert listener.predict((fast, 2 * RATE)).text == "ab c"
    heard = listener.predict([(fast, 2 * RATE), (tone("b"), RATE), tone("cab")], rate=RATE)
    assert [one.text for one in heard] == ["ab c", "b", "cab"]
    for rate in (0, -8000, True, "8000"):
        with pytest.raises(UserError, match=r"rate=.* is not a number of samples a second\. Use 8000, 16000"):
            listener.predict(fast, rate=rate)
    with pytest.raises(UserError, match=r"A stream of samples does not say how many are a second\. Give it once"):
        causal.stream()
    assert listener.trace(fast, rate=2 * RATE).figure("frames") is not None


def test_a_rate_that_nothing_needs(listener: Model, reader: Model, place: Path) -> None:
    soundfile.write(place / "own.wav", tone("ab"), RATE)
    with pytest.raises(UserError, match=r"rate=8000 is for arrays of samples and raw files, and there are none"):
        listener.predict(str(place / "own.wav"), rate=RATE)
    with pytest.raises(UserError, match="is for arrays of samples"):
        reader.predict(marks("ab"), rate=RATE)


def test_streams_at_another_rate(causal: Model) -> None:
    fast = tone("abc ca b", 2 * RATE)
    whole = causal.predict(fast, rate=2 * RATE).text
    answers = []
    for pieces in (3, 50):
        with causal.stream(rate=2 * RATE) as stream:
            for part in np.array_split(fast, pieces):
                stream.feed(part)
            answers.append(stream.finish().text)
    assert answers == [whole, whole]
    assert whole.replace(" ", "") == "abccab"


def test_words_have_confidences(listener: Model) -> None:
    clear = listener.predict(tone("abc ca b"), rate=RATE)
    assert len(clear.words) == 3
    assert all(word.confidence is not None and 0.5 < word.confidence <= 1 for word in clear.words)
    loud = np.random.default_rng(0).standard_normal(len(tone("abc ca b"))).astype(np.float32) * 0.3
    unclear = listener.predict(tone("abc ca b") + loud, rate=RATE)
    assert all(
        word.confidence < min(other.confidence or 0 for other in clear.words)
        for word in unclear.words
        if word.confidence is not None
    )
    for options in ({"beam": 20, "n_best": 3}, {"lexicon": ["abc", "ca", "b"], "n_best": 3}):
        found = listener.predict(tone("abc ca b"), rate=RATE, **options)
        assert all(word.confidence is not None for one in (found, *found.others) for word in one.words)


def pipe(sound: Any, rate: int = RATE, *, declared: int | None = None) -> io.BytesIO:
    """A wav file as a program writes it into a pipe: its length is not known when the header is written."""
    data = (sound * 32767).astype("<i2").tobytes()
    size = len(data) if declared is None else declared
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + size & 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 1, rate,
                       2 * rate, 2, 16, b"data", size)  # fmt: skip
    return io.BytesIO(head + data)


class Trickle(io.BytesIO):
    """Bytes that come a few at a time."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(700)


def piped(model: Model, file: io.BytesIO, format: Any = "text", **options: Any) -> list[str]:
    return list(model.runner.run(Request(raw=file, format=format), **options))


def test_sound_from_a_pipe_is_text_as_it_comes(causal: Model) -> None:
    sound = tone("abc ca b")
    expected = causal.predict(sound, rate=RATE).text
    for declared in (None, 0, 0x7FFFFFFF, 0xFFFFFFFF):
        pieces = piped(causal, Trickle(pipe(sound, declared=declared).getvalue()))
        assert "".join(pieces) == f"{expected}\n"
        assert len([piece for piece in pieces if piece]) > 4  # not all at the end
    raw = Trickle((sound * 32767).astype("<i2").tobytes())
    assert "".join(piped(causal, raw, rate=RATE)) == f"{expected}\n"
    (record,) = map(json.loads, filter(None, piped(causal, pipe(sound), "jsonl")))
    assert (record["input"], record["text"], record["unit"]) == ("-", expected, "seconds")
    with pytest.warns(Note, match="With a lexicon, words can change until the end of the recording"):
        assert "".join(piped(causal, pipe(sound), lexicon=["abc", "ca", "b"])) == "abc ca b\n"


def test_sound_from_a_pipe_in_windows(listener: Model, tmp_path: Path) -> None:
    sound = np.concatenate([tone("abc ca b", seed=i) for i in range(3)])
    soundfile.write(tmp_path / "long.wav", sound, RATE)
    whole = listener.predict(str(tmp_path / "long.wav"), window=1.2)
    with pytest.warns(Note, match=r"text comes for each window of up to 1\.2 seconds"):
        pieces = piped(listener, pipe(sound, declared=0), window=1.2)
    assert "".join(pieces) == f"{whole.text}\n"
    assert len(pieces) > 3
    soundfile.write(tmp_path / "long.flac", sound, RATE)
    packed = io.BytesIO((tmp_path / "long.flac").read_bytes())
    (record,) = map(json.loads, filter(None, piped(listener, packed, "jsonl", window=1.2)))
    assert record["text"] == whole.text
    assert [word["confidence"] for word in record["words"]] == pytest.approx(
        [word.confidence for word in whole.words], abs=1e-2
    )


def test_pipes_that_hold_no_recording(listener: Model, reader: Model) -> None:
    with pytest.raises(
        UserError, match=r"Standard input is not a recording: it begins with b'test'\. Expected a wav file"
    ):
        piped(listener, io.BytesIO(b"test0.wav\n"))
    with pytest.raises(UserError, match=r"has 8,000 samples a second, and --rate says 16,000\. Leave --rate out"):
        piped(listener, pipe(tone("a")), rate=16000)
    with pytest.raises(UserError, match="a header that cannot be read"):
        piped(listener, io.BytesIO(b"RIFF\0\0\0\0WAVEdata"))
    file = io.BytesIO()
    Image.fromarray(marks("ab c")).save(file, "PNG")
    assert "".join(piped(reader, io.BytesIO(file.getvalue()))) == "ab c\n"
    with pytest.raises(UserError, match="Standard input is damaged or cut off"):
        piped(reader, io.BytesIO(b"\x89PNG"))


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_kind_of_wav_is_read_from_a_pipe(subtype: str, channels: int) -> None:
    sound = np.stack([tone("ab", seed=i) for i in range(channels)], axis=1)
    file = io.BytesIO()
    soundfile.write(file, sound, RATE, subtype=subtype, format="WAV")
    expected, _ = soundfile.read(io.BytesIO(file.getvalue()), dtype="float32", always_2d=True)
    read = np.concatenate(list(SoundPipe(Trickle(file.getvalue()))))
    np.testing.assert_allclose(read, expected.mean(axis=1), atol=1e-6)


def test_a_page_is_no_line(reader: Model) -> None:
    line = np.kron(marks("ab c cab abc", 12), np.ones((2, 2), dtype=np.uint8))
    line[8:16] = np.where(np.arange(line.shape[1]) % 12 < 9, 0, line[8:16])  # letters that stand close
    page = np.concatenate([np.pad(line, ((6, 6), (0, 0)), constant_values=255)] * 6)
    with pytest.warns(
        Note, match=r"The picture seems to hold 6 lines of text\. This model reads one line at a time: cut"
    ):
        reader.predict(page)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.predict(line)


def test_weights_are_tuned_on_a_file(listener: Model, place: Path) -> None:
    """The language model knows these sentences only: weighed too much, it hears them everywhere."""
    texts = ["abc ca b", "b ca", "cab b abc"]
    test = write_recordings(place / "tuned", texts, "tuned")
    lm = NGram.train(["b b b"] * 20 + ["ca"], order=2)
    given: dict[str, Any] = {"lexicon": ["abc", "ca", "b", "cab"], "lm": lm}
    before = listener.evaluate(test, **given, lm_weight=50.0)
    assert before["wer"] > 0.1
    scores = listener.evaluate(test, **given, tune=True)
    assert scores["wer"] < before["wer"]
    weight, bonus = re.fullmatch(r"--lm-weight (\S+) --word-bonus (\S+)", scores["tuned"]).groups()  # type: ignore[union-attr]
    again = listener.evaluate(test, **given, lm_weight=float(weight), word_bonus=float(bonus))
    assert again["searches"]["lexicon + lm"] == scores["searches"]["lexicon + lm"]
    with pytest.raises(UserError, match=r"tune is for lm_weight and word_bonus, which need a lexicon"):
        listener.evaluate(test, tune=True)


def test_a_picture_of_dots_is_one_line() -> None:
    dots = np.full((12, 30), 255, dtype=np.uint8)
    dots[np.arange(12), np.arange(12)] = 0
    assert prepared_line(dots, 16).lines == 1
