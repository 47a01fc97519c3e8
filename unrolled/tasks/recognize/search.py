"""From posteriors to texts: which search, with what, and an answer with its times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from unrolled.errors import UserError
from unrolled.search import Lexicon, NGram, Scorer
from unrolled.search.arrays import Array
from unrolled.search.ctc import Decoded, Decoder, best_path
from unrolled.search.ctc.confidence import with_confidences
from unrolled.search.ctc.hotwords import HOTWORD_WEIGHT, read_phrases
from unrolled.search.ctc.label_text import words_between
from unrolled.search.lexicon.weights import check_used
from unrolled.tasks.recognize import options as declared
from unrolled.tasks.recognize.labels import Labels
from unrolled.tasks.shared.rescoring import RescoringOptions

USUAL_BEAM = 100


@dataclass(frozen=True)
class RecognitionOptions(RescoringOptions):
    """Values of the options of `recognize`. A lexicon or language model is a file, or already loaded."""

    beam: int | None = declared.BEAM.default  # None: 100 where a search is needed, otherwise the best path
    n_best: int = declared.N_BEST.default
    lexicon: Any = declared.LEXICON.default
    lm: Any = declared.LM.default
    lm_weight: float | None = declared.LM_WEIGHT.default
    word_bonus: float | None = declared.WORD_BONUS.default
    unknown_penalty: float | None = declared.UNKNOWN_PENALTY.default
    share_ends: bool = declared.SHARE_ENDS.default
    hotwords: Any = declared.HOTWORDS.default  # a file, a list of phrases, or a mapping of phrases to weights
    hotword_weight: float | None = declared.HOTWORD_WEIGHT.default
    merge: str | None = declared.MERGE.default  # None: max with a lexicon, sum without
    window: float | None = declared.WINDOW.default
    rate: float | None = declared.RATE.default
    scorers: tuple[Scorer, ...] = declared.SCORERS.default  # see docs/scorers.md

    def __post_init__(self) -> None:
        if self.lm is not None and self.lexicon is None:
            raise UserError("A language model of words needs a list of them.", "Give one with lexicon (--lexicon).")
        check_used(
            self.lexicon,
            self.lm,
            lm_weight=self.lm_weight,
            word_bonus=self.word_bonus,
            unknown_penalty=self.unknown_penalty,
            share_ends=self.share_ends or None,
        )
        self.check_rescoring(self.beam)
        if self.hotword_weight is not None and self.hotwords is None:
            raise UserError(
                "hotword_weight is for hotwords, and there are none.", "Give them with hotwords (--hotwords)."
            )
        if self.beam == 1 and (
            self.lexicon is not None or self.n_best > 1 or self.scorers or self.hotwords is not None
        ):
            raise UserError(
                "beam=1 is the best path, without lexicon, hotwords, scorers or n-best list.",
                "Use a beam of 2 or more.",
            )
        declared.MERGE.check(self.merge)
        if self.merge is not None and not self.searches:
            raise UserError("merge is for a search, and the best path is one path.", "Give a beam (--beam 100).")
        if self.window is not None and not self.window > 0:
            raise UserError(f"window={self.window} is not above 0.", "It is seconds, or heights of a line.")

    @property
    def searches(self) -> bool:
        """True if the options need more than the best label of each step."""
        asked = self.lexicon is not None or self.hotwords is not None or len(self.scorers) > 0
        return asked or self.n_best > 1 or (self.beam or 1) > 1


class TimeSpan(NamedTuple):
    """A word or label and where it stands, in the answer's unit."""

    text: str
    start: float
    end: float
    known: bool | None = None  # of a word: whether it is in the lexicon; none: there is no lexicon
    confidence: float | None = None  # of a word: how sure the network is of it, from 0 to 1; none: not known in streams


@dataclass(frozen=True)
class Recognized:
    """The answer to an input: the text, its score (a natural logarithm), and the times of its words and labels.

    `unit` is seconds, pixels of the picture, or frames. `others` are the next best readings.
    """

    text: str
    score: float
    words: tuple[TimeSpan, ...]
    labels: tuple[TimeSpan, ...]
    unit: str
    others: tuple[Recognized, ...] = ()
    complete: bool = True  # False: it ends inside a word of the lexicon, which is not among the words

    def __str__(self) -> str:
        return self.text


def loaded(options: RecognitionOptions, labels: Labels) -> RecognitionOptions:
    """The options with lexicon, language model and hotwords read from their files."""
    names, lexicon, lm = list(labels.names), options.lexicon, options.lm
    if isinstance(lexicon, str) or hasattr(lexicon, "__fspath__"):
        lexicon = Lexicon.read(lexicon, names, skip_unspellable=True, share_ends=options.share_ends)
    elif lexicon is not None and not isinstance(lexicon, Lexicon):
        lexicon = Lexicon(lexicon, names, skip_unspellable=True, share_ends=options.share_ends)
    elif lexicon is not None and options.share_ends and not lexicon.share_ends:
        lexicon = Lexicon.spelt([(word, said, "") for word, said in lexicon.spellings()], names, share_ends=True)
    if isinstance(lm, str) or hasattr(lm, "__fspath__"):
        lm = NGram.load(lm)
    hotwords = None if options.hotwords is None else read_phrases(options.hotwords)
    if hotwords is not None and labels.lowercase:
        hotwords = {phrase.lower(): weight for phrase, weight in hotwords.items()}
    return replace(options, lexicon=lexicon, lm=lm, hotwords=hotwords)


