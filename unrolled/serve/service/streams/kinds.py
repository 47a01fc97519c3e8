"""Inputs and answers of a stream of each task, around the streams of `model.stream`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from unrolled.data.readers.labelled import check_frames
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.serve.service.answers import plain, prediction
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.settings import ServeSettings
from unrolled.tasks.forecast.stream import Interval, as_rows
from unrolled.tasks.tag.predict import frames_of_input, sentence_of_input

Message = dict[str, Any]
SLICE = 1.0  # seconds of sound that are read in one step


class LiveStream:
    """A stream of a model and its place in the input. Used by one worker thread at a time.

    `given` is what the client said at the start: options, and for sound its format and rate. `first` is an earlier
    stream of the same model and options, if there is one: what does not change is shared with it.
    """

    unit = "steps"

    def __init__(self, model: Model, given: Mapping[str, Any], settings: ServeSettings, first: Any = None) -> None:
        self.model, self.given, self.settings = model, given, settings
        self.position = 0  # of the input, in `unit`
        self.stream: Any = self._new() if first is None else first.another()

    def _new(self) -> Any:
        return self.model.stream(**self.given["options"])

    @property
    def most(self) -> int:
        """The longest input, in `unit`."""
        return self.settings.max_stream_steps

    def resume(self, state: bytes, position: int) -> None:
        """Go on where a stream was stored."""
        self.stream.resume(state)
        self.position = position

    def about(self) -> Message:
        """The part of the first answer that is about this stream."""
        return {"unit": self.unit, "position": self.position}

    def checked(self, piece: Any) -> Any:
        """A piece of the input as the stream takes it; a wrong one is an error, and changes nothing."""
        return piece

    def check_room(self, coming: int) -> None:
        if self.position + coming > self.most:
            raise ServiceError(
                413, f"A stream has at most {self.most:,} {self.unit}. Begin a new one.", "stream_too_long"
            )

    def answer(self, fed: Any) -> Message | None:
        """The message for what the stream returned."""
        raise NotImplementedError

    def finish(self) -> Message:
        """The last message, at the end of the input."""
        return {"type": "final", "position": self.position}

    def park(self) -> None:
        """The connection was lost: the next one sends what comes after `position`."""

    def restart(self) -> None:
        """A new input begins."""
        self.position = 0
        self.stream = self.stream.another()


class HearingStream(LiveStream):
    """A recogniser: sound or frames in, the text so far out."""

    def __init__(self, model: Model, given: Mapping[str, Any], settings: ServeSettings, first: Any = None) -> None:
        self._reader = model.assets.reader
        self.sound = self._reader.kind == "audio"
        self.unit = "samples" if self.sound else "frames"
        super().__init__(model, given, settings, first)
        self.width = 2 if given.get("format") == "s16le" else 4 if self.sound else 4 * prod(self._reader.shape)
        self._begin()

    def _begin(self) -> None:
        self._rest = b""  # half a sample
        self._text, self._settled, self._words, self._read = "", 0, 0, 0.0

    def _new(self) -> Any:
        rate = self.given.get("rate")
        if self.sound and (rate is None or self.given.get("format") is None):
            raise ServiceError(
                400,
                f"Sound needs its format and rate: s16le or f32le, and {self._reader.rate} is what the model reads.",
                "no_format",
                "format",
            )
        if not self.sound and self.given.get("format") == "s16le":
            raise ServiceError(400, "Frames are f32le.", "invalid_value", "format")
        return self.model.stream(rate=rate, **self.given["options"])

    @property
    def most(self) -> int:
        if not self.sound:
            return self.settings.max_stream_steps
        return int(self.settings.max_stream_seconds * self.given["rate"])

    @property
    def at_once(self) -> int:
        """Bytes of the input that a step reads at the most."""
        if not self.sound:
            return 64 * self.width
        return int(self.given["rate"] * SLICE) * self.width

    @property
    def wanted(self) -> int:
        """Bytes until the network reads on, or until there are too many."""
        steps: int = min(self.stream.wants, self.most - self.position + 1)
        return steps * self.width - len(self._rest)

    def about(self) -> Message:
        expected = {"rate": self._reader.rate} if self.sound else {"shape": list(self._reader.shape)}
        return {**super().about(), "reads": expected, "times": self._reader.unit}

    def checked(self, piece: Any) -> Any:
        if not isinstance(piece, bytes):
            if self.sound:
                raise ServiceError(400, "Sound comes as binary messages.", "invalid_value", "input")
            frames = self._reader.base(check_frames(piece, "The piece"), "The piece")
            self.check_room(len(frames))
            return frames
        data = self._rest + piece if self._rest else piece
        whole = len(data) // self.width * self.width
        self.check_room(whole // self.width)
        found: Any
        if self.sound and self.width == 2:
            found = np.frombuffer(data[:whole], "<i2").astype(np.float32) * np.float32(2**-15)
        else:
            found = np.frombuffer(data[:whole], "<f4").astype(np.float32)
            if self.sound:
                self._reader.samples(found, "The piece")
            else:
                found = self._reader.base(check_frames(found.reshape(-1, *self._reader.shape), "The piece"))
        self._rest = data[whole:]
        return found

    def answer(self, fed: str) -> Message | None:
        """The changes since the last message; None if the network has read nothing more."""
        read = self.stream.read
        if read == self._read:
            return None
        self._read = read
        same = len(self._text) if fed.startswith(self._text) else shared(self._text, fed)
        words, settled = self.stream.words(self._settled)
        message = {
            "type": "partial",
            "position": self.position,
            "time": read,
            "from": same,
            "text": fed[same:],
            "words_from": self._words,
            "words": plain(words),
        }
        if settled > self._settled:
            self._words, self._settled = self._words + len(words) - 1, settled
        self._text = fed
        return message

    def park(self) -> None:
        read = self._read
        self._begin()  # the next message tells all of the text again
        self._read = read

    def resume(self, state: bytes, position: int) -> None:
        super().resume(state, position)
        self._read = self.stream.read

    def finish(self) -> Message:
        if self._rest:
            raise ServiceError(400, "The input ends within a sample.", "incomplete_sample")
        return {"type": "final", "position": self.position, **prediction("recognize", self.stream.finish())}

    def restart(self) -> None:
        super().restart()
        self._begin()


class ReadingStream(LiveStream):
    """A language model: text in, its loss out; and it writes on."""

    unit = "characters"

    def __init__(self, model: Model, given: Mapping[str, Any], settings: ServeSettings, first: Any = None) -> None:
        super().__init__(model, given, settings)
        self.writing: Iterator[str] | None = None

    def checked(self, piece: Any) -> Any:
        self.check_room(len(piece))
        return piece

    def answer(self, fed: float) -> Message | None:
        return {"type": "read", "position": self.position, "nats": fed, "tokens": self.stream.tokens}

    def write(self, options: Mapping[str, Any] | None, pieces: int) -> Message | None:
        """The next pieces of a text; with options a new one begins. None: it is done."""
        if options is not None:
            self.writing = self.stream.write(**options)
        assert self.writing is not None
        found = list(islice(self.writing, pieces))
        if not found:
            self.writing = None
            return None
        return {"type": "piece", "text": "".join(found)}

    def finish(self) -> Message:
        self.stream.finish()
        return {**super().finish(), "nats": self.stream.nats, "tokens": self.stream.tokens}

    def restart(self) -> None:
        self.position, self.stream = 0, self._new()


class ForecastingStream(LiveStream):
    """A forecaster: rows in, the forecast after each out."""

    unit = "rows"

    def _new(self) -> Any:
        return self.model.stream()

    def checked(self, piece: Any) -> Any:
        self.check_room(len(piece))
        as_rows(piece, self.model.assets)
        return piece

    def answer(self, fed: Any) -> Message | None:
        level = self.given["options"].get("interval")
        found = fed if level is None else Interval(fed, *self.stream.interval(level))
        return {"type": "forecast", "position": self.position, **prediction("forecast", found)}


class TaggingStream(LiveStream):
    """A tagger of one direction: words or frames in, the tag of each out."""

    def __init__(self, model: Model, given: Mapping[str, Any], settings: ServeSettings, first: Any = None) -> None:
        super().__init__(model, given, settings, first)
        self.unit = "frames" if model.assets.frames else "words"

    def checked(self, piece: Any) -> Any:
        frames = self.model.assets.frames
        found = frames_of_input(self.model, piece) if frames else sentence_of_input(self.model, piece)
        self.check_room(len(found))
        return found

    def answer(self, fed: Any) -> Message | None:
        found = prediction("tag", fed)
        if self.model.assets.frames:
            del found["segments"]  # of a whole sequence
        return {"type": "tags", "position": self.position, **found}


KINDS: dict[str, type[LiveStream]] = {
    "generate": ReadingStream,
    "tag": TaggingStream,
    "forecast": ForecastingStream,
    "recognize": HearingStream,
}


def shared(one: str, other: str) -> int:
    """The number of characters that two texts begin with alike.

    >>> shared("speech", "spell")
    3
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def state_of(kind: LiveStream) -> bytes | None:
    """The state of a stream as bytes; None where only the stream itself can go on."""
    try:
        found: bytes = kind.stream.state()
    except UserError:
        return None
    return found
