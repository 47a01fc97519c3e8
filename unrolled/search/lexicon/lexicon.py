"""Lexicons: which words there are and how they are spelt or pronounced."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unrolled.errors import UserError, note
from unrolled.kernels.native_module import NATIVE
from unrolled.search.lexicon.graph import SpellingGraph
from unrolled.search.ngram import NGram
from unrolled.text.files import utf8_lines

Spelling = str | Sequence[str]


class Lexicon:
    """Words and their spellings over a model's labels.

    `words` is a list of words, each spelt by its own letters, or gives for each word a list of spellings. A spelling is
    a text, where labels are single letters, or a list of labels. `share_ends` makes `graph` the minimal automaton
    instead of a prefix tree: it is smaller, and every search gives the same results.

    >>> labels = ["-", "a", "b", "t"]
    >>> Lexicon(["bat", "tab"], labels)
    Lexicon(2 words, 2 spellings)
    >>> Lexicon({"a": ["a"], "tabb": ["tab", ["t", "a", "b", "b"]]}, labels).spellings()
    [('a', ['a']), ('tabb', ['t', 'a', 'b']), ('tabb', ['t', 'a', 'b', 'b'])]
    """

    def __init__(
        self,
        words: Iterable[str] | Mapping[str, Sequence[Spelling]],
        labels: Sequence[str],
        *,
        skip_unspellable: bool = False,
        share_ends: bool = False,
    ) -> None:
        pairs = _pairs(words)
        self._build(((word, spelling, "") for word, spelling in pairs), labels, skip_unspellable, share_ends)

    @classmethod
    def read(
        cls, path: str | Path, labels: Sequence[str], *, skip_unspellable: bool = False, share_ends: bool = False
    ) -> Lexicon:
        """Reads a UTF-8 file with a word in each line: alone, spelt by its letters, or followed by its labels.

        `tomato t o m a t o` and `tomato T AH M EY T OW` are such lines; a word with several pronunciations has several.
        """
        lines = ((word, spelling or word, place) for word, spelling, place in lexicon_lines(path))
        return cls.spelt(lines, labels, skip_unspellable=skip_unspellable, share_ends=share_ends)

    @classmethod
    def spelt(
        cls,
        spellings: Iterable[tuple[str, Spelling, str]],
        labels: Sequence[str],
        *,
        skip_unspellable: bool = False,
        share_ends: bool = False,
    ) -> Lexicon:
        """A lexicon of words with their spellings and where each was given, for messages."""
        lexicon = cls.__new__(cls)
        lexicon._build(spellings, labels, skip_unspellable, share_ends)
        return lexicon

    def _build(
        self, spelt: Iterable[tuple[str, Spelling, str]], labels: Sequence[str], skip: bool, share_ends: bool
    ) -> None:
        self.labels, self.share_ends = list(labels), share_ends
        self._native: tuple[NGram | None, Any] | None = None
        numbers = {label: number for number, label in enumerate(self.labels)}
        if len(numbers) < len(self.labels):
            twice = next(label for label in numbers if self.labels.count(label) > 1)
            raise UserError(f"The label {twice!r} is there twice.", "Name every column of the posteriors once.")
        self.words: list[str] = []
        self._spellings: list[tuple[int, tuple[int, ...]]] = []
        known: dict[str, int] = {}
        seen: set[tuple[int, tuple[int, ...]]] = set()
        skipped = twice_given = 0
        for word, spelling, place in spelt:
            ids = [numbers.get(label, -1) for label in spelling]
            if -1 in ids or not ids:
                if not skip:
                    raise _unspellable(word, spelling, ids, place)
                skipped += 1
                continue
            if word not in known:
                known[word] = len(self.words)
                self.words.append(word)
            one = (known[word], tuple(ids))
            twice_given += one in seen
            if one not in seen:
                seen.add(one)
                self._spellings.append(one)
        if skipped:
            note(f"{skipped} words of the lexicon were left out: the model cannot spell them.")
        if twice_given:
            note(f"{twice_given} lines of the lexicon were there already, and are left out.")
        if not self._spellings:
            raise UserError("The lexicon has no words.", "Give at least one word that the labels can spell.")

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"Lexicon({len(self):,} words, {len(self._spellings):,} spellings)"

    def spellings(self) -> list[tuple[str, list[str]]]:
        """Every word with each of its spellings."""
        return [(self.words[word], [self.labels[i] for i in ids]) for word, ids in self._spellings]

    def uses(self, label: int) -> str | None:
        """A word that is spelt with a label, if there is one."""
        return next((self.words[word] for word, ids in self._spellings if label in ids), None)

    @functools.cached_property
    def graph(self) -> SpellingGraph:
        """The prefix tree of all spellings, or their minimal automaton; children in the order of their labels."""
        return SpellingGraph(list(self._by_spelling()), share_ends=self.share_ends)

    @property
    def distinct(self) -> int:
        """The number of different spellings: homophones share one."""
        return len(self._ranked)

    def words_at(self, rank: int | None) -> list[int]:
        """The words of the spelling with this number in order; of none, none."""
        return [] if rank is None else self._ranked[rank]

    @functools.cached_property
    def _ranked(self) -> list[list[int]]:
        return list(self._by_spelling().values())

    def _by_spelling(self) -> dict[tuple[int, ...], list[int]]:
        """The words of each spelling, spellings in order, words in the order they were given."""
        found: dict[tuple[int, ...], list[int]] = {}
        for word, ids in sorted(self._spellings, key=lambda one: one[1]):  # stable
            found.setdefault(ids, []).append(word)
        return found

    def native(self, lm: NGram | None) -> Any:
        """The C++ graph with the language model's word scores (native/search/dictionary_search.h); the last is kept."""
        if self._native is None or self._native[0] is not lm:
            model = None if lm is None else NATIVE.ngram_word_model(lm.native)
            self._native = (lm, NATIVE.make_dictionary(self._native_graph, model, self.words))
        return self._native[1]

    @functools.cached_property
    def _native_graph(self) -> Any:
        starts = np.cumsum([0, *(len(ids) for _, ids in self._spellings)], dtype=np.int64)
        flat = np.array([label for _, ids in self._spellings for label in ids], dtype=np.int32)
        words = np.array([word for word, _ in self._spellings], dtype=np.int32)
        return NATIVE.make_lexicon(flat.ctypes.data, starts.ctypes.data, words.ctypes.data, len(words), self.share_ends)


