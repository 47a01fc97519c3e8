"""A tagger in use: words or frames as they come, and a tag for each at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unrolled.data.readers.tagged.frames import Tagged, TaggedFrames
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import UserError
from unrolled.search.arrays import arrays_of
from unrolled.tasks.answer_lines import Format, csv_line
from unrolled.tasks.runner import Request
from unrolled.tasks.shared.stream_state import packed, unpacked
from unrolled.tasks.tag.assets import TagAssets
from unrolled.tasks.tag.predict import answer_of, frames_of_input, sentence_of_input

if TYPE_CHECKING:
    from unrolled.model import Model


class TagStream:
    """A one-directional tagger that is fed words or frames as they come; how they are cut changes no bit.

    Each word or frame is a step of its own. Recurrent layers keep one state; a Transformer keeps the keys and values
    of all steps since `restart`.
    """

    def __init__(self, model: Model, *, probabilities: bool = False) -> None:
        check_streams(model)
        self.model = model
        self._assets: TagAssets = model.assets
        self._probabilities = probabilities
        network: Any = model.network
        self._step = network.stepper()
        self.batches = bool(getattr(network, "batches_steps", False))
        self.restart()

    def __enter__(self) -> TagStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def restart(self) -> None:
        """A new sequence begins."""
        self._state: Any = None

    def another(self) -> TagStream:
        """A stream of the same model for another sequence; the copied weights are shared."""
        stream = copy(self)
        stream.restart()
        return stream

    def feed(self, piece: Any) -> Any:
        """The next words: a text, a list or a record → [(word, tag), …]; or frames (n, …), or one → a `FrameTags`."""
        one = self._given(piece)
        return self._answer(one, [self._advance(step) for step in _steps(one)])

    def _answer(self, one: Tagged, found: Sequence[tuple[int, float]]) -> Any:
        chances = [chance for _, chance in found] if self._probabilities else []
        return answer_of(self.model, one, [tag for tag, _ in found], chances)

    def state(self) -> bytes:
        """Everything the stream keeps, for `model.stream(state=…)`."""
        return packed(self.model, "a tagger's stream", {"state": self._state})

    def resume(self, state: bytes) -> None:
        """Go on where a stream was whose `state` this is."""
        self._state = unpacked(self.model, "a tagger's stream", state)["state"]

    def _given(self, piece: Any) -> Tagged:
        return self._frames(piece) if self._assets.frames else sentence_of_input(self.model, piece)

    def _frames(self, piece: Any) -> TaggedFrames:
        if hasattr(piece, "shape") and tuple(piece.shape) == self._assets.frames:
            piece = piece[None]
        return frames_of_input(self.model, piece)

    def _advance(self, step: Tagged) -> tuple[int, float]:
        """The tag of one more step, and its probability."""
        ((found, self._state),) = _stepped(self, [step], self._state)
        return found


def _stepped(stream: TagStream, steps: list[Tagged], state: Any) -> list[tuple[tuple[int, float], Any]]:
    """The tag of a step of each row of a state and its probability, with the row's state after it."""
    model = stream.model
    with model.answering():
        scores, after = stream._step(model.placed(model.assets.arrays(steps)), state)
        arrays = arrays_of(scores)
        chances = arrays.shares(arrays.float(scores))
    best = [int(row.argmax()) for row in chances]
    states = [after] if len(steps) == 1 else [tuple(part[i : i + 1] for part in after) for i in range(len(steps))]
    return [((tag, float(chances[i][tag])), one) for i, (tag, one) in enumerate(zip(best, states, strict=True))]


def feed_many(pieces: Sequence[tuple[TagStream, Any]]) -> list[Any]:
    """The answers of streams to a piece each; the steps of recurrent streams are computed together."""
    given = [stream._given(piece) for stream, piece in pieces]
    steps, found = [list(_steps(one)) for one in given], [list[tuple[int, float]]() for _ in pieces]
    for at in range(max(map(len, steps), default=0)):
        groups: dict[Any, list[int]] = {}
        for i, (stream, _) in enumerate(pieces):
            if at < len(steps[i]):
                alone = stream._state is not None and type(stream._state) is not tuple  # a Transformer's grows
                groups.setdefault(i if alone else stream._state is None, []).append(i)
        for group in groups.values():
            streams = [pieces[i][0] for i in group]
            state = streams[0]._state
            if len(group) > 1 and state is not None:
                parts = zip(*(stream._state for stream in streams), strict=True)
                state = tuple(arrays_of(part[0]).cat(part, 0) for part in parts)
            together = len(group) == 1 or streams[0].batches
            rows = _stepped(streams[0], [steps[i][at] for i in group], state) if together else None
            for place, i in enumerate(group):
                stream = pieces[i][0]
                one = rows[place] if rows is not None else _stepped(stream, [steps[i][at]], stream._state)[0]
                found[i].append(one[0])
                stream._state = one[1]
    return [stream._answer(one, tags) for (stream, _), one, tags in zip(pieces, given, found, strict=True)]


