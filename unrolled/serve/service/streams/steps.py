"""The work of streams in worker threads: opened, fed together, ended, stored."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unrolled.model import Model
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.lanes import Work
from unrolled.serve.service.registry import Version
from unrolled.serve.service.settings import ServeSettings
from unrolled.serve.service.streams.kinds import KINDS, LiveStream, Message, ReadingStream, state_of

PIECES = 8  # of a text that are written in one step
TEMPLATES = 8  # streams that new ones are made after, for each version of a model


@dataclass(frozen=True)
class Opening:
    """A stream to open: with a state it goes on where that was stored."""

    version: Version
    key: str  # equal for equal starts
    given: Mapping[str, Any]
    state: bytes = b""
    position: int = 0


@dataclass(frozen=True)
class StreamStep:
    """One step of a stream."""

    live: LiveStream
    piece: Any = None
    again: bool = False  # at the end of the input: another begins


@dataclass(frozen=True)
class Writing:
    """The next pieces of a text that a stream writes; with options another text begins."""

    live: ReadingStream
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StreamWorks:
    """The sorts of work on streams.

    A step changes its stream, so it must not be done twice: errors are given back among the answers, not raised.
    """

    open: Work
    feed: Work
    end: Work
    store: Work
    write: Work


def make_works(settings: ServeSettings) -> StreamWorks:
    """The works; streams that are alike share what they do not change."""

    def opened(model: Model, inputs: list[Opening], options: Mapping[str, Any]) -> list[LiveStream]:
        return [_opened(model, one, settings) for one in inputs]

    return StreamWorks(
        Work("stream-open", opened, joins=False),
        Work("stream", feed_all),
        Work("stream-end", end_all),
        Work("stream-store", store_all),
        Work("stream-write", write_all),
    )


def _opened(model: Model, one: Opening, settings: ServeSettings) -> LiveStream:
    kept: dict[str, Any] = one.version.streams
    live = KINDS[model.task.name](model, one.given, settings, kept.get(one.key))
    if one.key not in kept and len(kept) < TEMPLATES:
        kept[one.key] = copy.copy(live.stream)
    if one.state:
        live.resume(one.state, one.position)
    return live


def feed_all(model: Model, inputs: list[StreamStep], options: Mapping[str, Any]) -> list[Message | Exception | None]:
    """The message of each stream for its piece. Their steps are computed together."""
    answers: list[Message | Exception | None] = [None] * len(inputs)
    fed: list[tuple[int, LiveStream, Any]] = []
    for place, step in enumerate(inputs):
        try:
            fed.append((place, step.live, step.live.checked(step.piece)))
        except Exception as error:
            answers[place] = error
    try:
        found = model.feed_many([(live.stream, piece) for _, live, piece in fed]) if fed else []
    except Exception as error:
        for place, *_ in fed:
            answers[place] = error
        return answers
    for (place, live, piece), one in zip(fed, found, strict=True):
        live.position += len(piece)
        try:
            answers[place] = live.answer(one)
        except Exception as error:
            answers[place] = error
    return answers


def end_all(model: Model, inputs: list[StreamStep], options: Mapping[str, Any]) -> list[Message | Exception]:
    """The last message of each stream."""
    answers: list[Message | Exception] = []
    for step in inputs:
        try:
            answers.append(step.live.finish())
            if step.again:
                step.live.restart()
        except Exception as error:
            answers.append(error)
    return answers


def store_all(model: Model, inputs: list[StreamStep], options: Mapping[str, Any]) -> list[bytes | Exception | None]:
    """The state of each stream; None where it cannot be stored."""
    return [state_of(step.live) for step in inputs]


def write_all(model: Model, inputs: list[Writing], options: Mapping[str, Any]) -> list[Message | Exception | None]:
    """The next pieces of each text; None where it is done."""
    answers: list[Message | Exception | None] = []
    for one in inputs:
        try:
            answers.append(one.live.write(one.options, PIECES))
        except Exception as error:
            answers.append(error)
    return answers


def result_of(answer: Any) -> Any:
    """An answer, or its error raised."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def too_many(most: int) -> ServiceError:
    return ServiceError(
        429, f"{most} streams are open already. Try again later.", "too_many_streams", headers={"Retry-After": "1"}
    )
