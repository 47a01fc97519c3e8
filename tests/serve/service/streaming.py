"""Streams over WebSockets in tests: models that stream, what is fed to them, and a client."""

from __future__ import annotations

from contextlib import contextmanager
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import torch
from fastapi.testclient import TestClient

from tests.tasks.test_stream_states import model_of
from unrolled.model import Model
from unrolled.serve.service.answers import plain, prediction
from unrolled.tasks.forecast.stream import Interval

ADDRESS = "ws://127.0.0.1/v1/models"


def streaming_model(kind: str) -> Model:
    """A model that streams; one that hears says something."""
    model = model_of(kind)
    if kind.startswith("hear"):
        network: Any = model.network
        with torch.no_grad():
            network.scores.weight.mul_(20)
    return model


def sound(chance: Random, seconds: float = 1.5, rate: int = 8000) -> bytes:
    """Noise whose loudness varies, as 16-bit samples."""
    numbers = np.random.default_rng(chance.randrange(2**32))
    count = int(seconds * rate)
    loud = np.repeat(numbers.uniform(0, 8000, count // 400 + 1), 400)[:count]
    return (numbers.normal(size=count) * loud).clip(-32000, 32000).astype("<i2").tobytes()


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
    """What a client of a recogniser has been told: it puts the text and the words together."""

    def __init__(self) -> None:
        self.text, self.words, self.position = "", [], 0

    def hear(self, message: dict[str, Any]) -> None:
        assert message["type"] == "partial", message
        self.text = self.text[: message["from"]] + message["text"]
        self.words = self.words[: message["words_from"]] + message["words"]
        self.position = message["position"]


def final_of(model: Model, whole: bytes, **options: Any) -> dict[str, Any]:
    """The answer of `model.stream` to sound that is fed at once, as the service writes it."""
    with model.stream(rate=options.pop("rate", 8000), **options) as stream:
        stream.feed(np.frombuffer(whole, "<i2").astype(np.float32) / 32768)
        return prediction("recognize", stream.finish())


def forecasts(model: Model, rows: Any, interval: float | None = None) -> dict[str, Any]:
    stream = model.stream()
    found = stream.feed(rows)
    return prediction("forecast", found if interval is None else Interval(found, *stream.interval(interval)))


__all__ = ["Told", "connected", "cut", "final_of", "forecasts", "plain", "sound", "streaming_model"]