def _steps(one: Tagged) -> Iterator[Tagged]:
    """A sequence as sequences of one step."""
    for at in range(len(one)):
        if isinstance(one, TaggedFrames):
            yield TaggedFrames(one.frames[at : at + 1])
        else:
            yield Sentence((one.words[at],), features=tuple((values[at],) for values in one.features))


def check_streams(model: Model) -> None:
    """Raise with the reason if a model cannot tag an unfinished sequence."""
    network: Any = model.network
    if not network.causal:
        raise UserError(
            "This model reads from both ends, and needs the end of its input.", "Train with model.bidirectional=false."
        )
    if network.crf is not None:
        raise UserError(
            "A CRF decides on all tags at the end of the sequence.",
            "Train with model.output=softmax, which decides at every step.",
        )


def stream_lines(model: Model, request: Request) -> Iterator[str]:
    """An answer to each line of standard input as it comes: words, or the numbers of one frame.

    A blank line ends a sequence.
    """
    if request.files or request.texts is not None:
        raise UserError("--stream reads standard input.", "Leave the files and texts out, or leave --stream out.")
    shape: Sequence[int] = model.assets.frames
    if len(shape) > 1:
        raise UserError(f"A line cannot hold a frame of shape {tuple(shape)}.", "Use model.stream() from Python.")
    stream = TagStream(model, probabilities=True)
    lines = StreamLines(request.format, frames=bool(shape))
    yield lines.header()
    for number, line in enumerate(request.lines, 1):
        text = line.removeprefix("\ufeff").strip()
        if not text:
            stream.restart()
            yield lines.end()
        elif shape:
            answer = stream.feed(_frame(text, shape[0], f"Standard input, line {number}"))
            yield lines([("", answer.tags[0], answer.probabilities[0])])
        else:
            yield lines(stream.feed(text))


@dataclass
class StreamLines:
    """The answers of a stream as lines of a format, counted by sequence and frame."""

    format: Format
    frames: bool
    sequence: int = 1
    frame: int = 0

    def header(self) -> str:
        if self.format != "csv":
            return ""
        return "sequence,frame,tag,probability\n" if self.frames else "sentence,token,tag,probability\n"

    def end(self) -> str:
        """The end of a sequence: a blank line in text."""
        self.sequence, self.frame = self.sequence + 1, 0
        return "\n" if self.format == "text" else ""

    def __call__(self, answer: list[tuple[str, str, float]]) -> str:
        rows = [(word, tag, round(chance, 6)) for word, tag, chance in answer]
        if self.frames:
            (_, tag, chance), at = rows[0], self.frame
            self.frame += 1
            record: dict[str, Any] = {"sequence": self.sequence, "frame": at, "tag": tag, "probability": chance}
            cells: list[tuple[Any, ...]] = [(self.sequence, at, tag, chance)]
            text = tag
        else:
            words, tags, chances = zip(*rows, strict=True) if rows else ((), (), ())
            record = {"tokens": words, "tags": tags, "probabilities": chances}
            cells, text = [(self.sequence, *row) for row in rows], " ".join(f"{word}/{tag}" for word, tag, _ in rows)
        if self.format == "text":
            return text + "\n"
        return "".join(map(csv_line, cells)) if self.format == "csv" else json.dumps(record, ensure_ascii=False) + "\n"


def _frame(text: str, width: int, place: str) -> Any:
    cells = [cell for cell in re.split(r"[,;\s]+", text) if cell]
    try:
        values = np.array([float(cell) for cell in cells], dtype=np.float32)
    except ValueError:
        raise UserError(f"{place}: {text[:40]!r} are not numbers.", f"Expected {width}, with commas between.") from None
    if len(values) != width or not np.isfinite(values).all():
        raise UserError(f"{place} has {len(values)} numbers.", f"Expected {width} finite ones, with commas between.")
    return values