def _pairs(words: Iterable[str] | Mapping[str, Sequence[Spelling]]) -> Iterator[tuple[str, Spelling]]:
    if isinstance(words, str):
        raise UserError(f"The lexicon is the text {words!r}, expected a list of words.", "Lexicon.read reads a file.")
    if not isinstance(words, Mapping):
        yield from ((word, word) for word in words)
        return
    for word, spellings in words.items():
        yield from ((word, spelling) for spelling in ([spellings] if isinstance(spellings, str) else spellings))


def lexicon_lines(path: str | Path) -> Iterator[tuple[str, list[str], str]]:
    """The lines of a lexicon's file: a word, its labels where they are given, and where the line is."""
    path = Path(path)
    lines = utf8_lines(path, "Give a file with a word in each line.")
    for number, line in enumerate(lines, 1):
        word, *spelling = line.split() or [""]
        if word:
            yield word, spelling, f"{path}:{number}: "


def _unspellable(word: str, spelling: Spelling, ids: list[int], place: str) -> UserError:
    if not ids:
        return UserError(f"{place}The word {word!r} has an empty spelling.", "Every word needs a label at least.")
    label = spelling[ids.index(-1)]
    return UserError(
        f"{place}The word {word!r} is spelt with {label!r}, which is no label or token of the model.",
        "Spell it with those it has, or leave such words out with skip_unspellable (--skip-unspellable).",
    )
