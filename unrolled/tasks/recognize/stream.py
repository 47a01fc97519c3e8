"""A causal model in use: samples or frames as they come, in blocks of one size whatever pieces they came in."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.labelled import check_frames
from unrolled.errors import UserError
from unrolled.search.arrays import arrays_of
from unrolled.search.ctc import Decoded
from unrolled.tasks.recognize.features import InputReader, checked_rate
from unrolled.tasks.recognize.labels import RecognizeAssets
from unrolled.tasks.recognize.search import RecognitionOptions, Recognized, Search, TimeSpan, joined, piece_of
from unrolled.tasks.shared.stream_state import packed, unpacked

if TYPE_CHECKING:
    from unrolled.model import Model

BLOCK = 16  # frames, at least, that are read together: 160 ms of sound


class Blocks:
    """From samples (N,), or frames (T, …), to log-probabilities. What is kept does not grow with the stream.

    Only whole blocks go through the network, always of one size: how the input is cut changes no bit of the result.
    """

    def __init__(self, model: Model, block: int = BLOCK) -> None:
        check_streams(model)
        self.model = model
        network: Any = model.network
        self.network = network
        self.reader: InputReader = model.assets.reader
        factor: int = network.time_factor
        self.block = -(-block // factor) * factor
        self._samples = np.zeros(0, dtype=np.float32)
        self._frames = np.zeros((0, *self.reader.shape), dtype=np.float32)  # not yet read
        self._context = np.zeros((0, *self.reader.shape), dtype=np.float32)  # read, and needed again
        self._state: Any = None
        self._none = np.zeros((0, len(model.assets.labels)), dtype=np.float32)
        self.frames = 0  # read so far
        self.heard = 0  # samples so far

    def feed(self, chunk: Any) -> NDArray[np.float32]:
        """The log-probabilities (T, V) of the blocks that are now complete; T may be 0."""
        self.take(chunk)
        results = [self._none]
        while self.ready:
            results.append(self._advance(self.block))
        return np.concatenate(results)

    @property
    def ready(self) -> bool:
        """True if a block is complete."""
        return len(self._frames) >= self.block

    def take(self, chunk: Any) -> None:
        """Keep some more samples or frames."""
        if self.reader.kind == "audio":
            samples = self.reader.samples(chunk, "The chunk")
            self.heard += len(samples)
            self._samples = np.concatenate([self._samples, samples])
            self._take_frames(self.block)
        else:
            frames = self.reader.features(self.reader.base(check_frames(np.asarray(chunk), "The chunk"), "The chunk"))
            self._frames = np.concatenate([self._frames, frames])

    def finish(self) -> NDArray[np.float32]:
        """Those of what was left over, at the end of the stream."""
        if self.reader.kind == "audio":
            self._take_frames(1)
        if not len(self._frames):
            return self._none
        return self._advance(len(self._frames))

    def _take_frames(self, number: int) -> None:
        """Spectrograms of `number` frames at a time, while there are samples enough."""
        mel = self.reader.mel
        first_of_all = number == 1 and self.frames == 0 and not len(self._frames) and 0 < self.heard < mel.window
        needed = 1 if first_of_all else (number - 1) * mel.hop + mel.window
        while len(self._samples) >= needed:
            frames = self.reader.features(mel(self._samples[: max(needed, (number - 1) * mel.hop + mel.window)]))
            self._frames = np.concatenate([self._frames, frames])
            self._samples = self._samples[number * mel.hop :]

    def _advance(self, count: int) -> NDArray[np.float32]:
        together, seen = self._begin(count)
        with self.model.answering():
            log_probs, self._state = self.network.advance(together, seen, self._state)
        found: NDArray[np.float32] = arrays_of(log_probs).host(log_probs)
        return found

    def _begin(self, count: int) -> tuple[NDArray[np.float32], int]:
        """The next frames with their context, and the length of that."""
        new, self._frames = self._frames[:count], self._frames[count:]
        seen, together = len(self._context), np.concatenate([self._context, new])
        self._context = together[len(together) - min(self.network.context, len(together)) :]
        self.frames += count
        return together, seen

    def kept(self) -> dict[str, Any]:
        """Everything that the stream goes on from."""
        return {name: getattr(self, name) for name in KEPT}

    def keep(self, kept: dict[str, Any]) -> None:
        for name in KEPT:
            setattr(self, name, kept[name])


KEPT = ("_samples", "_frames", "_context", "_state", "frames", "heard")  # of `Blocks`


def feed_blocks(pieces: Sequence[tuple[Blocks, Any]]) -> list[NDArray[np.float32]]:
    """The results of `feed` of several streams of one model; their blocks go through the network together."""
    for blocks, chunk in pieces:
        blocks.take(chunk)
    found = [[blocks._none] for blocks, _ in pieces]
    while waiting := [i for i, (blocks, _) in enumerate(pieces) if blocks.ready]:
        groups: dict[tuple[int, bool], list[int]] = {}
        for i in waiting:
            blocks = pieces[i][0]
            groups.setdefault((len(blocks._context), blocks._state is None), []).append(i)
        for group in groups.values():
            several = [pieces[i][0] for i in group]
            if len(group) == 1 or not hasattr(several[0].network, "advance_many"):
                results = [blocks._advance(blocks.block) for blocks in several]
            else:
                results = _advance_many(several)
            for i, log_probs in zip(group, results, strict=True):
                found[i].append(log_probs)
    return [np.concatenate(parts) for parts in found]


def _advance_many(several: list[Blocks]) -> list[NDArray[np.float32]]:
    """The next block of each, with contexts of one length."""
    first = several[0]
    begun = [blocks._begin(blocks.block) for blocks in several]
    states = None if first._state is None else [blocks._state for blocks in several]
    with first.model.answering():
        log_probs, after = first.network.advance_many(np.stack([one for one, _ in begun]), begun[0][1], states)
    for blocks, state in zip(several, after, strict=True):
        blocks._state = state
    return [arrays_of(one).host(one) for one in log_probs]


def feed_many(pieces: Sequence[tuple[RecognizeStream, Any]]) -> list[str]:
    """The answers of streams to a piece each; their blocks go through the network together."""
    found = feed_blocks([(stream._blocks, stream._resampled(chunk)) for stream, chunk in pieces])
    for (stream, _), log_probs in zip(pieces, found, strict=True):
        stream._read(log_probs)
    return [stream.text for stream, _ in pieces]


class RecognizeStream:
    """Hears a recording, or sees frames, as they come: `feed` gives the text so far, `finish` the whole answer.

    With a lexicon the text so far may still change; without one it only grows.
    """

    def __init__(self, model: Model, options: RecognitionOptions) -> None:
        self.model = model
        self.assets: RecognizeAssets = model.assets
        if options.searches and options.lexicon is None:
            raise UserError(
                "A stream takes each step's best label, or words of a lexicon.", "Leave beam and n_best out."
            )
        self._blocks = Blocks(model)
        self._resampler = _resampler(self.assets.reader, options.rate)
        self._search = Search(self.assets.labels, options)
        decoder = self._search.decoder
        self._words = None if decoder is None else decoder.stream(n_best=options.n_best)
        self._path = _BestPath()
        self._factor = self._blocks.network.time_factor

    def __enter__(self) -> RecognizeStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        pass

    def feed(self, chunk: NDArray[Any]) -> str:
        """Some more samples (N,) at the stream's rate, or frames (T, …); the text so far."""
        self._read(self._blocks.feed(self._resampled(chunk)))
        return self.text

    def _resampled(self, chunk: NDArray[Any]) -> NDArray[Any]:
        if self._resampler is None:
            return chunk
        found: NDArray[Any] = self._resampler.resample_chunk(self.assets.reader.samples(chunk, "The chunk"))
        return found

    def state(self) -> bytes:
        """Everything the stream keeps, for `model.stream(state=…)`; it grows with the text."""
        path = self._path
        found = {"score": path.found.score, "labels": path.found.labels, "spans": path.found.spans}
        kept = {"blocks": self._blocks.kept(), "found": found, "last": path._last, "step": path._step}
        return packed(self.model, self._stored_kind(), kept)

    def resume(self, state: bytes) -> None:
        """Go on where a stream was whose `state` this is."""
        kept = unpacked(self.model, self._stored_kind(), state)
        self._blocks.keep(kept["blocks"])
        found = kept["found"]
        self._path.found = Decoded(found["score"], found["labels"], [tuple(span) for span in found["spans"]])
        self._path._last, self._path._step = kept["last"], kept["step"]

    def _stored_kind(self) -> str:
        if self._words is not None:
            raise UserError("The state of a search with a lexicon cannot be stored.", "Leave out lexicon.")
        if self._resampler is not None:
            rate = self.assets.reader.rate
            raise UserError("The state of a resampler cannot be stored.", f"Feed samples at the model's rate, {rate}.")
        return "a recognizer's stream"

    def another(self) -> RecognizeStream:
        """A stream of the same model and options for other input; lexicon and language model are shared."""
        stream = copy(self)
        stream._blocks, stream._path = Blocks(self.model), _BestPath()
        stream._resampler = _resampler(self.assets.reader, self._search.options.rate)
        decoder = self._search.decoder
        stream._words = None if decoder is None else decoder.stream(n_best=self._search.options.n_best)
        return stream

    @property
    def read(self) -> float:
        """The end of what the network has read, in the answer's unit."""
        return self.assets.reader.moment(self._blocks.frames)

    @property
    def wants(self) -> int:
        """Samples or frames until the network reads the next block; 0: not known."""
        blocks, mel = self._blocks, self.assets.reader.mel
        if self._resampler is not None:
            return 0
        if self.assets.reader.kind == "audio":
            return (blocks.block - 1) * mel.hop + mel.window - len(blocks._samples)
        return blocks.block - len(blocks._frames)

    def words(self, first: int = 0) -> tuple[list[TimeSpan], int]:
        """The words so far from the label `first` on, with times, and the label that the last of them begins with.

        The words before that label are certain. With a lexicon all are found again each time.
        """
        (found, *_), last = self._found(), first
        if self._words is None:
            labels = self._search.labels
            found = Decoded(0.0, found.labels[first:], found.spans[first:])
            if labels.separator is not None:
                separator = labels.names.index(labels.separator)
                before = [place for place, label in enumerate(found.labels[:-1]) if label == separator]
                last = first + before[-1] + 1 if before else first
            elif labels.symbols and found.labels:
                last = first + len(found.labels) - 1
        return piece_of(self._search, found, self._moment).words, last

    def finish(self) -> Recognized:
        """The answer to all that was fed, with times."""
        if self._resampler is not None:
            self._read(self._blocks.feed(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True)))
            self._resampler = None
        self._read(self._blocks.finish())
        readings = [piece_of(self._search, one, self._moment) for one in self._found()]
        return joined([readings], self.assets.labels.glue, self.assets.reader.unit, self._search.options.n_best)

    @property
    def text(self) -> str:
        return self._search.text(self._found()[0])

    def _read(self, log_probs: NDArray[np.float32]) -> None:
        if not len(log_probs):
            return
        if self._words is not None:
            self._words.feed(log_probs)
        else:
            self._path.feed(log_probs)

    def _found(self) -> list[Decoded]:
        if self._words is None:
            return [self._path.found]
        return self._words.best(self._search.options.n_best)

    def _moment(self, step: int) -> float:
        return self.assets.reader.moment(min(step * self._factor, self._blocks.frames))


