"""Beam search in steps of fixed shapes: the results of `beam_search`, without a look at a value in any step.

Each step keeps the best continuations of each row in a history; outputs are pointers into it. When all rows are done,
the history is read back once, and the outputs are traced from their ends (`steady_outputs.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.kernels.search.cuda import engine
from unrolled.kernels.vocabulary.scores import top_scores_and
from unrolled.search.limits import Limits
from unrolled.search.scorers.ranking import LEAST_COVERED, Length, Ranking
from unrolled.search.tokens.hypotheses import BeamResult
from unrolled.search.tokens.steady import (
    AHEAD,
    GraphCache,
    LateFlag,
    Repeated,
    StateBuffers,
    SteadyModel,
    precision_of,
    rounded_up,
    shapes_of,
)
from unrolled.search.tokens.steady_outputs import History, results_of
from unrolled.search.tokens.token_model import TokenModel, TokenStep, checked_step, select

if TYPE_CHECKING:
    from unrolled.search.tokens.beam import Beam


LEAST_STEPS = 16  # in the history: there is room for the steps before a recording


@dataclass(frozen=True)
class BeamPlan:
    """Everything but the model that the steps of a search depend on."""

    beam: Beam
    rows: int  # B, inputs, with padding
    steps: int  # T, the most tokens
    start: int
    end: int
    min_tokens: int
    forbidden: tuple[int, ...]
    prefixes: bool
    attention: bool


def why_not_steady(beam: Beam, limits: Limits, tree: bool) -> str | None:
    """The reason why a search needs `beam_search`'s own steps; None: `steady_beam` can do it."""
    if limits.scorers or limits.no_repeat_ngram:
        return "scorers and n-gram blocking are functions of what was written"
    if beam.per_node is not None:
        return "per_node counts places of a lexicon"
    if tree:
        return "the tree of a search is built on the host"
    return None


@torch.no_grad()
def steady_beam(
    model: SteadyModel,
    cache: GraphCache,
    lengths: list[int],
    limits: Limits,
    start: int,
    beam: Beam,
    memory: Any,
    memory_mask: Tensor | None,
    attention: bool,
    meanwhile: Callable[[], object] | None = None,
) -> list[BeamResult] | None:
    """`beam_search` in steps of fixed shapes; see `why_not_steady`. None: the model has none for so many tokens."""
    assert limits.end is not None
    rows, device = len(lengths), model.device
    prefixes = limits.prefixes if limits.prefixes is not None and any(limits.prefixes) else None
    plan = BeamPlan(
        beam,
        rounded_up(rows),
        max(LEAST_STEPS, rounded_up(max(lengths))),
        start,
        limits.end,
        limits.min_tokens,
        tuple(sorted(set(limits.forbidden))),
        prefixes is not None,
        attention,
    )
    made = model.steady(memory, rows, beam.size, plan.steps)
    if made is None:
        return None
    steps, state = made
    fill = torch.arange(plan.rows, device=device).clamp(max=rows - 1)  # the last row again and again
    state = select(state, fill)
    key = (
        type(steps).__name__,
        getattr(steps, "visible", False),
        plan,
        shapes_of(state),
        precision_of(device),
        memory_mask is None,
    )
    mask = None if memory_mask is None or not beam.ranking.coverage else memory_mask[fill]
    with cache.borrowed(key, lambda: SteadyBeam(steps, state, plan, limits, cache, device, mask)) as search:
        limits.check_ids(search.vocabulary, start=start)
        history = search.run(state, lengths, prefixes, mask, meanwhile)
        looked = None if memory_mask is None else memory_mask.shape[1]
        return results_of(history, beam, rows, limits.end, looked)


