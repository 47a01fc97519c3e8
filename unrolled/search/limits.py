"""Limits of all searches: of an output of tokens, of a search over frames, and the checks of a beam that both share."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from unrolled.errors import UserError, unknown_name
from unrolled.search.arrays import Array, arrays_of
from unrolled.search.lexicon.weights import WordWeights
from unrolled.search.scorers.repeats import NoRepeats
from unrolled.search.scorers.scorer import Scorer
from unrolled.search.tokens.token_model import is_whole

MERGES = ("sum", "max")
USUAL_MARGIN = 10.0  # nats; docs/decode.md has what it costs on real posteriors: nothing
CLOSED_MARGIN, OPEN_MARGIN = 30.0, 10.0  # nats


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


@dataclass(frozen=True)
class SearchOptions(WordWeights):
    """Scores are natural logarithms; a sentence's is

    log p(frames | labels) + lm_weight · log p(words) + word_bonus · number of words
    + unknown_penalty · number of words that are not in the lexicon
    """

    beam: int = 100  # most hypotheses after each frame
    per_node: int | None = None  # most of them at one place of the tree
    margin: float | None = None  # most nats below the best; none: see `usual_margin`, and inf for n-best lists
    merge: str = "max"  # of paths that come together the best counts, or their "sum"
    recombine: bool | None = None  # whether histories the model cannot tell apart come together; none: for 1-best only

    def __post_init__(self) -> None:
        check_beam(self.margin, per_node=self.per_node, beam=self.beam)
        if self.merge not in MERGES:
            raise unknown_name("merge", self.merge, MERGES)
        super().__post_init__()

    @property
    def usual_margin(self) -> float:
        """The margin for the best reading with a lexicon: as much as one word can add or cost at once.

        Where there are no words but those of the lexicon, a word that is missing has to be read as another, which is
        far below the best for a while. docs/decode.md has what it costs.
        """
        least = CLOSED_MARGIN if self.unknown_penalty is None else OPEN_MARGIN
        return least * max(1.0, self.lm_weight) + abs(self.word_bonus) + abs(self.unknown_penalty or 0.0)

    def recombines(self, n_best: int) -> bool:
        return n_best == 1 and self.merge == "max" if self.recombine is None else self.recombine


def margin_for(margin: float | None, n_best: int, usual: float = USUAL_MARGIN) -> float:
    """The margin of a search over frames for `n_best` readings: the given one, or the default.

    An n-best list has none by default: what is far below the best belongs to it, too.

    >>> margin_for(None, 1), margin_for(None, 5), margin_for(3.0, 5)
    (10.0, inf, 3.0)
    """
    if margin is not None:
        return margin
    return usual if n_best == 1 else math.inf


def check_beam(margin: float | None, *, per_node: int | None = None, **counts: int) -> None:
    """Refuses limits of a beam that no search has; `counts` are its size and others, as the search calls them."""
    for name, value in counts.items():
        if not is_whole(value) or value < 1:
            raise UserError(f"{name}={value!r} is not a whole number from 1 up.", "Use 1.")
    if per_node is not None and (not is_whole(per_node) or per_node < 1):
        raise UserError(f"per_node={per_node!r} is not a whole number from 1 up.", "Use None for no limit.")
    if margin is not None and not margin >= 0:
        raise UserError(f"margin={margin!r} is not a number from 0 up.", "Use math.inf for no limit.")


def check_n_best(n_best: int, size: int) -> None:
    """Refuses to give more outputs than the search keeps."""
    if n_best > size:
        raise UserError(f"n_best={n_best} is more than the beam's size={size}.", f"Use a beam of {n_best}.")


def check_tokens(name: str, tokens: Sequence[int], vocabulary: int) -> None:
    """Refuses tokens outside the vocabulary."""
    for token in tokens:
        if not is_whole(token) or not 0 <= token < vocabulary:
            raise UserError(
                f"{name} holds token {token!r}, but the model knows {vocabulary} tokens.",
                f"Use tokens from 0 to {vocabulary - 1}.",
            )
