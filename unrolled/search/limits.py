"""Limits of an output: its length, its beginning, forbidden tokens, scorers. All token searches share them."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_of
from unrolled.search.scorers.repeats import NoRepeats
from unrolled.search.scorers.scorer import Scorer
from unrolled.search.tokens.token_model import is_whole


@dataclass(frozen=True)
class Limits:
    """Limits of outputs; `scorers` add to their scores or forbid tokens as they grow.

    In `generate` the prompt counts for `no_repeat_ngram` and `scorers`, not for the lengths.
    """

    max_tokens: int | Sequence[int] | None = None  # one number, or one for each row, end tokens counted
    end: int | None = None  # the token that ends an output; beam search needs one
    min_tokens: int = 0  # before the end token
    forbidden: Collection[int] = ()  # tokens that are never written, except in a prefix
    prefixes: Sequence[Sequence[int]] | None = None  # of each row: how its output begins
    no_repeat_ngram: int = 0  # 0: off; 3: no three tokens in a row occur twice
    scorers: Sequence[Scorer] = ()

    def __post_init__(self) -> None:
        most = self.max_tokens
        if not isinstance(most, Sequence | None) and not (is_whole(most) and most >= 1):
            raise UserError(f"max_tokens={most!r} is not a whole number from 1 up.", "Use a length in tokens.")
        for name in ("min_tokens", "no_repeat_ngram"):
            value = getattr(self, name)
            if not is_whole(value) or value < 0:
                raise UserError(f"{name}={value!r} is not a whole number from 0 up.", "Use 0 to switch it off.")

    def lengths(self, rows: int) -> list[int]:
        """The most tokens of each row."""
        most = list(self.max_tokens) if isinstance(self.max_tokens, Sequence) else [self.max_tokens] * rows
        if len(most) != rows or not all(one is not None and is_whole(one) and one >= 1 for one in most):
            raise UserError(
                f"max_tokens={self.max_tokens!r} does not give each of {rows} rows a whole number from 1 up.",
                "Use one number, or one for each row.",
            )
        if self.prefixes is not None and len(self.prefixes) != rows:
            raise UserError(
                f"{len(self.prefixes)} prefixes were given for {rows} rows.", "Give one for each; [] is none."
            )
        return [operator.index(one) for one in most if one is not None]

    def all_scorers(self, vocabulary: int) -> list[Scorer]:
        """The scorers, n-gram blocking among them."""
        return [*([NoRepeats(self.no_repeat_ngram, vocabulary)] if self.no_repeat_ngram else []), *self.scorers]

    def blocked(
        self, rows: Sequence[int], times: Sequence[int], vocabulary: int, arrays: Any, masked: Array | None
    ) -> Array:
        """True at tokens that rows may not write next after `times` tokens each: (B, V), or (1, V) for all alike.

        `arrays` makes the mask, and `masked` are the scorers' own. A prefix comes before every other limit.
        """
        blocked = arrays.zeros((1, vocabulary), "bool")
        blocked[:, list(self.forbidden)] = True
        early = [time < self.min_tokens for time in times]
        if self.end is not None and any(early):
            blocked = blocked if all(early) else arrays.cat([blocked] * len(rows), 0)
            blocked[:, self.end] |= arrays.tensor([True] if all(early) else early)
        blocked = blocked if masked is None else blocked | masked
        if self.prefixes is not None:
            begun = [self.prefixes[row][time : time + 1] for row, time in zip(rows, times, strict=True)]
            if any(begun):
                must = arrays.tensor([token[0] if token else -1 for token in begun])[:, None]
                blocked = arrays.where(must >= 0, arrays.arange(vocabulary) != must, blocked)
        return blocked

    def lifted(self, added: Array | None, rows: Sequence[int], times: Sequence[int]) -> Array | None:
        """Scores (B or 1, V) that scorers add; 0 in place of -inf for rows inside their prefix: it is written."""
        if added is None or self.prefixes is None:
            return added
        inside = [time < len(self.prefixes[row]) for row, time in zip(rows, times, strict=True)]
        if not any(inside):
            return added
        arrays = arrays_of(added)
        return arrays.masked_fill(added, arrays.tensor(inside)[:, None] & (added == -math.inf), 0.0)

    def check_ids(self, vocabulary: int, **others: int) -> None:
        """Refuses tokens outside the vocabulary, whose size is known after the model's first step."""
        named = [(name, [token]) for name, token in {**others, "end": self.end}.items() if token is not None]
        named.append(("forbidden", list(self.forbidden)))
        for name, tokens in named + [(f"prefixes[{row}]", list(one)) for row, one in enumerate(self.prefixes or ())]:
            check_tokens(name, tokens, vocabulary)


def check_tokens(name: str, tokens: Sequence[int], vocabulary: int) -> None:
    """Refuses tokens outside the vocabulary."""
    for token in tokens:
        if not is_whole(token) or not 0 <= token < vocabulary:
            raise UserError(
                f"{name} holds token {token!r}, but the model knows {vocabulary} tokens.",
                f"Use tokens from 0 to {vocabulary - 1}.",
            )