class SteadyBeam:
    """The buffers of a search of one plan, and its step."""

    def __init__(
        self,
        model: TokenModel,
        state: Any,
        plan: BeamPlan,
        limits: Limits,
        cache: GraphCache,
        device: torch.device,
        mask: Tensor | None,
    ) -> None:
        self.model, self.plan, self.device = model, plan, device
        beam, rows = plan.beam, plan.rows
        self.buffers = StateBuffers(state, beam.size)
        self.last = self._full((rows * beam.size,), plan.start, torch.int64)
        step = checked_step(model.step(self.last, self.buffers.state), len(self.last), "step")
        self.vocabulary = step.scores.shape[-1]
        limits.check_ids(self.vocabulary, start=plan.start)
        self._check_attention(step)
        self.buffers.widen(step.state)
        self.count = min(2 * beam.size, self.vocabulary)  # continuations of one hypothesis
        self.columns = min(2 * beam.size, beam.size * self.count)  # of one row
        self._make(step)
        self.mask = None if mask is None else self._padded_mask(mask, step)
        self.step = Repeated(self._advance, self.device, cache)
        self.flag = LateFlag(self.going)
        self.step.record()

    def _full(self, shape: tuple[int, ...], value: Any, dtype: torch.dtype) -> Tensor:
        return torch.full(shape, value, dtype=dtype, device=self.device)

    def _check_attention(self, step: TokenStep) -> None:
        for wanted, what in ((self.plan.beam.ranking.coverage, "coverage"), (self.plan.attention, "attention")):
            if wanted and step.attention is None:
                raise UserError(f"This model has no attention, so there is no {what}.", f"Leave out {what}.")

    def _padded_mask(self, mask: Tensor, step: TokenStep) -> Tensor:
        assert step.attention is not None
        return torch.nn.functional.pad(mask, (0, step.attention.shape[-1] - mask.shape[1]))

    def _make(self, step: TokenStep) -> None:
        """All buffers beside the state."""
        plan, size, rows = self.plan, self.plan.beam.size, self.plan.rows
        self.time = self._full((1,), 0, torch.int64)
        self.going = self._full((1,), 1, torch.int64)
        self.active = self._full((rows,), True, torch.bool)
        self.lengths = self._full((rows,), plan.steps, torch.int64)
        self.totals = self._full((rows, size), 0.0, torch.float64)
        self.out_scores = self._full((rows, size), -math.inf, torch.float64)
        self.out_places = self._full((rows, size), -1, torch.int64)  # time · C + column of the history
        self.active_steps = self._full((rows,), 0, torch.int64)
        self.past_totals = self._full((plan.steps, rows, self.columns), 0.0, torch.float64)
        self.past_tokens = self._full((plan.steps, rows, self.columns), 0, torch.int64)
        self.past_origins = self._full((plan.steps, rows, self.columns), 0, torch.int64)
        self.past_chosen = self._full((plan.steps, rows, size), 0, torch.int64)
        self.past_ends = self._full((plan.steps, rows, size), 0.0, torch.float64)
        self.forced = self._full((plan.steps, rows), -1, torch.int64) if plan.prefixes else None
        self.masks = self._full((2, self.vocabulary), False, torch.bool)  # blocked tokens; the second while it is early
        self.masks[:, list(plan.forbidden)] = True
        self.masks[1, plan.end] = True
        self.flat = self._full((rows * size,), 0, torch.int64)  # the row that each hypothesis continues
        self.next = torch.zeros_like(self.flat)  # its next token
        self.row_starts = torch.arange(rows, device=self.device)[:, None] * size
        self.column_numbers = torch.arange(size, device=self.device)
        self.divisors = divisors(plan.beam.ranking, plan.steps + 2, self.device)
        self.past_cover = self.past_attention = self.covered = None
        if step.attention is not None and plan.beam.ranking.coverage:
            self.covered = torch.zeros_like(step.attention)
            self.past_cover = self._full((plan.steps, rows, size), 0.0, torch.float64)
        if step.attention is not None and plan.attention:
            shape = (plan.steps, *step.attention.shape)
            self.past_attention = torch.zeros(shape, dtype=step.attention.dtype, device=self.device)
        self.kernel = self._kernel()

    def _kernel(self) -> engine.BeamStep | None:
        """All of a step but the network and the state in one launch; None: it is not for this beam or device."""
        beam = self.plan.beam
        if not engine.BeamStep.fits(beam.size, self.count, self.device):
            return None
        names = (
            "forced", "divisors", "lengths", "time", "totals", "out_scores", "out_places", "active", "active_steps",
            "going", "past_totals", "past_tokens", "past_origins", "past_chosen", "past_ends", "flat",
        )  # fmt: skip
        return engine.BeamStep(
            beam.size,
            self.count,
            self.columns,
            best=beam.n_best,
            end=self.plan.end,
            enough=beam.size == 1 or beam.stop == "enough",
            margin=beam.margin,
            next=self.next,
            **{name: getattr(self, name) for name in names},
        )

    def run(
        self,
        state: Any,
        lengths: list[int],
        prefixes: Any,
        mask: Tensor | None,
        meanwhile: Callable[[], object] | None = None,
    ) -> History:
        """A whole search from the state before the first token."""
        self._begin(state, lengths, prefixes, mask)
        count, most = 0, max(lengths)
        while count < most and self.flag.read() != 0:
            self.step()
            self.flag.send()
            count += 1
            if count == AHEAD and meanwhile is not None:
                meanwhile()
        return self._history(count)

    def _begin(self, state: Any, lengths: list[int], prefixes: Any, mask: Tensor | None) -> None:
        rows, plan = len(lengths), self.plan
        self.step.begin()
        self.buffers.load(state)
        self.last.fill_(plan.start)
        self.time.zero_()
        self.going.fill_(1)
        self.totals.fill_(-math.inf)
        self.totals[:, 0] = 0.0
        self.out_scores.fill_(-math.inf)
        self.out_places.fill_(-1)
        self.active_steps.zero_()
        padded = lengths + [0] * (plan.rows - rows)
        self.lengths.copy_(torch.tensor(padded), non_blocking=True)
        self.active.copy_(self.lengths > 0)
        if self.covered is not None:
            self.covered.zero_()
        if self.mask is not None and mask is not None:
            self.mask[:, : mask.shape[1]].copy_(mask)
        if self.forced is not None:
            forced = torch.full((plan.steps, plan.rows), -1)
            for row, prefix in enumerate(prefixes):
                some = list(prefix)[: plan.steps]
                forced[: len(some), row] = torch.tensor(some, dtype=torch.int64)
            self.forced.copy_(forced)
        self.flag.begin()

    def _history(self, count: int) -> History:
        """The first steps, as they were kept, where they are."""
        size, looked = self.plan.beam.size, self.past_attention
        return History(
            self.active_steps,
            self.lengths,
            self.past_totals[:count],
            self.past_tokens[:count],
            self.past_origins[:count],
            self.past_chosen[:count],
            self.past_ends[:count],
            None if self.past_cover is None else self.past_cover[:count],
            self.out_scores,
            self.out_places,
            self.divisors,
            None if looked is None else looked.view(len(looked), -1, size, looked.shape[-1])[:count],
        )

    def _advance(self) -> None:
        """One step of all hypotheses."""
        plan, size = self.plan, self.plan.beam.size
        rows = plan.rows
        step = self.model.step(self.last, self.buffers.state)
        values, tokens, endings = self._best_tokens(step)
        cover = self._attend(step.attention)
        if self.kernel is not None:
            self.going.zero_()
            self.kernel(values, tokens, endings, cover)
            self._follow(step.state)  # which may hold the last tokens
            self.last.copy_(self.next)
            self.time += 1
            return
        totals = (self.totals[..., None] + values.view(rows, size, -1)).view(rows, -1)  # (B, W·k)
        best, places = (part[:, : self.columns] for part in totals.sort(dim=-1, descending=True, stable=True))
        origins, tokens = places // self.count, tokens.view(rows, -1).gather(1, places)  # (B, C)
        ends = tokens == plan.end
        if self.forced is not None:
            ends = ends & ~self._inside_prefix()[:, None]
        self._keep(self.past_totals, best)
        self._keep(self.past_tokens, tokens)
        self._keep(self.past_origins, origins)
        self._keep(self.past_ends, self.totals + endings.view(rows, size))
        self._finish(best[:, :size], origins[:, :size], ends[:, :size], cover)
        self._continue(step.state, best, origins, tokens, ends)
        self._close()

    def _keep(self, past: Tensor, now: Tensor) -> None:
        past.index_copy_(0, self.time, now[None])

    def _best_tokens(self, step: TokenStep) -> tuple[Tensor, Tensor, Tensor]:
        """The best next tokens of each hypothesis, (B·W, k) twice, and the log-probability of the end, (B·W,)."""
        plan = self.plan
        early = (self.time < plan.min_tokens).long()  # (1,)
        blocked = self.masks.index_select(0, early)  # (1, V)
        if self.forced is not None:
            must = self.forced.index_select(0, self.time)[0].repeat_interleave(plan.beam.size)[:, None]  # (B·W, 1)
            other = torch.arange(self.vocabulary, device=self.device) != must
            blocked = torch.where(must >= 0, other, blocked)
        return top_scores_and(plan.end, step.scores, self.count, blocked, normalised=step.normalised)

    def _inside_prefix(self) -> Tensor:
        """(B,), True for rows whose prefix goes on: an end token in it ends nothing, except as the last one allowed."""
        assert self.forced is not None
        must = self.forced.index_select(0, self.time)[0]
        return (must >= 0) & (self.time < self.lengths - 1)

    def _attend(self, attention: Tensor | None) -> Tensor | None:
        """Keep the attention of a step; the sum of log coverage of each hypothesis (B, W), where it is ranked by it."""
        if self.past_attention is not None:
            assert attention is not None
            self._keep(self.past_attention, attention)
        if self.covered is None:
            return None
        assert attention is not None
        assert self.past_cover is not None
        self.covered += attention
        logs = self.covered.double().clamp(LEAST_COVERED, 1).log().view(self.plan.rows, self.plan.beam.size, -1)
        cover: Tensor = self.plan.beam.ranking.coverage * (
            logs if self.mask is None else logs * self.mask[:, None]
        ).sum(-1)
        self._keep(self.past_cover, cover)
        return cover

    def _finish(self, best: Tensor, origins: Tensor, ends: Tensor, cover: Tensor | None) -> None:
        """The ends among the first continuations (B, W) become outputs."""
        size = self.plan.beam.size
        scores = best / self.divisors.index_select(0, self.time + 1)
        if cover is not None:
            scores = scores + cover.gather(1, origins)
        scores = torch.where(ends & self.active[:, None], scores, -math.inf)
        places = (self.time * self.columns + self.column_numbers).expand(len(scores), -1)
        both = torch.cat([self.out_scores, scores], 1)
        ranked, at = both.sort(dim=-1, descending=True, stable=True)
        self.out_scores.copy_(ranked[:, :size])
        self.out_places.copy_(torch.cat([self.out_places, places], 1).gather(1, at[:, :size]))

    def _continue(self, state: Any, best: Tensor, origins: Tensor, tokens: Tensor, ends: Tensor) -> None:
        """The best hypotheses that did not end go on."""
        beam = self.plan.beam
        going, chosen = best.masked_fill(ends, -math.inf).sort(dim=-1, descending=True, stable=True)
        going, chosen = going[:, : beam.size], chosen[:, : beam.size]
        if beam.margin is not None:
            going = going.masked_fill(going < going[:, :1] - beam.margin, -math.inf)
        self._keep(self.past_chosen, chosen)
        self.flat.copy_((self.row_starts + origins.gather(1, chosen)).view(-1))
        self.totals.copy_(going)
        self.next.copy_(tokens.gather(1, chosen).view(-1))
        self._follow(state)
        self.last.copy_(self.next)

    def _follow(self, state: Any) -> None:
        """Every hypothesis takes the state of the one that it continues."""
        self.buffers.follow(state, self.flat)
        if self.covered is not None:
            self.covered.copy_(self.covered.index_select(0, self.flat))

    def _close(self) -> None:
        """Count the step, and drop rows whose outputs cannot change any more."""
        beam = self.plan.beam
        self.active_steps += self.active
        self.time += 1
        highest = self.totals[:, 0]
        if beam.size == 1 or beam.stop == "enough":
            done = self.out_scores[:, beam.size - 1] > -math.inf
        else:
            at_most = self.divisors[self.lengths]
            at_next = self.divisors.index_select(0, self.time + 1)
            bound = highest / torch.where(highest > 0, at_next, at_most)
            done = self.out_scores[:, beam.n_best - 1] >= bound
        going_on = (highest > -math.inf) & (self.time < self.lengths) & ~done
        self.active &= going_on
        self.going.copy_(self.active.any())


def divisors(ranking: Ranking, count: int, device: torch.device) -> Tensor:
    """The divisors of outputs of 0, 1, 2, … tokens."""
    numbers = torch.arange(count, device=device)
    if ranking.length_penalty == "none":
        return torch.ones_like(numbers, dtype=torch.float64)
    found: Tensor = Length(ranking.length_penalty, ranking.alpha).divisor(numbers)
    return found
