"""WordList: outputs made of the words of a list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from unrolled.data.readers.text import read_text
from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_of
from unrolled.search.scorers.scorer import Scorer
from unrolled.text import Tokenizer

ROOT, LOST = 0, -1  # between words; inside a word that is not of the list


class WordList(Scorer):
    """Only words of a list: letters form words of it, or one that is being written can still become such a word.

    `pieces` is the text that each token adds; a token may be a letter, a part of a word, a word, or more, and one that
    adds nothing is never chosen. Letters are what `str.isalpha` calls so, and whatever else occurs in the words;
    everything else stands between words and is free. `ends` are the tokens that end a text: they come after whole
    words only.

    A word that was begun before, and is not one of the list, can only end.

    >>> import torch
    >>> letters = ["a", "b", " ", "<eos>"]
    >>> words = WordList(["ab", "b"], letters, ends=[3])
    >>> state = words.initial(1)
    >>> words.scores(state).tolist()
    [[True, True, True, True]]
    >>> state = words.advance(state, torch.tensor([0]))  # "a" must go on
    >>> words.scores(state).tolist()
    [[False, True, False, False]]
    """

    only_lowers = True

    def __init__(
        self,
        words: Iterable[str],
        pieces: Sequence[str],
        *,
        ends: Collection[int] = (),
        ignore_case: bool = False,
        joined: bool = True,
    ) -> None:
        self._fold: Callable[[str], str] = str.casefold if ignore_case else str
        self.pieces = [self._fold(piece) for piece in pieces]
        self.ends = frozenset(ends)
        self.joined = joined  # False: a token is a word, whatever stands next to it
        self._children: list[dict[str, int]] = [{}]
        self._final = [True]  # between words a text may end
        listed = [self._fold(word) for word in words if word]
        if not listed:
            raise UserError("The list has no words.", "Give at least one word that may be written.")
        for word in listed:
            self._insert(word)
        self._extra = {letter for word in listed for letter in word}
        self._masks: dict[int, Array] = {}
        self._check_writable(listed)

    @classmethod
    def of(cls, tokenizer: Tokenizer, words: str | Sequence[str], ends: Collection[int] = ()) -> WordList:
        """Keeps a model to the words of a file, or to those given; capitals are free.

        Tokens that are only part of a character are not written: what they will be is not known in time.
        """
        listed = read_text(words).split() if isinstance(words, str) else list(words)
        pieces = [tokenizer.piece(number, None).decode("utf-8", "replace") for number in range(len(tokenizer))]
        pieces = ["" if "\ufffd" in piece else piece for piece in pieces]
        separate = tokenizer.level in ("word", "symbols")
        return cls(listed, pieces, ends=ends, ignore_case=True, joined=not separate)

    def _insert(self, word: str) -> None:
        node = ROOT
        for letter in word:
            if letter not in self._children[node]:
                self._children[node][letter] = len(self._children)
                self._children.append({})
                self._final.append(False)
            node = self._children[node][letter]
        self._final[node] = True

    def _check_writable(self, words: Sequence[str]) -> None:
        known = {letter for piece in self.pieces for letter in piece}
        if self.joined:
            writable = any(set(word) <= known for word in words)
        else:
            ends = (self._walk(ROOT, piece) for piece in self.pieces if any(map(self._is_letter, piece)))
            writable = any(node is not None and self._final[node] for node in ends)
        if not writable:
            raise UserError(
                f"None of the {len(words)} words can be written with the model's tokens.",
                "Check the words' letters, and whether the model knows capitals."
                if self.joined
                else "The model's tokens are whole words: give some that its training texts have.",
            )

    def initial(self, rows: int) -> Array:
        return np.zeros(rows, dtype=np.int64)

    def scores(self, state: Array) -> Array:
        return arrays_of(state).moved(np.stack([self._mask(node) for node in state.tolist()]))

    def advance(self, state: Array, tokens: Array) -> Array:
        after = [self._after(node, token) for node, token in zip(state.tolist(), tokens.tolist(), strict=True)]
        return arrays_of(tokens).moved(np.array(after, dtype=np.int64))

    def _is_letter(self, letter: str) -> bool:
        return letter.isalpha() or letter in self._extra

    def _walk(self, node: int, text: str) -> int | None:
        """The node that a text leads to; None if it writes, or ends, a word outside the list."""
        for letter in text:
            if self._is_letter(letter):
                node = LOST if node == LOST else self._children[node].get(letter, LOST)
                if node == LOST:
                    return None
            elif node == LOST or self._final[node]:
                node = ROOT
            else:
                return None
        return node

    def _mask(self, node: int) -> Array:
        if node not in self._masks:
            can_end = node == LOST or self._final[node]
            allowed = []
            for token, piece in enumerate(self.pieces):
                if token in self.ends:
                    allowed.append(can_end)
                elif not self.joined:
                    end = self._walk(ROOT, piece)
                    allowed.append(bool(piece) and end is not None and self._final[end])
                else:
                    allowed.append(bool(piece) and self._walk(node, piece) is not None)
            self._masks[node] = np.array(allowed)
        return self._masks[node]

    def _after(self, node: int, token: int) -> int:
        if token in self.ends or not self.joined:
            return ROOT
        for letter in self.pieces[token]:
            if not self._is_letter(letter):
                node = ROOT
            elif node != LOST:
                node = self._children[node].get(letter, LOST)
        return node
