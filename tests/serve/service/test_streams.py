"""Streams over WebSockets: the bits of `model.stream`, however the pieces are cut and whoever streams beside them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.serve.service.streaming import Told, connected, cut, final_of, forecasts, sound, streaming_model
from unrolled.serve import app
from unrolled.serve.service.answers import prediction

SPEECH = {"format": "s16le", "rate": 8000}


def client_of_models(*kinds: str, **settings: Any) -> TestClient:
    return TestClient(app({kind: streaming_model(kind) for kind in kinds}, **settings), base_url="http://127.0.0.1")


def receive(socket: Any, kind: str) -> dict[str, Any]:
    message: dict[str, Any] = socket.receive_json()
    assert message["type"] == kind, message
    return message


def heard(socket: Any, told: Told) -> dict[str, Any]:
    """The partial texts until another message."""
    while (message := socket.receive_json())["type"] == "partial":
        told.hear(message)
    return dict(message)


@pytest.mark.parametrize("kind", ["hear-lstm", "hear-gru"])
def test_speech_has_the_bits_of_a_stream(kind: str) -> None:
    chance, model = Random(kind), streaming_model(kind)
    with client_of_models(kind) as client:
        for pieces in (1, 7, 60):
            whole = sound(chance)
            told, expected = Told(), final_of(model, whole)
            with connected(client, kind, **SPEECH) as socket:
                ready = receive(socket, "ready")
                assert ready == {
                    "type": "ready", "model": kind, "task": "recognize", "resumed": False, "unit": "samples",
                    "position": 0, "reads": {"rate": 8000}, "times": "seconds",
                }  # fmt: skip
                for piece in cut(whole, chance, pieces):
                    socket.send_bytes(piece)
                socket.send_json({"type": "end"})
                final = heard(socket, told)
            assert final == {"type": "final", "position": len(whole) // 2, **expected}
            assert len(final["words"]) > 1
            assert final["text"].startswith(told.text)
            assert told.text
            assert told.words[:-1] == final["words"][: len(told.words) - 1]


def test_many_sockets_at_once() -> None:
    chance, model, kind = Random(5), streaming_model("hear-lstm"), "hear-lstm"
    with client_of_models(kind, max_wait_ms=20) as client:
        from contextlib import ExitStack

        with ExitStack() as opened:
            wholes = [sound(chance, chance.randint(8, 14)) for _ in range(6)]
            sockets = [opened.enter_context(connected(client, kind, **SPEECH)) for _ in wholes]
            parts = [cut(whole, chance, 8) for whole in wholes]
            for at in range(8):
                for socket, pieces in zip(sockets, parts, strict=True):
                    socket.send_bytes(pieces[at])
            for socket in sockets:
                socket.send_json({"type": "end"})
            for socket, whole in zip(sockets, wholes, strict=True):
                receive(socket, "ready")
                final = heard(socket, Told())
                assert final == {"type": "final", "position": len(whole) // 2, **final_of(model, whole)}
        numbers = client.get("/metrics").text
    assert 'unrolled_streams_total{model="hear-lstm",end="done"} 6\n' in numbers
    joined = [
        line
        for line in numbers.splitlines()
        if line.startswith('unrolled_batch_size_bucket{model="hear-lstm",work="stream"')
    ]
    assert joined
    assert joined[0] != joined[-1].replace("+Inf", "1")  # some batches held several


def test_rows_words_and_texts_have_the_bits_of_a_stream() -> None:
    chance = Random(8)
    kinds = ("forecast", "tag-stream", "generate-lstm")
    with client_of_models(*kinds) as client:
        model = streaming_model("forecast")
        rows = np.random.default_rng(1).normal(size=(9, len(model.assets.roles.inputs)))
        expected, found = forecasts(model, rows), []
        with connected(client, "forecast") as socket:
            assert receive(socket, "ready")["unit"] == "rows"
            for piece in cut(rows, chance, 4):
                if len(piece):
                    socket.send_json({"type": "feed", "input": {"rows": piece.tolist()}})
                    found += receive(socket, "forecast")["forecast"]
            socket.send_json({"type": "end"})
            assert receive(socket, "final") == {"type": "final", "position": 9}
        assert found == expected["forecast"]

        model = streaming_model("tag-stream")
        frames = np.random.default_rng(1).normal(size=(9, *model.assets.frames)).astype(np.float32)
        expected, found = prediction("tag", model.stream(probabilities=True).feed(frames)), []
        chances: list[float] = []
        with connected(client, "tag-stream", options={"probabilities": True}) as socket:
            assert receive(socket, "ready")["unit"] == "frames"
            for piece in np.split(frames, [1, 4]):
                socket.send_json({"type": "feed", "input": {"frames": piece.tolist()}})
                message = receive(socket, "tags")
                found, chances = found + message["tags"], chances + message["probabilities"]
            assert message["position"] == 9
        assert (found, chances) == (expected["tags"], expected["probabilities"])

        model = streaming_model("generate-lstm")
        text = "3 and 4 make 7\n8 and 1 make "
        with model.stream() as stream:
            stream.feed(text)
            written = "".join(stream.write(max_tokens=20, seed=3))
            nats = stream.nats
        with connected(client, "generate-lstm") as socket:
            receive(socket, "ready")
            for piece in cut(text, chance, 5):
                socket.send_json({"type": "feed", "input": piece})
                receive(socket, "read")
            socket.send_json({"type": "write", "options": {"max_tokens": 20, "seed": 3}})
            pieces = []
            while (message := socket.receive_json())["type"] == "piece":
                pieces.append(message["text"])
            assert message == {"type": "written", "why": "done"}
            assert "".join(pieces) == written
            socket.send_json({"type": "write", "options": {"max_tokens": 4096, "seed": 3}})
            receive(socket, "piece")
            socket.send_json({"type": "stop"})
            while (message := socket.receive_json())["type"] == "piece":
                pass
            assert message == {"type": "written", "why": "stopped"}
            socket.send_json({"type": "end"})
            final = receive(socket, "final")
            assert final["position"] == len(text)
            assert final["nats"] == nats
