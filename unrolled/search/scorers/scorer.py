"""The contract of a scorer, and several scorers as one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from unrolled.errors import UserError
from unrolled.search.arrays import Array, arrays_of
from unrolled.search.tokens.token_model import mapped

State = Any


class Scorer:
    """Adds to the scores of hypotheses, B of them at once, beside the model. Every method has a default.

    The state is whatever the scorer remembers of each hypothesis: tensors with B rows, `Rows` of Python objects,
    None, or tuples, lists and dictionaries of these. Searches copy and drop rows of it as hypotheses fork and die, so a
    method returns a new state and never changes one.

    >>> class Alternate(Scorer):  # a token that was just written costs 2 nats
    ...     only_lowers = True
    ...     def initial(self, rows):
    ...         return torch.zeros(rows, 4)
    ...     def scores(self, state):
    ...         return state
    ...     def advance(self, state, tokens):
    ...         return -2.0 * torch.nn.functional.one_hot(tokens, 4)
    """

    only_lowers = False  # True: neither scores nor final ever add more than 0, so a search may stop early

    def initial(self, rows: int) -> State:
        """The state before the first token."""
        return None

    def scores(self, state: State) -> Array | None:
        """(B, V), or (V,) for all alike: added to the log-probability of each next token; -inf forbids it.

        A boolean tensor is a mask instead, False where a token is forbidden. None adds nothing.
        """
        return None

    def advance(self, state: State, tokens: Array) -> State:
        """The state after one more token of each hypothesis, (B,) int64. The end token comes here too."""
        return state

    def final(self, state: State, totals: Array) -> Array:
        """The scores (B,) that finished outputs are ranked by, from their `totals` (B,) float64 so far."""
        return totals

    def bound(self, state: State, totals: Array, longest: Array) -> Array:
        """An upper bound (B,) of `final` after any continuation to at most `longest` (B,) tokens."""
        return totals if self.only_lowers else arrays_of(totals).full_like(totals, math.inf)

    def attend(self, state: State, attention: Array | None) -> State:
        """The state after one more step of the model, which paid `attention` (B, S) where it has any."""
        return state

    def places(self, state: State) -> Sequence[Hashable] | None:
        """The place of each hypothesis in a lexicon, for `Beam.per_node`; None: the scorer has none."""
        return None


class Scorers:
    """Several scorers as one: scores are added up, masks combined; `final` goes through them in their order."""

    def __init__(self, scorers: Sequence[Scorer], arrays: Any) -> None:
        self.scorers, self.arrays = tuple(scorers), arrays
        for scorer in self.scorers:
            if not isinstance(scorer, Scorer):
                raise UserError(f"{scorer!r} is not a Scorer.", "Derive its class from unrolled.search.Scorer.")

    def initial(self, rows: int) -> State:
        return mapped(tuple(scorer.initial(rows) for scorer in self.scorers), self.arrays.moved)

    def next_scores(self, states: State, rows: int, vocabulary: int) -> tuple[Array | None, Array | None]:
        """Scores (B or 1, V) to add to the next tokens, and a mask, True where one is forbidden; None: nothing."""
        added = blocked = None
        for scorer, state in zip(self.scorers, states, strict=True):
            scores = scorer.scores(state)
            if scores is None:
                continue
            scores = self.arrays.moved(scores)
            scores = scores if scores.ndim == 2 else scores[None]
            if tuple(scores.shape) not in ((1, vocabulary), (rows, vocabulary)):
                raise UserError(
                    f"{type(scorer).__name__}.scores gave shape {tuple(scores.shape)} for {rows} hypotheses and "
                    f"{vocabulary} tokens.",
                    f"Return ({rows}, {vocabulary}) or ({vocabulary},).",
                )
            if str(scores.dtype).endswith("bool"):
                blocked = ~scores if blocked is None else blocked | ~scores
            else:
                added = scores if added is None else added + scores
        return added, blocked

    def advance(self, states: State, tokens: Array) -> State:
        return tuple(scorer.advance(state, tokens) for scorer, state in zip(self.scorers, states, strict=True))

    def attend(self, states: State, attention: Array | None) -> State:
        return tuple(scorer.attend(state, attention) for scorer, state in zip(self.scorers, states, strict=True))

    def final(self, states: State, totals: Array) -> Array:
        for scorer, state in zip(self.scorers, states, strict=True):
            totals = scorer.final(state, totals)
        return totals

    def places(self, states: State) -> Sequence[Hashable] | None:
        """Those of the first scorer that has any."""
        found = (scorer.places(state) for scorer, state in zip(self.scorers, states, strict=True))
        return next((places for places in found if places is not None), None)

    def bound(self, states: State, totals: Array, longest: Array) -> Array:
        """As `Scorer.bound`; -inf where there is no hypothesis."""
        bounds = totals
        for scorer, state in zip(self.scorers, states, strict=True):
            bounds = scorer.bound(state, bounds, longest)
        return self.arrays.where(totals == -math.inf, totals, bounds)
