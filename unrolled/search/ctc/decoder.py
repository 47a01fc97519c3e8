"""Decoder: from posteriors to sentences, whole, in batches, or as they come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UnknownOption, UserError
from unrolled.kernels.native_module import NATIVE, threads
from unrolled.search.ctc.blanks import NO_BLANK, chosen_blank
from unrolled.search.ctc.confidence import with_confidences
from unrolled.search.ctc.decoded import Decoded, Word
from unrolled.search.ctc.dictionary_search import UNKNOWN, DictionarySearch, WordPath
from unrolled.search.ctc.hotwords import HOTWORD_WEIGHT, HotwordStates, PhraseLabels
from unrolled.search.ctc.label_scores import LabelScores
from unrolled.search.ctc.label_text import are_symbols, label_text, words_between
from unrolled.search.ctc.posteriors import as_log_probs
from unrolled.search.ctc.prefix_beam import check_blank, choose_backend, prefix_search
from unrolled.search.lexicon import Lexicon, WordModel
from unrolled.search.limits import SearchOptions, check_beam, margin_for
from unrolled.search.ngram import NGram
from unrolled.search.scorers.scorer import Scorer

OPTIONS = [option.name for option in fields(SearchOptions)]


class Decoder:
    """Reads CTC posteriors with a lexicon and a language model, or, without a lexicon, label by label.

    - `labels`: the name of each column of the posteriors.
    - `lexicon`: the words there are; none: prefix beam search over the labels.
    - `lm`: a language model of words, which needs a lexicon: an n-gram, or a `WordModel` written in Python.
    - `blank`: a column, by number or by name; none: the label named as one (`<blank>`, `[PAD]`, `_`, …), otherwise the
      first. "none": the posteriors have no blank, such as those of a classifier of frames. Then every frame belongs to
      a label, and equal labels may follow each other.
    - `separator`: a column, too. With one, words have one between them, and may have more of them there and at both
      ends.
    - `scorers`: add to the scores of labels (docs/scorers.md), in the Python search.
    - `symbols`: labels are written with spaces between; none: if they have several letters, as phones have.
    - `hotwords`: phrases to prefer: a file, a list, or a mapping to weights. Each adds `hotword_weight` nats for each
      of its labels.
    - the rest: see `SearchOptions`.

    >>> frames = np.array([[0.1, 0.5, 0.4], [0.8, 0.1, 0.1], [0.2, 0.2, 0.6]])  # reads "ab"
    >>> decoder = Decoder(["-", "a", "b"], ["ba", "bb"])
    >>> decoder.decode(frames, kind="probs")[0].words
    [Word(text='bb', start=0, end=3, known=True, confidence=None)]
    """

    def __init__(
        self,
        labels: Sequence[str],
        lexicon: Lexicon | Iterable[str] | None = None,
        lm: WordModel | None = None,
        *,
        blank: int | str | None = None,
        separator: int | str | None = None,
        backend: str = "auto",
        scorers: Sequence[Scorer] = (),
        symbols: bool | None = None,
        hotwords: Any = None,
        hotword_weight: float = HOTWORD_WEIGHT,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in OPTIONS:
                raise UnknownOption("Decoder", name, OPTIONS)
        self.labels = list(labels)
        self.options = SearchOptions(**options)
        self.scorers, self.backend = tuple(scorers), choose_backend(backend, scorers, lm)
        self.doubles = blank == NO_BLANK and NO_BLANK not in self.labels
        self.blank = self._blank(blank)
        self.separator = None if separator is None else self._column("separator", separator)
        self.symbols = are_symbols(self.labels, self.blank) if symbols is None else symbols
        self.lm = lm
        self.lexicon = None if lexicon is None else self._checked_lexicon(lexicon)
        spelt = PhraseLabels(self.labels, self.symbols, self.separator, self.lexicon, len(self.labels) + self.doubles)
        self.hotwords = None if hotwords is None else spelt.hotwords(hotwords, hotword_weight)
        if lm is not None and self.lexicon is None:
            raise UserError("A language model of words needs a lexicon.", "Give the words there are.")
        if isinstance(lm, NGram) and self.backend == "native" and lm.native is None:
            raise UserError(
                "The language model runs on the reference engine, the search on the native one.",
                "Load it with backend='native', or use backend='reference' for both.",
            )

    def _blank(self, given: int | str | None) -> int:
        """The blank's column; without one, a column that `_frames` adds."""
        if self.doubles:
            return len(self.labels)
        return chosen_blank(self.labels) if given is None else self._column("blank", given)

    def _frames(self, posteriors: Any, kind: str, name: str = "posteriors") -> NDArray[np.float32]:
        """Log-probabilities (T, V); without a blank (T, V + 1), with one that never occurs."""
        frames = as_log_probs(posteriors, kind, len(self.labels), name)
        return np.pad(frames, ((0, 0), (0, 1)), constant_values=-np.inf) if self.doubles else frames

    def _column(self, name: str, given: int | str) -> int:
        if isinstance(given, str):
            if given not in self.labels:
                raise UserError(f"The {name} {given!r} is none of the labels.", f"Labels: {' '.join(self.labels)}")
            return self.labels.index(given)
        check_blank(given, len(self.labels))
        return given

    def _checked_lexicon(self, given: Lexicon | Iterable[str]) -> Lexicon:
        lexicon = given if isinstance(given, Lexicon) else Lexicon(given, self.labels)
        if lexicon.labels != self.labels:
            raise UserError("The lexicon was made for other labels.", "Make it with those of the decoder.")
        for name, column in (("blank", self.blank), ("separator", self.separator)):
            word = None if column is None or column == len(self.labels) else lexicon.uses(column)
            if word is not None and column is not None:
                raise UserError(
                    f"The word {word!r} is spelt with the {name} {self.labels[column]!r}.",
                    f"Leave the {name} out of spellings.",
                )
        return lexicon

    def decode(
        self,
        posteriors: Any,
        n_best: int = 1,
        *,
        lexicon: Lexicon | Iterable[str] | None = None,
        kind: str = "log_probs",
        confidence: bool = False,
    ) -> list[Decoded]:
        """The `n_best` readings of (T, V) posteriors, best first; `lexicon` takes the place of the decoder's own.

        `kind` says what the posteriors are: "log_probs", "probs" or "logits". With `confidence` every word has one:
        see `word_confidences`.
        """
        return self.decode_batch([posteriors], n_best, lexicon=lexicon, kind=kind, confidence=confidence)[0]

    def decode_batch(
        self,
        posteriors: Any,
        n_best: int = 1,
        *,
        lengths: Sequence[int] | Any | None = None,
        lexicon: Lexicon | Iterable[str] | None = None,
        kind: str = "log_probs",
        confidence: bool = False,
    ) -> list[list[Decoded]]:
        """The same for many, on all cores: a list of matrices, or (B, T, V) and lengths."""
        rows = (
            [row[: int(length)] for row, length in zip(posteriors, lengths, strict=True)]
            if lengths is not None
            else posteriors
        )
        frames = [
            self._frames(row, kind, "posteriors" if len(rows) == 1 else f"posteriors[{i}]")
            for i, row in enumerate(rows)
        ]
        check_beam(self.options.margin, beam=self.options.beam, n_best=n_best)
        chosen = self.lexicon if lexicon is None else self._checked_lexicon(lexicon)
        if chosen is None:
            with ThreadPoolExecutor(threads()) as pool:  # the search itself runs without the GIL
                spelt = list(pool.map(lambda one: self._spell(one, n_best), frames))
            return self._rated(spelt, frames) if confidence else spelt
        streams = [DecoderStream(self, chosen, n_best) for _ in frames]
        if self.backend == "native":
            places = [(one.ctypes.data, *one.shape) for one in frames]
            NATIVE.feed_all([stream.search for stream in streams], places, threads())
        else:
            for stream, one in zip(streams, frames, strict=True):
                stream.search.feed(one.tolist())
        found = [stream.best(n_best) for stream in streams]
        return self._rated(found, frames) if confidence else found

    def _rated(self, found: Sequence[Sequence[Decoded]], frames: Sequence[NDArray[np.float32]]) -> list[list[Decoded]]:
        return [
            [with_confidences(one, log_probs, self.blank, self.separator, self.doubles) for one in readings]
            for readings, log_probs in zip(found, frames, strict=True)
        ]

    def stream(self, *, n_best: int = 1, lexicon: Lexicon | Iterable[str] | None = None) -> DecoderStream:
        """A search that is fed frames as they come; how they are cut changes nothing."""
        chosen = self.lexicon if lexicon is None else self._checked_lexicon(lexicon)
        if chosen is None:
            raise UserError("A stream needs a lexicon.", "Give the decoder one, or decode whole matrices.")
        return DecoderStream(self, chosen, n_best)

    def _spell(self, log_probs: NDArray[np.float32], n_best: int) -> list[Decoded]:
        """Without a lexicon: labels, and the words that separators leave between them."""
        options = self.options
        found = prefix_search(
            log_probs,
            options.beam,
            blank=self.blank,
            merge=options.merge,
            margin=options.margin,
            n_best=n_best,
            backend=self.backend,
            scorers=self.scorers,
            hotwords=self.hotwords,
        )
        return [replace(one, words=words_between(one, self.labels, self.separator, self.symbols)) for one in found]


