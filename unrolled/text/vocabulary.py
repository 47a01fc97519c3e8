"""Tokens and their ids: an ordered list of strings, special tokens first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError

UNK = "<unk>"
# A letter or digit between the angles: byte-level BPE never joins letters and signs, so no token of it is equal.
_SPECIAL = re.compile(r"<[A-Za-z0-9][A-Za-z0-9_-]*>")
_Kind = TypeVar("_Kind")


class Vocabulary:
    """Token strings ↔ ids. Ids are positions: first the special tokens, then the others in their order.

    `<unk>`, where there is one, has id 0 and stands for every string that is not in the list. The other special
    tokens (`<pad>`, `<bos>`, …) are for the program: no text maps to them, not even a literal `<pad>`.

    >>> words = Vocabulary(["the", "cat"], specials=["<unk>", "<pad>"])
    >>> words.ids(["the", "dog", "<pad>"])
    array([2, 0, 0], dtype=int32)
    >>> words.id("<pad>"), words[3]
    (1, 'cat')
    """

    def __init__(self, tokens: Iterable[str], specials: Sequence[str] = ()) -> None:
        check_specials(specials)
        if UNK in specials[1:]:
            raise UserError(
                f"{UNK} stands at {specials.index(UNK)} of the special tokens.", "Put it first: its id is 0."
            )
        self.specials = tuple(specials)
        self.tokens = (*self.specials, *tokens)
        self._ids = {token: number for number, token in enumerate(self.tokens)}
        if len(self._ids) < len(self.tokens):
            twice = next(token for number, token in enumerate(self.tokens) if self._ids[token] != number)
            raise UserError(f"The vocabulary holds {twice!r} twice.", "Expected every token once.")
        try:
            "".join(self.tokens).encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                "The vocabulary holds half a character, a lone surrogate.", "Expected valid text."
            ) from None
        self.unk = 0 if UNK in self.specials else None
        programs = set(self.specials) - {UNK}
        self._of_text = {token: number for token, number in self._ids.items() if token not in programs}

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        specials: Sequence[str] = (),
        min_count: int = 1,
        max_size: int | None = None,
    ) -> Vocabulary:
        """The tokens seen at least `min_count` times, the most frequent first, at most `max_size` with the specials.

        Equal counts are ordered by code point, so that the same counts always give the same ids.

        >>> Vocabulary.from_counts({"b": 2, "a": 2, "c": 3, "d": 1}, min_count=2).tokens
        ('c', 'a', 'b')
        """
        check_vocabulary_limits(min_count, max_size, at_least=len(specials) + 1)
        kept = [token for token, count in counts.items() if count >= min_count and token not in specials]
        kept.sort(key=lambda token: (-counts[token], token))
        if max_size is not None:
            kept = kept[: max_size - len(specials)]
        return cls(kept, specials)

    def extended(self, tokens: Iterable[str]) -> Vocabulary:
        """A vocabulary with the new ones of `tokens` at its end; every old token keeps its id.

        >>> Vocabulary(["a", "b"]).extended(["c", "a"]).tokens
        ('a', 'b', 'c')
        """
        new = [token for token in dict.fromkeys(tokens) if token not in self._ids]
        return Vocabulary((*self.tokens[len(self.specials) :], *new), self.specials)

    def ids(self, tokens: Iterable[str]) -> NDArray[np.int32]:
        """The ids of a text's tokens; unknown tokens get that of `<unk>`; without one they are an error."""
        if self.unk is not None:
            get = self._of_text.get
            return np.fromiter(map(get, tokens, repeat(0)), dtype=np.int32)
        try:
            return np.fromiter((self._of_text[token] for token in tokens), dtype=np.int32)
        except KeyError as error:
            problem = f"{error.args[0]!r} is not in the vocabulary, and there is no {UNK} to stand for it."
            raise UserError(problem, f"Build the vocabulary with {UNK} among its special tokens.") from None

    def id(self, token: str) -> int:
        """The id of one token, ordinary or special."""
        if token not in self._ids:
            raise UserError(f"{token!r} is not in the vocabulary of {len(self)} tokens.")
        return self._ids[token]

    def check(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The ids as a flat array, checked to be whole numbers from 0 to V − 1."""
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            problem = f"Token ids have shape {array.shape} and type {array.dtype}."
            raise UserError(problem, "Expected whole numbers in one dimension.")
        wrong = (array < 0) | (array >= len(self))
        if wrong.any():
            at = int(wrong.argmax())
            raise UserError(f"Token id {array[at]} at position {at} does not exist.", f"Expected 0 to {len(self) - 1}.")
        return array.astype(np.int64)

    def is_control(self, number: int) -> bool:
        """True for special tokens other than `<unk>`, which have no text."""
        return number < len(self.specials) and number != self.unk

    def __getitem__(self, number: int) -> str:
        if not 0 <= number < len(self):
            raise UserError(f"Token id {number} does not exist.", f"Expected 0 to {len(self) - 1}.")
        return self.tokens[number]

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.tokens == other.tokens and self.specials == other.specials

    def __hash__(self) -> int:
        return hash((self.tokens, self.specials))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, specials={list(self.specials)})"

    def to_json(self) -> dict[str, Any]:
        """Lists of strings for `from_json`.

        >>> Vocabulary(["a"], ["<unk>"]).to_json()
        {'specials': ['<unk>'], 'tokens': ['a']}
        """
        return {"specials": list(self.specials), "tokens": list(self.tokens[len(self.specials) :])}

    @classmethod
    def from_json(cls, data: object) -> Vocabulary:
        return cls(stored_strings(data, "tokens"), stored_strings(data, "specials"))


def check_specials(specials: Sequence[str]) -> None:
    """Check special tokens: `<name>`, each once, so that no character or sub-word is equal to one."""
    if isinstance(specials, str):
        raise UserError(f"specials={specials!r} is one string.", f"Expected a list: [{specials!r}].")
    for token in specials:
        if not isinstance(token, str) or not _SPECIAL.fullmatch(token):
            problem = f"{token!r} is not a special token."
            raise UserError(problem, "Expected a name of letters and digits in angles, as <eos>.")
    if len(set(specials)) < len(specials):
        raise UserError(f"The special tokens {list(specials)} repeat a token.", "Expected every token once.")


def check_vocabulary_limits(min_count: object, max_size: object, at_least: int) -> None:
    for name, value, lowest in (("min_count", min_count, 1), ("max_size", max_size, at_least)):
        if name == "max_size" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise UserError(
                f"{name}={value!r} is too small or not a number.", f"Expected a whole number from {lowest} on."
            )


def stored(data: object, key: str, kind: type[_Kind]) -> _Kind:
    """One entry of stored JSON, checked to exist and to have its type."""
    fix = "The file is damaged, or was not written by unrolled: use another copy of it, or train again."
    if not isinstance(data, dict):
        raise UserError(f"The stored tokenizer is damaged: {type(data).__name__} in place of an object.", fix)
    if key not in data:
        raise UserError(f"The stored tokenizer is damaged: {key!r} is missing.", fix)
    value = data[key]
    if not isinstance(value, kind):
        got = type(value).__name__
        raise UserError(f"The stored tokenizer is damaged: {key!r} is {got}, expected {kind.__name__}.", fix)
    return value


def stored_strings(data: object, key: str) -> list[str]:
    values: list[object] = stored(data, key, list)
    strings = [value for value in values if isinstance(value, str)]
    if len(strings) < len(values):
        raise UserError(f"The stored tokenizer is damaged: {key!r} holds other things than strings.")
    return strings
