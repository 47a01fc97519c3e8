"""Forced alignment: where each word and label of a known text stands in a recording, a line or frames."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import audio_facts
from unrolled.errors import UserError
from unrolled.kernels.ctc import alignment as paths
from unrolled.kernels.ctc.pronounced import pronounce
from unrolled.kernels.native_module import NATIVE
from unrolled.search import Lexicon
from unrolled.search.arrays import arrays_of
from unrolled.search.ctc import Decoded
from unrolled.search.ctc.confidence import label_confidences
from unrolled.tasks.recognize.features import InputReader
from unrolled.tasks.recognize.labels import RecognizeAssets
from unrolled.tasks.recognize.predict import Heard, hear, read_inputs
from unrolled.tasks.recognize.search import TimeSpan
from unrolled.tasks.recognize.transcript import Pronunciations, Transcript, pronunciations, transcript_of

if TYPE_CHECKING:
    from unrolled.model import Model

LogProbs = NDArray[np.float32]
AT_ONCE = 16  # inputs that go through the network together
LEAST_PRIOR = 1e-3  # a label that is hardly ever heard is not raised beyond this


@dataclass(frozen=True)
class AlignOptions:
    """Options of `align`. A lexicon is a file, a mapping of words to pronunciations, or a `Lexicon`."""

    lexicon: Any = None
    prior: float = 0.0  # power of the labels' own frequencies that their probabilities are divided by
    skip_unknown: bool = False
    window: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.prior <= 1:
            raise UserError(f"prior={self.prior!r} is not from 0 to 1.", "0 changes nothing; 0.3 widens labels.")
        if self.window is not None and not self.window > 0:
            raise UserError(f"window={self.window} is not above 0.", "It is seconds, or heights of a line.")


@dataclass(frozen=True)
class Aligned:
    """A text with the times of its words and labels, each with a confidence from 0 to 1, in `unit`.

    `unit` is seconds, pixels of the picture, or frames; `end` is the end of the input. `score` is the log-probability
    of the alignment. A word's confidence is the probability that its frames read the word and nothing else, a label's
    the mean probability of its frames.
    """

    text: str
    words: tuple[TimeSpan, ...]
    labels: tuple[TimeSpan, ...]
    unit: str
    end: float
    score: float

    def __str__(self) -> str:
        return self.text


def align(model: Model, inputs: Any, texts: Any, **options: Any) -> Any:
    """An `Aligned` for one input and its text, a list of them for several."""
    alone = isinstance(texts, str)
    given, wanted = ([inputs], [texts]) if alone else (inputs, texts)
    if isinstance(given, str) or len(given) != len(wanted):
        count = 1 if isinstance(given, str) else len(given)
        raise UserError(f"There are {count} inputs and {len(wanted)} texts.", "Give a text for each input.")
    answers = align_inputs(model, given, wanted, AlignOptions(**options), alone=alone)
    return answers[0] if alone else answers


def align_inputs(
    model: Model, inputs: Sequence[Any], texts: Sequence[str], options: AlignOptions, *, alone: bool = False
) -> list[Aligned]:
    """The alignment of each input with its text."""
    assets: RecognizeAssets = model.assets
    said = read_pronunciations(options.lexicon, assets)
    transcripts = [transcript_of(text, assets.labels, said, skip_unknown=options.skip_unknown) for text in texts]
    read = read_inputs(assets.reader, inputs, options.rate, alone=alone)
    heard = by_input(hear(model, read, options.window), len(read))
    return [
        aligned(posteriors_of(assets.reader, one, parts), transcript, assets.labels.names, options.prior)
        for one, parts, transcript in zip(read, heard, transcripts, strict=True)
    ]


def align_each(
    model: Model, pairs: Iterable[tuple[str, Any, str]], options: AlignOptions
) -> Iterator[Aligned | UserError]:
    """The alignment of each (name, input, text), or the error of one that has none."""
    options = replace(options, lexicon=read_pronunciations(options.lexicon, model.assets))
    rest = iter(pairs)
    while some := list(itertools.islice(rest, AT_ONCE)):
        try:
            yield from align_inputs(model, [one for _, one, _ in some], [text for *_, text in some], options)
        except UserError:  # of one of them
            for _, one, text in some:
                yield _answer(model, one, text, options)


def _answer(model: Model, one: Any, text: str, options: AlignOptions) -> Aligned | UserError:
    try:
        return align_inputs(model, [one], [text], options, alone=True)[0]
    except UserError as error:
        return error


def read_pronunciations(lexicon: Any, assets: RecognizeAssets) -> Pronunciations | None:
    """The pronunciations of a lexicon: a file, a mapping, a `Lexicon`, or a mapping that was made before."""
    if lexicon is None or isinstance(lexicon, Pronunciations):
        return lexicon
    if not assets.labels.symbols:
        raise UserError(
            "A lexicon is for models of symbols; this one writes characters, which spell every word.", "Leave it out."
        )
    names = list(assets.labels.names)
    if isinstance(lexicon, str) or hasattr(lexicon, "__fspath__"):
        lexicon = Lexicon.read(lexicon, names, skip_unspellable=True)
    elif not isinstance(lexicon, Lexicon):
        lexicon = Lexicon(lexicon, names)
    return pronunciations(lexicon)


def by_input(heard: Iterable[Sequence[Heard]], count: int) -> list[list[Heard]]:
    """The parts of each input in their order."""
    found: list[list[Heard]] = [[] for _ in range(count)]
    for parts in heard:
        for part in parts:
            found[part.number].append(part)
    return found


@dataclass(frozen=True)
class Posteriors:
    """The network's output for a whole input, (T, V), and where each frame begins and ends."""

    log_probs: LogProbs
    starts: Sequence[float]
    ends: Sequence[float]
    unit: str
    end: float  # of the input