class DecoderStream:
    """A search under way. `feed` it log-probabilities, ask for the `best` at any time."""

    def __init__(self, decoder: Decoder, lexicon: Lexicon, n_best: int = 1) -> None:
        self._decoder, self._lexicon = decoder, lexicon
        self._frames = 0
        recombine = decoder.options.recombines(n_best)
        margin = margin_for(decoder.options.margin, n_best, decoder.options.usual_margin)
        self.search: Any
        if decoder.backend == "native":
            self.search = _native_search(decoder, lexicon, recombine, margin)
        else:
            extra: LabelScores | HotwordStates | None = None
            hot = () if decoder.hotwords is None else (decoder.hotwords,)
            if decoder.scorers:
                extra = LabelScores((*decoder.scorers, *hot), len(decoder.labels))
            elif hot:
                extra = HotwordStates(*hot)
            self.search = DictionarySearch(
                lexicon,
                decoder.lm,
                decoder.options,
                decoder.blank,
                decoder.separator,
                recombine,
                margin,
                extra,
                decoder.doubles,
            )

    def feed(self, posteriors: Any, kind: str = "log_probs") -> None:
        """Reads some more frames, (T, V)."""
        frames = self._decoder._frames(posteriors, kind)
        if self._decoder.backend == "native":
            self.search.feed(frames.ctypes.data, *frames.shape)
        else:
            self.search.feed(frames.tolist())

    def best(self, n_best: int = 1) -> list[Decoded]:
        """The best readings of what was fed, as if it had ended."""
        return [self._hypothesis(WordPath(*one)) for one in self.search.best(n_best)]

    def _hypothesis(self, found: WordPath) -> Decoded:
        spans = list(zip(found.starts, found.ends, strict=True))
        words = []
        first = 0
        for number, end in zip(found.words, found.word_ends, strict=True):
            known = number != UNKNOWN
            labels = self._decoder.labels
            spelt = (labels[i] for i in found.labels[first:end])
            text = self._lexicon.words[number] if known else label_text(spelt, self._decoder.symbols)
            words.append(Word(text, found.starts[first], found.ends[end - 1], known))
            first = end
        return Decoded(found.score, found.labels, spans, words, found.complete)


