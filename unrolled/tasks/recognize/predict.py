"""From inputs to answers: long ones cut into windows at silence or white space, all through the network in batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.tables import FrameSequences
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import Samples, audio_blocks, audio_facts, is_silent, missing_audio
from unrolled.data.readers.media.transcripts import Frames
from unrolled.data.readers.media.wav import cut_short
from unrolled.errors import UserError, note
from unrolled.search.arrays import Array, arrays_of
from unrolled.tasks.recognize.features import InputReader, is_sound
from unrolled.tasks.recognize.labels import RecognizeAssets
from unrolled.tasks.recognize.search import Piece, RecognitionOptions, Recognized, Search, joined, piece_of
from unrolled.tasks.recognize.stream import Blocks, streams
from unrolled.tasks.shared.rescoring import rescored

if TYPE_CHECKING:
    from unrolled.model import Model

AT_ONCE = 24_000  # steps in a batch when there are no gradients
SECONDS = 30.0  # the usual window of a recording
HEIGHTS = 60.0  # and that of a line, in heights
STEPS = 6000  # and that of frames
FILE_BLOCK = 1024  # frames of a file that is streamed: nobody waits for them
POOL = 64  # windows that are sorted by length together


@dataclass(frozen=True)
class Window:
    """A part of an input: its features, its position, and the number of columns of a pixel."""

    number: int  # of the input
    features: NDArray[np.float32]  # (T, …)
    start: float = 0.0  # steps before it
    scale: float = 1.0
    base: Frames | None = None  # (T, …), to draw; only where it was asked for


@dataclass(frozen=True)
class Heard:
    """The output for a part of an input: log-probabilities (T, V), and the time of each step."""

    number: int  # of the input
    log_probs: Array
    moment: Callable[[int], float]
    window: Window | None = None  # none: it was streamed


def recognize(
    model: Model, inputs: Sequence[Any], searches: Mapping[str, Search], window: float | None = None
) -> dict[str, list[Recognized]]:
    """The answer to each input, for each search; the network reads every input once."""
    return searched(model, hear(model, inputs, window), len(inputs), searches)


def searched(
    model: Model, heard: Iterable[Sequence[Heard]], count: int, searches: Mapping[str, Search]
) -> dict[str, list[Recognized]]:
    """The answers to `count` inputs that went through the network, for each search."""
    found: dict[str, list[list[list[Piece]]]] = {name: [[] for _ in range(count)] for name in searches}
    for parts in heard:
        for name, search in searches.items():
            for part, readings in zip(parts, search([part.log_probs for part in parts]), strict=True):
                pieces = [piece_of(search, reading, part.moment, part.log_probs) for reading in readings]
                found[name][part.number].append(pieces)
    assets: RecognizeAssets = model.assets
    return {
        name: [joined(one, assets.labels.glue, assets.reader.unit, searches[name].options.n_best) for one in pieces]
        for name, pieces in found.items()
    }


def answers_of(
    model: Model, heard: Iterable[Sequence[Heard]], count: int, options: RecognitionOptions
) -> list[Recognized]:
    """The answers to `count` inputs that went through the network, rescored if the options say so."""
    wide = options
    if options.rescore is not None:
        wide = replace(options, n_best=options.searched(options.n_best, options.beam))
    (answers,) = searched(model, heard, count, {"": Search(model.assets.labels, wide)}).values()
    return answers if options.rescore is None else rescored(answers, options, options.n_best)


def hear(
    model: Model, inputs: Sequence[Any], window: float | None = None, *, draw: bool = False
) -> Iterator[list[Heard]]:
    """Every input through the network, some parts at a time; the parts of an input come in their order.

    With `draw` windows keep what is drawn of them.
    """
    streamed = _streamed_ones(model, inputs, window)
    rest = (number for number in range(len(inputs)) if number not in streamed)
    windows = (one for number in rest for one in _windows(model, number, inputs[number], window, draw))
    while pool := list(itertools.islice(windows, POOL)):
        yield [
            Heard(one.number, log_probs, moments(model, len(one.features), one.start, one.scale), one)
            for one, log_probs in zip(pool, posteriors_of(model, pool), strict=True)
        ]
    for number in streamed:
        log_probs, frames = _through(model, inputs[number])
        yield [Heard(number, log_probs, moments(model, frames))]


def hear_window(model: Model, samples: Samples, start: int) -> Heard:
    """A window of a recording, which begins so many samples after its start, through the network."""
    reader: InputReader = model.assets.reader
    window = Window(0, reader.features(reader.mel(samples)), start / reader.mel.hop)
    (log_probs,) = posteriors_of(model, [window])
    return Heard(0, log_probs, moments(model, len(window.features), window.start))


def texts_of(
    heard: Iterable[Sequence[Heard]], count: int, searches: Mapping[str, Search], *, as_labels: bool = False
) -> dict[str, list[str]]:
    """The texts of `count` inputs by each search; `as_labels`: the labels that words of a lexicon are spelt with."""
    found: dict[str, list[list[str]]] = {name: [[] for _ in range(count)] for name in searches}
    for parts in heard:
        for name, search in searches.items():
            for part, readings in zip(parts, search([part.log_probs for part in parts]), strict=True):
                best = readings[0]
                found[name][part.number].append(search.labels.text(best.labels) if as_labels else search.text(best))
    return {
        name: [searches[name].labels.glue.join(filter(None, parts)) for parts in texts] for name, texts in found.items()
    }


def whole(reader: InputReader, given: Any) -> Window:
    """All of an input in one window."""
    base, scale = base_of(reader, given)
    return Window(0, reader.features(base), scale=scale, base=base)


def moments(model: Model, steps: int, start: float = 0.0, scale: float = 1.0) -> Callable[[int], float]:
    """The time of each step of the network's output, in the reader's unit; `steps` is the length of its input."""
    reader, factor = model.assets.reader, _network(model).time_factor

    def moment(step: int) -> float:
        value: float = reader.moment(start + min(step * factor, steps), scale)
        return value

    return moment


def _streamed_ones(model: Model, inputs: Sequence[Any], window: float | None) -> list[int]:
    """The recordings that are longer than a window, where the model is causal: they need none."""
    reader = model.assets.reader
    if reader.kind != "audio" or not streams(model):
        return []
    lengths = [audio_facts(one).seconds if isinstance(one, Medium) else len(one) / reader.rate for one in inputs]
    return [number for number, seconds in enumerate(lengths) if seconds > (window or SECONDS)]


def _through(model: Model, given: Any) -> tuple[Array, int]:
    """The log-probabilities of a recording that is streamed through a causal model, and its number of frames."""
    reader, blocks = model.assets.reader, Blocks(model, FILE_BLOCK)
    source = sound_blocks(reader, given) if isinstance(given, Medium) else [given]
    parts = [blocks.feed(samples) for samples in source]
    parts.append(blocks.finish())
    return np.concatenate(parts), blocks.frames


def _windows(model: Model, number: int, given: Any, window: float | None, draw: bool) -> Iterator[Window]:
    """The parts of an input; of one that is silent there are none."""
    reader: InputReader = model.assets.reader
    if reader.kind == "audio":
        blocks = sound_blocks(reader, given) if isinstance(given, Medium) else [reader.samples(given)]
        for start, samples in cut_recording(reader, blocks, window or SECONDS):
            if not is_silent(samples):
                base = reader.mel(samples)
                yield Window(number, reader.features(base), start / reader.mel.hop, base=base if draw else None)
        return
    whole_base, scale = base_of(reader, given)
    features = reader.features(whole_base)
    most = int((window or HEIGHTS) * reader.shape[0]) if reader.kind == "line" else int(window or STEPS)
    if _network(model).causal or len(features) <= most:
        yield Window(number, features, 0.0, scale, whole_base if draw else None)
        return
    weight = features.reshape(len(features), -1).sum(axis=1) if reader.kind == "line" else np.zeros(len(features))
    for start, end in cuts(weight, most, reader.shape[0] // 2 if reader.kind == "line" else 1):
        yield Window(number, features[start:end], float(start), scale)


def base_of(reader: InputReader, given: Any, *, tell: bool = True) -> tuple[Frames, float]:
    """The reader's base of all of an input, and the scale of its columns; a note about a page, if `tell`."""
    if reader.kind != "line":
        return reader.base(given), 1.0
    line = reader.line(given)
    if line.lines > 1 and tell:
        what = given if isinstance(given, Medium) else "The picture"
        note(
            f"{what} seems to hold {line.lines} lines of text. This model reads one line at a time: cut the "
            "picture into lines, and give each of them."
        )
    return line.columns, line.scale


