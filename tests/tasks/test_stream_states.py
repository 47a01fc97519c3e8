"""Streams stored and put back, and fed together: the same bits as one stream that is fed alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from tests.fitting import fitting
from tests.see.models import HEARD, facts_of, write_files
from tests.sharing import made_once
from tests.tasks.test_answers_apart import COMPAT, bits
from unrolled import api
from unrolled.errors import UserError
from unrolled.model import Model

KINDS = ("tag-stream", "forecast", "forecast-lags", "generate-lstm", "generate-transformer", "hear-lstm", "hear-gru")


def model_of(kind: str) -> Model:
    if not kind.startswith("hear"):
        return api.load(next(COMPAT.glob(f"*/{kind}.safetensors")))

    def train(out: Path) -> None:
        keys = {**HEARD, "train.max_steps": 1, "model.bidirectional": False, "model.cell": kind.removeprefix("hear-")}
        data = made_once("stream-states-data", write_files) / "sounds" / "train.tsv"
        api.train("recognize", train=data, out=out, set=fitting("recognize", keys, **facts_of("sounds")), quiet=True)

    return api.load(made_once(f"stream-states-{kind}", train))


def fed_with(model: Model, chance: Random) -> list[Any]:
    """The input of a stream in pieces of any size."""
    numbers = np.random.default_rng(chance.randrange(2**32))
    if model.task.name == "generate":
        return ["".join(chance.choices("3 and 4 make 7\n", k=chance.randint(0, 9))) for _ in range(6)]
    if model.task.name == "recognize":
        whole = numbers.normal(0, 0.1, chance.randint(6000, 12000)).astype(np.float32)
    else:
        width = model.assets.frames[0] if model.task.name == "tag" else len(model.assets.roles.inputs)
        whole = numbers.normal(size=(chance.randint(12, 20), width)).astype(np.float32)
    return np.split(whole, sorted(chance.sample(range(1, len(whole)), 5)))


def options_of(model: Model) -> dict[str, Any]:
    if model.task.name == "recognize":
        return {"rate": model.assets.reader.rate}
    return {"probabilities": True} if model.task.name == "tag" else {}


def last_of(stream: Any) -> Any:
    return stream.finish() if hasattr(stream, "finish") else None


@pytest.fixture
def begun(request: pytest.FixtureRequest) -> tuple[Model, Random, Callable[[], Any]]:
    model = model_of(request.param)
    return model, Random(request.param), lambda: model.stream(**options_of(model))


every_kind = pytest.mark.parametrize("begun", KINDS, indirect=True)


@every_kind
def test_a_stored_stream_goes_on_with_the_same_bits(begun: tuple[Model, Random, Callable[[], Any]]) -> None:
    model, chance, new = begun
    pieces, stream, other = fed_with(model, chance), new(), new()
    expected = [bits(stream.feed(piece)) for piece in pieces]
    found = []
    for piece in pieces:
        found.append(bits(other.feed(piece)))
        other = model.stream(state=other.state(), **options_of(model))
    assert found == expected
    assert bits(last_of(other)) == bits(last_of(stream))


@every_kind
def test_streams_fed_together_answer_as_each_alone(begun: tuple[Model, Random, Callable[[], Any]]) -> None:
    model, chance, new = begun
    several = [fed_with(model, chance) for _ in range(5)]
    expected = []
    for pieces in several:
        stream = new()
        expected.append([bits(stream.feed(piece)) for piece in pieces] + [bits(last_of(stream))])
    streams, found = [new() for _ in several], [list[Any]() for _ in several]
    places = [0] * len(several)
    while unfinished := [i for i, place in enumerate(places) if place < len(several[i])]:
        chosen = chance.sample(unfinished, chance.randint(1, len(unfinished)))
        for i, answer in zip(
            chosen, model.feed_many([(streams[i], several[i][places[i]]) for i in chosen]), strict=True
        ):
            found[i].append(bits(answer))
            places[i] += 1
    assert [[*one, bits(last_of(stream))] for one, stream in zip(found, streams, strict=True)] == expected


def test_a_continued_text_goes_on_from_a_stored_state() -> None:
    model = model_of("generate-lstm")
    stream = model.stream()
    stream.feed("3 and 4")
    again = model.stream(state=stream.state())
    assert "".join(again.write(max_tokens=12, seed=3)) == "".join(stream.write(max_tokens=12, seed=3))
    assert again.nats.hex() == stream.nats.hex()


def test_a_damaged_state_is_an_error() -> None:
    model = model_of("tag-stream")
    stream = model.stream()
    stream.feed(np.ones((3, 2)))
    state, chance = stream.state(), Random(1)
    damaged = [b"", b"nothing", state[:-1], state + b"0", state[: len(state) // 2], b"\xff" * 64]
    for _ in range(60):
        place = chance.randrange(len(state))
        damaged.append(state[:place] + bytes([state[place] ^ 1 << chance.randrange(8)]) + state[place + 1 :])
    for one in damaged:
        with pytest.raises(UserError, match=r"The stream's state is damaged\. Give the bytes that state\(\) returned"):
            model.stream(state=one)


def test_a_state_of_another_model_is_an_error() -> None:
    state = model_of("generate-gru").stream().state()
    with pytest.raises(UserError, match=r"The stream's state is of another model\. Use the model it was begun with\."):
        model_of("generate-lstm").stream(state=state)
    with pytest.raises(UserError, match=r"The state is of a text's stream, and this is a tagger's stream\."):
        model_of("tag-stream").stream(state=state)
    model = model_of("generate-gru")
    with torch.no_grad():
        next(model.network.parameters()).add_(1)
    with pytest.raises(UserError, match="of another model"):
        model.stream(state=state)


def test_states_that_cannot_be_stored_say_why() -> None:
    model = model_of("hear-lstm")
    stream = model.stream(rate=2 * model.assets.reader.rate)
    with pytest.raises(UserError, match=r"The state of a resampler cannot be stored\. Feed samples at"):
        stream.state()
    stream = model.stream(rate=model.assets.reader.rate, lexicon=["ab", "cab"])
    with pytest.raises(UserError, match=r"a search with a lexicon cannot be stored\. Leave out lexicon\."):
        stream.state()


def test_streams_that_cannot_be_fed_together_are_an_error() -> None:
    model, other = model_of("tag-stream"), model_of("tag-stream")
    stream, frame = model.stream(), np.ones((1, 2))
    with pytest.raises(UserError, match=r"A stream has several pieces\. Give each stream one"):
        model.feed_many([(stream, frame), (stream, frame)])
    with pytest.raises(UserError, match=r"A stream is of another model\. Feed it with that one"):
        other.feed_many([(stream, frame)])