class Search:
    """One way to read posteriors: the best path, a beam over labels, or words of a lexicon."""

    def __init__(self, labels: Labels, options: RecognitionOptions) -> None:
        self.labels, self.options = labels, options
        self.decoder: Decoder | None = None
        if options.searches:
            self.decoder = self._decoder()

    def _decoder(self) -> Decoder:
        options = loaded(self.options, self.labels)
        with_words = options.lexicon is not None
        return Decoder(
            list(self.labels.names),
            options.lexicon,
            options.lm,
            blank=0,
            separator=self.labels.separator,
            beam=options.beam or USUAL_BEAM,
            lm_weight=1.0 if options.lm_weight is None else options.lm_weight,
            word_bonus=options.word_bonus or 0.0,
            scorers=options.scorers,
            symbols=self.labels.symbols,
            hotwords=options.hotwords,
            hotword_weight=HOTWORD_WEIGHT if options.hotword_weight is None else options.hotword_weight,
            merge=options.merge or ("max" if with_words else "sum"),
            unknown_penalty=options.unknown_penalty,
        )

    def __call__(self, posteriors: Sequence[Array]) -> list[list[Decoded]]:
        """The readings of each (T, V), best first."""
        if self.decoder is None:
            return [[best_path(one)] for one in posteriors]
        wanted = self.options.n_best
        # labellings that differ in blanks at the ends are one text: of these more are needed
        found = self.decoder.decode_batch(
            list(posteriors), wanted if wanted == 1 or self.options.lexicon else 2 * wanted
        )
        return [self._different(one)[:wanted] for one in found]

    def _different(self, found: Sequence[Decoded]) -> list[Decoded]:
        by_text: dict[str, Decoded] = {}
        for one in found:
            by_text.setdefault(self.text(one), one)
        return list(by_text.values())

    @property
    def reads_words(self) -> bool:
        """True if the text of a reading is words of a lexicon, not labels."""
        return self.options.lexicon is not None

    def text(self, found: Decoded) -> str:
        return found.text if self.reads_words else self.labels.text(found.labels)


class Piece(NamedTuple):
    """A reading of a part of an input, with its spans in the input's own unit."""

    text: str
    score: float
    words: list[TimeSpan]
    labels: list[TimeSpan]
    complete: bool = True


def piece_of(search: Search, found: Decoded, moment: Any, log_probs: Array | None = None) -> Piece:
    """`moment(step)` tells where a step of the network's output begins; with `log_probs` words have confidences."""
    labels = search.labels
    spans = [
        TimeSpan(labels.names[label], moment(start), moment(end))
        for label, (start, end) in zip(found.labels, found.spans, strict=True)
    ]
    separator = None if labels.separator is None else labels.names.index(labels.separator)
    words = found.words
    if search.options.lexicon is None:
        words = words_between(found, labels.names, separator, labels.symbols)
    if log_probs is not None:
        words = with_confidences(replace(found, words=words), log_probs, 0, separator).words
    told = [TimeSpan(w.text, moment(w.start), moment(w.end), w.known, w.confidence) for w in words]
    return Piece(search.text(found), found.score, told, spans, found.complete)


def joined(pieces: Sequence[Sequence[Piece]], glue: str, unit: str, n_best: int) -> Recognized:
    """The pieces of an input one after the other, each with its readings: the best together, and the next best.

    Of those that read the same the best counts: whatever follows, they go on reading the same.
    """
    readings: list[tuple[float, str, tuple[Piece, ...]]] = [(0.0, "", ())]
    for options in pieces:
        longer = [
            (score + one.score, glue.join(part for part in (text, one.text) if part), (*before, one))
            for score, text, before in readings
            for one in options
        ]
        by_text: dict[str, tuple[float, str, tuple[Piece, ...]]] = {}
        for reading in sorted(longer, key=lambda one: -one[0]):
            by_text.setdefault(reading[1], reading)
        readings = list(by_text.values())[:n_best]
    answers = [_answer(score, text, parts, unit) for score, text, parts in readings]
    return replace(answers[0], others=tuple(answers[1:]))


def _answer(score: float, text: str, parts: Sequence[Piece], unit: str) -> Recognized:
    words = tuple(word for part in parts for word in part.words)
    labels = tuple(label for part in parts for label in part.labels)
    return Recognized(text, score, words, labels, unit, complete=all(part.complete for part in parts))