def posteriors_of(reader: InputReader, given: Any, parts: Sequence[Heard]) -> Posteriors:
    """The parts of an input, one after the other. Silent windows between them have no frames."""
    if not parts:
        raise UserError("The input is silent or empty: no text can be aligned with it.", "Give another input.")
    log_probs = np.concatenate([arrays_of(part.log_probs).host(part.log_probs) for part in parts])
    edges = [[part.moment(step) for step in range(len(part.log_probs) + 1)] for part in parts]
    starts, ends = ([time for one in edges for time in one[side]] for side in (slice(0, -1), slice(1, None)))
    end = ends[-1]
    if reader.kind == "audio":
        seconds = audio_facts(given).seconds if isinstance(given, Medium) else len(given) / reader.rate
        end = max(end, round(seconds, 3))
    return Posteriors(log_probs, starts, ends, reader.unit, end)


def aligned(heard: Posteriors, transcript: Transcript, names: Sequence[str], prior: float) -> Aligned:
    """The alignment of a transcript with an input."""
    weighed = heard.log_probs - prior * _priors(heard.log_probs) if prior else heard.log_probs
    transcript, path = _pronounced(weighed, transcript)
    labels = transcript.labels
    spans = paths.spans_of(path, len(labels))
    log_probs = heard.log_probs[np.arange(len(path)), paths.labels_of(path, labels, 0)].astype(np.float64)
    sums = np.concatenate([[0.0], np.cumsum(np.exp(log_probs))])
    found = Decoded(0.0, labels, spans)
    words = [
        (word.text, spans[first][0], spans[end - 1][1])
        for word, (first, end) in zip(transcript.words, transcript.places, strict=True)
    ]
    sure = label_confidences(words, found, heard.log_probs, 0, transcript.separator)

    def span(text: str, start: int, end: int, confidence: float) -> TimeSpan:
        return TimeSpan(text, heard.starts[start], heard.ends[end - 1], None, round(confidence, 4))

    return Aligned(
        text=" ".join(word.text for word in transcript.words),
        words=tuple(span(*word, rate) for word, rate in zip(words, sure, strict=True)),
        labels=tuple(
            span(names[label], start, end, float(sums[end] - sums[start]) / (end - start))
            for label, (start, end) in zip(labels, spans, strict=True)
            if label != transcript.separator
        ),
        unit=heard.unit,
        end=heard.end,
        score=float(log_probs.sum()),
    )


def _priors(log_probs: LogProbs) -> LogProbs:
    """The logarithm of each label's mean probability, of rare ones that of `LEAST_PRIOR`."""
    mean = np.exp(log_probs).mean(axis=0, dtype=np.float64)
    priors: LogProbs = np.log(np.maximum(mean, LEAST_PRIOR)).astype(np.float32)
    return priors


def _pronounced(log_probs: LogProbs, transcript: Transcript) -> tuple[Transcript, list[int]]:
    """The transcript with the likeliest pronunciation of each word, and its path."""
    if any(len(word.spellings) > 1 for word in transcript.words):
        score, choices = pronounce(log_probs, [word.spellings for word in transcript.words], 0)
        if math.isfinite(score):
            transcript = transcript.choosing(choices)
    return transcript, _path(log_probs, transcript.labels)


def _path(log_probs: LogProbs, labels: Sequence[int]) -> list[int]:
    """The states of the best path of the labels; an error where there is none."""
    needed = paths.frames_needed(labels)
    if needed > len(log_probs):
        raise UserError(
            f"The text needs {needed:,} frames, and the network puts out {len(log_probs):,}.",
            "Is it the text of this input?",
        )
    score, path = _best(log_probs, labels)
    if not math.isfinite(score):
        raise UserError("The network gives the text probability 0.", "Is it the text of this input?")
    return path


def _best(log_probs: LogProbs, labels: Sequence[int]) -> tuple[float, list[int]]:
    if NATIVE is None:
        return paths.align(log_probs.tolist(), labels, 0)
    return paths.align_native(log_probs, labels, 0)