def _native_search(decoder: Decoder, lexicon: Lexicon, recombine: bool, margin: float) -> Any:
    given, options = decoder.options, NATIVE.DictionaryOptions()
    options.labels, options.blank = len(decoder.labels) + decoder.doubles, decoder.blank
    options.doubles = decoder.doubles
    options.separator = -1 if decoder.separator is None else decoder.separator
    options.beam, options.per_node, options.margin = given.beam, given.per_node or 0, margin
    options.sum, options.recombine, options.look_ahead = given.merge == "sum", recombine, given.look_ahead
    options.lm_weight, options.word_bonus = given.lm_weight, given.word_bonus
    options.unknown_penalty = -math.inf if given.unknown_penalty is None else given.unknown_penalty
    hot = None if decoder.hotwords is None else decoder.hotwords.native
    return NATIVE.DictionarySearch(lexicon.native(cast(NGram | None, decoder.lm)), options, hot)


def decode(
    posteriors: Any,
    labels: Sequence[str],
    lexicon: Lexicon | Iterable[str] | None = None,
    lm: WordModel | None = None,
    *,
    n_best: int = 1,
    kind: str = "log_probs",
    **options: Any,
) -> list[Decoded]:
    """The best readings of (T, V) posteriors: `Decoder(labels, lexicon, lm, **options).decode(posteriors)`.

    >>> frames = np.array([[0.1, 0.5, 0.4], [0.8, 0.1, 0.1], [0.2, 0.2, 0.6]])
    >>> decode(frames, ["-", "a", "b"], kind="probs")[0].text
    'ab'
    """
    return Decoder(labels, lexicon, lm, **options).decode(posteriors, n_best, kind=kind)
