"""Streams over WebSockets in tests: models that stream, what is fed to them, and a client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import torch
from fastapi.testclient import TestClient

from tests.tasks.recognition import tone
from tests.tasks.test_stream_states import model_of
from unrolled.model import Model
from unrolled.serve.service.answers import prediction
from unrolled.tasks.forecast.stream import Interval

ADDRESS = "ws://127.0.0.1/v1/models"


def streaming_model(kind: str) -> Model:
    """A model that streams; one that hears says something."""
    model = model_of(kind)
    if kind.startswith("hear"):
        network: Any = model.network
        with torch.no_grad():
            random = torch.Generator().manual_seed(1)
            for weight in (*network.layer.parameters(), *network.scores.parameters()):
                weight.normal_(0, 2, generator=random)
            network.scores.bias[-1] += 3  # of the blank between words
    return model


def sound(chance: Random, letters: int = 12) -> bytes:
    """Tones and gaps as 16-bit samples."""
    text = "".join(chance.choices("abc ", k=letters))
    return (tone(text, seed=chance.randrange(1000)) * 32767).clip(-32767, 32767).astype("<i2").tobytes()


def cut(whole: Any, chance: Random, pieces: int) -> list[Any]:
    """A text, bytes or an array in pieces of any size, empty ones too."""
    places = sorted(chance.choices(range(len(whole) + 1), k=pieces - 1))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


@contextmanager
def connected(client: TestClient, name: str, **start: Any) -> Iterator[Any]:
    """A socket whose stream has begun."""
    with client.websocket_connect(f"{ADDRESS}/{name}/stream") as socket:
        socket.send_json({"type": "start", **start})
        yield socket


class Told:
    """The text and the words that a client of a recogniser puts together from its messages."""

    def __init__(self) -> None:
        self.text, self.position = "", 0
        self.words: list[Any] = []

    def hear(self, message: dict[str, Any]) -> None:
        assert message["type"] == "partial", message
        self.text = self.text[: message["from"]] + message["text"]
        self.words = self.words[: message["words_from"]] + message["words"]
        self.position = message["position"]


def final_of(model: Model, whole: bytes, **options: Any) -> dict[str, Any]:
    """The answer of `model.stream` to sound that is fed at once, as the service writes it."""
    with model.stream(rate=options.pop("rate", 8000), **options) as stream:
        stream.feed(np.frombuffer(whole, "<i2").astype(np.float32) / 32768)
        return dict(prediction("recognize", stream.finish()))


def forecasts(model: Model, rows: Any, interval: float | None = None) -> dict[str, Any]:
    stream = model.stream()
    found = stream.feed(rows)
    return dict(prediction("forecast", found if interval is None else Interval(found, *stream.interval(interval))))