def _resampler(reader: InputReader, rate: float | None) -> Any:
    """A resampler from this rate to the model's, or None if they are equal."""
    if reader.kind != "audio":
        if rate is not None:
            raise UserError("rate is for samples of recordings.", f"This model expects {reader.expects}.")
        return None
    if rate is None:
        raise UserError(
            "A stream of samples does not say how many are a second.",
            f"Give it once: stream(rate={reader.rate}), if it is what the model reads.",
        )
    if checked_rate(rate) == reader.rate:
        return None
    import soxr

    return soxr.ResampleStream(checked_rate(rate), reader.rate, 1, dtype="float32")


class _BestPath:
    """Each step's best label, repeated ones as one, without blanks, as steps come."""

    def __init__(self) -> None:
        self.found = Decoded(0.0, [], [])
        self._last, self._step = 0, 0

    def feed(self, log_probs: NDArray[np.float32]) -> None:
        path = log_probs.argmax(1)
        scores = np.take_along_axis(log_probs, path[:, None], 1)
        labels, spans = self.found.labels, self.found.spans
        for label in path.tolist():
            if label and label == self._last:
                spans[-1] = (spans[-1][0], self._step + 1)
            elif label:
                labels.append(label)
                spans.append((self._step, self._step + 1))
            self._last, self._step = label, self._step + 1
        self.found = Decoded(self.found.score + float(scores.astype(np.float64).sum()), labels, spans)


def check_streams(model: Model) -> None:
    """Raise with the reason if a model cannot read an unfinished input."""
    network: Any = model.network
    reader = model.assets.reader
    fix = (
        "Train with model.bidirectional=false and model.kind=recurrent; or give whole files: they are read in windows."
    )
    if not network.causal:
        raise UserError("This model reads from both ends, and needs the end of its input.", fix)
    if network.layer is None:
        raise UserError("This model looks at all steps at once.", fix)
    if reader.kind == "line":
        raise UserError("A line is read whole.", "Streams are for recordings and frames.")
    if reader.deltas:
        raise UserError(
            f"This model reads slopes, which look {2 * reader.deltas} frames ahead.", "Train with data.deltas=0."
        )


def streams(model: Model) -> bool:
    """True if a model can read an unfinished input."""
    try:
        check_streams(model)
    except UserError:
        return False
    return True