def cut_recording(reader: InputReader, blocks: Iterable[Samples], seconds: float) -> Iterator[tuple[int, Samples]]:
    """A recording in parts of at most so many seconds, cut where it is quietest; first sample and samples of each.

    Never more than two windows of a file stand in memory.
    """
    most, hop = max(reader.mel.window, int(seconds * reader.rate)), reader.mel.hop
    start, held = 0, np.zeros(0, dtype=np.float32)
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) > most:
            levels = np.square(held[: most // hop * hop]).reshape(-1, hop).sum(axis=1)
            end = next(cuts(levels, max(2, len(levels) - 1), 20))[1] * hop  # 20 frames: a fifth of a second
            yield start, held[:end]
            start, held = start + end, held[end:]
    if len(held):
        yield start, held


def sound_blocks(reader: InputReader, medium: Medium) -> Iterator[Samples]:
    facts = audio_facts(medium)
    if facts.channels > 1:
        note(f"{medium} has {facts.channels} channels: their mean is read.")
    if facts.rate < reader.rate:
        note(f"{medium} has {facts.rate:,} samples a second; the model learnt from {reader.rate:,}.")
    if missing := missing_audio(medium):
        note(cut_short(medium, facts.rate, facts.seconds, missing))
    loudest = 0.0
    for block in audio_blocks(medium, reader.rate, 10.0):
        loudest = max(loudest, float(np.abs(block).max(initial=0.0)))
        yield block
    nothing = not facts.samples and missing  # it was said
    if is_silent(np.array([loudest], dtype=np.float32)) and not nothing:
        what = f"{medium}'s mean" if facts.channels > 1 else medium
        note(f"{what} is {'silent' if facts.samples else 'empty'}: it says nothing.")


def cuts(weight: NDArray[np.floating[Any]], most: int, smooth: int) -> Iterator[tuple[int, int]]:
    """(start, end) of parts of at most `most` steps, cut in their second half where the weight around is least.

    >>> list(cuts(np.array([5, 5, 5, 5, 0, 5, 5, 5, 5.0]), 6, 1))
    [(0, 4), (4, 9)]
    """
    smooth = max(1, min(smooth, most // 4))
    padded = np.pad(weight.astype(np.float64), (smooth // 2, smooth - 1 - smooth // 2), mode="edge")
    sums = np.concatenate([[0.0], np.cumsum(padded)])
    around = sums[smooth:] - sums[:-smooth]
    start = 0
    while len(weight) - start > most:
        middle = start + most // 2
        end = middle + int(around[middle : start + most].argmin())
        yield start, end
        start = end
    yield start, len(weight)


def posteriors_of(model: Model, pool: Sequence[Window]) -> list[Array]:
    """The log-probabilities (T, V) of each window, on the CPU; windows of like length go side by side."""
    results: dict[int, Array] = {}
    most, order = model.together(AT_ONCE), sorted(range(len(pool)), key=lambda i: len(pool[i].features))
    while order:
        part = [order.pop(0)]
        while order and (len(part) + 1) * len(pool[order[0]].features) <= most:
            part.append(order.pop(0))
        features = [pool[i].features for i in part]
        with model.answering():
            log_probs, lengths = _network(model)(model.placed(FrameSequences(features, features[0].shape[1:]).batch()))
        log_probs = arrays_of(log_probs).host(log_probs)
        results |= {i: log_probs[row, : int(lengths[row])] for row, i in enumerate(part)}
    return [results[i] for i in range(len(pool))]


def _network(model: Model) -> Any:
    return model.network


def predict(model: Model, inputs: Any, **options: Any) -> Any:
    """A `Recognized` for one input, a list of them for several: see `Recognize.predict`."""
    alone = not isinstance(inputs, (list, tuple)) or is_sound(inputs)
    answers = recognize_inputs(model, [inputs] if alone else inputs, RecognitionOptions(**options), alone=alone)
    return answers[0] if alone else answers


def recognize_inputs(
    model: Model, inputs: Sequence[Any], options: RecognitionOptions, *, alone: bool = False
) -> list[Recognized]:
    """The answers to inputs as users give them."""
    reader: InputReader = model.assets.reader
    if not alone and inputs and all(isinstance(one, Real) for one in inputs):
        raise UserError(
            f"The input is a {type(inputs).__name__} of numbers.",
            f"Make a NumPy array of it: np.array(…). Expected {reader.expects}.",
        )
    read = read_inputs(reader, inputs, options.rate, alone=alone)
    return answers_of(model, hear(model, read, options.window), len(read), options)


def read_inputs(reader: InputReader, inputs: Sequence[Any], rate: float | None, *, alone: bool) -> list[Any]:
    """Inputs of a user as the reader takes them; a rate is an error where none needs it."""
    if rate is not None and inputs and not any(reader.needs_rate(one) for one in inputs):
        raise UserError(f"rate={rate:g} is for arrays of samples and raw files, and there are none.", "Leave it out.")
    return [reader.given(one, "The input" if alone else f"Input {i}", rate) for i, one in enumerate(inputs, 1)]
