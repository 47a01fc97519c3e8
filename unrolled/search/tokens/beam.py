"""Beam search: the likeliest outputs of any model with `start` and `step`, many inputs at once."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.kernels.vocabulary.scores import top_scores
from unrolled.search.limits import Limits, check_beam, check_n_best
from unrolled.search.scorers.ranking import Ranking
from unrolled.search.scorers.scorer import Scorers
from unrolled.search.tokens.hypotheses import BeamNode, BeamResult, BeamTree, Fate, Hypothesis
from unrolled.search.tokens.token_model import TokenModel, TokenStep, checked_step, reorder, select

Stop = Literal["safe", "enough"]


@dataclass(frozen=True)
class Beam:
    """Settings of a beam search.

    `size` hypotheses are continued at every step. An output is found when its end is among the `size` likeliest of
    all continuations; outputs are ranked by `ranking`, those that ended before those that were cut at max_tokens.

    stop: "safe" goes on until no hypothesis can come to rank among the `n_best`, whatever follows: the result is that
    of a search without stopping. "enough" stops when as many outputs were found as the beam is wide, which is sooner,
    and may miss a better one. A beam of one is greedy search: it takes the likeliest token, and stops at the first end.

    `margin` makes the beam narrower where one hypothesis is clearly the best: others that are more nats below it are
    dropped. `per_node` is the most hypotheses at one place of a lexicon (see `DictionaryScorer`).
    """

    size: int = 5
    n_best: int = 1
    ranking: Ranking = field(default_factory=Ranking)
    stop: Stop = "safe"
    margin: float | None = None  # none: no limit
    per_node: int | None = None  # none: no limit

    def __post_init__(self) -> None:
        check_beam(self.margin, per_node=self.per_node, size=self.size, n_best=self.n_best)
        check_n_best(self.n_best, self.size)
        if self.stop not in get_args(Stop):
            raise unknown_name("stop", self.stop, get_args(Stop))


@torch.no_grad()
def beam_search(
    model: TokenModel,
    rows: int,
    limits: Limits,
    *,
    start: int,
    beam: Beam = Beam(),  # noqa: B008, it is frozen
    memory: Any = None,
    memory_mask: Tensor | None = None,
    attention: bool = False,
    tree: bool = False,
) -> list[BeamResult]:
    """The best outputs for each of `rows` inputs, found in one tensor program for all inputs and hypotheses.

    An output begins after the token `start`, which is not part of it, and ends with `limits.end`. The probability of a
    prefix counts. `memory` goes to `model.start`, one row for each input; `memory_mask` (rows, S) is True at its real
    positions, for the coverage term. Hypotheses are ordered by log-probability plus what the scorers add.

    A row's result does not depend on the rows beside it.

    >>> class Lazy:  # 1 or 2 after 0, then the end, 3
    ...     table = torch.tensor([[0, 0.6, 0.4, 0], [0, 0, 0.1, 0.9], [0, 0, 0, 1], [0, 0, 0, 1]]).log()
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(self.table[tokens], state)
    >>> (result,) = beam_search(Lazy(), 1, Limits(max_tokens=5, end=3), start=0, beam=Beam(2, n_best=2))
    >>> [(h.tokens, round(h.log_prob, 3)) for h in result.hypotheses]
    [([1], -0.616), ([2], -0.916)]
    """
    lengths = limits.lengths(rows)
    if limits.end is None:
        raise UserError("A beam search needs an end token.", "Give one: Limits(end=...).")
    if rows == 0:
        return []
    search = _Search(model, beam, limits, lengths, limits.end, memory_mask)
    search.begin(model.start(memory), start, attention, tree)
    while search.active:
        search.advance()
    return [search.result(row) for row in range(rows)]


@dataclass
class _Output:
    """A finished output of one row; ordered for a heap: the worst first, cut outputs before ended ones."""

    hypothesis: Hypothesis
    number: int  # of equal scores, the one found first is better

    def __lt__(self, other: _Output) -> bool:
        mine, others = self.hypothesis, other.hypothesis
        return (mine.ended, mine.score, -self.number) < (others.ended, others.score, -other.number)


class _Candidates(NamedTuple):
    """Continuations of each row's hypotheses, (B, C) each."""

    totals: Tensor  # log-probabilities with what scorers added; -inf where there is none
    log_probs: Tensor  # by the model alone
    origins: Tensor  # the hypothesis that each continues
    tokens: Tensor

    def gather(self, totals: Tensor, places: Tensor) -> _Candidates:
        return _Candidates(totals, *(one.gather(1, places) for one in self[1:]))


@dataclass
class _Live:
    """The hypotheses that are being continued: B rows still searched, W hypotheses each."""

    rows: list[int]  # the input of each row
    totals: Tensor  # (B, W), -inf where there is none
    log_probs: Tensor  # (B, W), by the model alone
    written: Tensor  # (B, W, T)
    state: Any  # of the model, B·W rows
    scored: Any  # states of the scorers, B·W rows
    attention: Tensor | None  # (B, W, T, S)
    nodes: Tensor | None  # (B, W), in the tree


@dataclass
class _Search:
    model: TokenModel
    beam: Beam
    limits: Limits
    lengths: list[int]
    end: int
    memory_mask: Tensor | None
    outputs: list[list[_Output]] = field(default_factory=list)
    trees: list[BeamTree] | None = None
    count: int = 0

    def begin(self, state: Any, start: int, attention: bool, tree: bool) -> None:
        rows = len(self.lengths)
        self.device = torch.device(getattr(self.model, "device", "cpu"))
        self.outputs = [[] for _ in range(rows)]
        self.trees = [BeamTree() for _ in range(rows)] if tree else None
        self.keep_attention, self.start = attention, start
        totals = torch.zeros(rows, 1, dtype=torch.float64, device=self.device)
        self.live = _Live(
            list(range(rows)),
            totals,
            totals,
            torch.empty(rows, 1, 0, dtype=torch.int64, device=self.device),
            state,
            None,
            None,
            torch.full((rows, 1), -1, device=self.device) if tree else None,
        )
        self.last = torch.full((rows,), start, device=self.device)  # (B·W,) the tokens the model reads next
        self.active = True

    def result(self, row: int) -> BeamResult:
        best = sorted(self.outputs[row], reverse=True)[: self.beam.n_best]
        return BeamResult([output.hypothesis for output in best], self.trees[row] if self.trees is not None else None)

    def advance(self) -> None:
        """One step of all hypotheses: run the model, choose the best continuations, collect finished outputs."""
        live, size = self.live, self.beam.size
        rows, width = live.totals.shape
        time = live.written.shape[-1]
        step = checked_step(self.model.step(self.last, live.state), rows * width, "step")
        if time == 0:
            self._prepare(rows, step.scores.shape[-1])
        self._attend(step.attention, rows, width)
        added, blocked = self._next_scores(step.scores.shape[-1], time)
        candidates = self._candidates(step, added, blocked)
        ends = (candidates.tokens == self.end) & ~self._inside_prefix(time)[:, None]
        last = torch.tensor([self.lengths[row] == time + 1 for row in live.rows], device=self.device)
        ranked = torch.arange(ends.shape[1], device=self.device) < size
        self._finish(candidates, ends & ranked, ended=True)
        if bool(last.any()):
            self._finish_last(last, candidates, self._endings(step, added, blocked))
        self._continue(step.state, candidates._replace(totals=candidates.totals.masked_fill(ends, -torch.inf)))
        self._drop_done()

    def _prepare(self, rows: int, vocabulary: int) -> None:
        self.limits.check_ids(vocabulary, start=self.start)
        ranking = self.beam.ranking.scorers(self.memory_mask)
        self.scorers = Scorers([*self.limits.all_scorers(vocabulary), *ranking], self.device)
        self.live.scored = self.scorers.initial(rows)

    def _attend(self, attention: Tensor | None, rows: int, width: int) -> None:
        """Gives a step's attention to the scorers, and keeps it where it was asked for."""
        live = self.live
        live.scored = self.scorers.attend(live.scored, attention)
        if not self.keep_attention:
            return
        if attention is None:
            raise UserError("This model has no attention, so there is no attention.", "Leave out attention.")
        now = attention.view(rows, width, 1, -1)
        live.attention = now if live.attention is None else torch.cat([live.attention, now], dim=2)

    def _next_scores(self, vocabulary: int, time: int) -> tuple[Tensor | None, Tensor]:
        """Scores that scorers add to the next tokens, and a mask, True where forbidden: (B·W or 1, V) each."""
        rows = [row for row in self.live.rows for _ in range(self.live.totals.shape[1])]
        added, masked = self.scorers.next_scores(self.live.scored, len(rows), vocabulary)
        added = self.limits.lifted(added, rows, [time] * len(rows))
        return added, self.limits.blocked(rows, [time] * len(rows), vocabulary, self.device, masked)

    def _inside_prefix(self, time: int) -> Tensor:
        """(B,), True for rows whose prefix goes on: an end token in it ends nothing, except as the last one allowed."""
        prefixes = self.limits.prefixes or [()] * len(self.lengths)
        inside = [time < min(len(prefixes[row]), self.lengths[row] - 1) for row in self.live.rows]
        return torch.tensor(inside, device=self.device)

    def _candidates(self, step: TokenStep, added: Tensor | None, blocked: Tensor) -> _Candidates:
        """The best continuations of each row, the best first."""
        live, most = self.live, 2 * self.beam.size
        shape = (*live.totals.shape, -1)
        if added is None:
            values, tokens = top_scores(
                step.scores.float(), min(most, step.scores.shape[-1]), blocked, normalised=step.normalised
            )
            own = values
        else:
            log_probs = step.log_probs.float()
            values, tokens = top_scores(log_probs + added.float(), min(most, log_probs.shape[-1]), blocked)
            own = log_probs.gather(1, tokens)
        self._check_choice(step.scores, values)
        totals = (live.totals[..., None] + values.double().view(shape)).flatten(1)  # (B, W·k)
        log_probs = (live.log_probs[..., None] + own.double().view(shape)).flatten(1)
        best, places = totals.topk(min(most, totals.shape[1]), dim=-1)  # (B, C)
        origins = torch.arange(shape[1], device=self.device).repeat_interleave(values.shape[-1]).expand_as(totals)
        return _Candidates(totals, log_probs, origins, tokens.view_as(totals)).gather(best, places)

    def _endings(self, step: TokenStep, added: Tensor | None, blocked: Tensor) -> _Candidates:
        """Every hypothesis with the end as its next token."""
        live = self.live
        own = step.log_probs[:, self.end].double()
        values = own if added is None else own + added[:, self.end].double()
        values = torch.where(blocked[:, self.end], -torch.inf, values).view_as(live.totals)
        origins = torch.arange(live.totals.shape[1], device=self.device).expand_as(live.totals)
        return _Candidates(
            live.totals + values, live.log_probs + own.view_as(values), origins, torch.full_like(origins, self.end)
        )

    def _finish(self, candidates: _Candidates, chosen: Tensor, *, ended: bool) -> None:
        """The chosen continuations (B, C) become outputs, ended or cut."""
        chosen = chosen & (candidates.totals > -torch.inf)
        if not bool(chosen.any()):
            return
        totals, log_probs, origins, tokens = (one[chosen] for one in candidates)
        rows = chosen.nonzero()[:, 0]
        states = select(self.live.scored, rows * self.live.totals.shape[1] + origins)
        scores = self.scorers.final(self.scorers.advance(states, tokens), totals)
        columns = (one.tolist() for one in (rows, origins, tokens, log_probs, scores))
        for row, origin, token, log_prob, score in zip(*columns, strict=True):
            self._keep(row, origin, token, Hypothesis([], log_prob, score, ended))

    def _finish_last(self, last: Tensor, candidates: _Candidates, endings: _Candidates) -> None:
        """The rows at their limit: every hypothesis may still end, though others rank before it; the best are cut."""
        size = self.beam.size
        ends, last = candidates.tokens == self.end, last[:, None]
        self._finish(candidates, ~ends & last, ended=False)
        if size == 1:
            return  # greedy search ends only where the end is likeliest
        done = torch.zeros_like(endings.origins, dtype=torch.int32)
        done.scatter_add_(1, candidates.origins[:, :size], ends[:, :size].int())
        self._finish(endings, last & (done == 0), ended=True)

    def _keep(self, i: int, origin: int, token: int, hypothesis: Hypothesis) -> None:
        """Puts hypothesis `origin` of row i, finished by `token`, among the outputs."""
        live, outputs = self.live, self.outputs[self.live.rows[i]]
        if live.nodes is not None:
            self._node(i, origin, token, hypothesis.log_prob, "ended" if hypothesis.ended else "cut")
        self.count += 1
        output = _Output(hypothesis, self.count)
        if len(outputs) == self.beam.size and output < outputs[0]:
            return
        output.hypothesis = replace(
            hypothesis,
            tokens=live.written[i, origin].tolist() + ([] if hypothesis.ended else [token]),
            attention=None if live.attention is None else live.attention[i, origin].clone(),
        )
        heapq.heappush(outputs, output)
        if len(outputs) > self.beam.size:
            heapq.heappop(outputs)

    def _continue(self, state: Any, candidates: _Candidates) -> None:
        """The `size` likeliest hypotheses that did not end go on."""
        live = self.live
        rows, width = live.totals.shape
        totals = candidates.totals if self.beam.per_node is None else self._thinned(candidates, self.beam.per_node)
        best, places = totals.topk(min(self.beam.size, totals.shape[1]), dim=-1)  # (B, W')
        if self.beam.margin is not None:
            best = best.masked_fill(best < best[:, :1] - self.beam.margin, -torch.inf)
        best, log_probs, origins, tokens = candidates.gather(best, places)
        flat = (torch.arange(rows, device=self.device)[:, None] * width + origins).flatten()  # (B·W',)
        live.state = reorder(state, flat)
        live.scored = self.scorers.advance(reorder(live.scored, flat), tokens.flatten())
        if live.attention is not None:
            live.attention = live.attention.flatten(0, 1)[flat].view(*best.shape, *live.attention.shape[2:])
        live.written = torch.cat([live.written.flatten(0, 1)[flat].view(*best.shape, -1), tokens[..., None]], dim=-1)
        live.totals, live.log_probs, self.last = best, log_probs, tokens.flatten()
        if live.nodes is not None:
            reached = log_probs.where(best > -torch.inf, -torch.inf)
            live.nodes = self._nodes(origins.tolist(), tokens.tolist(), reached.tolist())

    def _thinned(self, candidates: _Candidates, most: int) -> Tensor:
        """The totals (B, C), -inf where `most` better ones of the row stand at the same place of the lexicon."""
        rows = torch.arange(len(candidates.totals), device=self.device)[:, None] * self.live.totals.shape[1]
        states = select(self.live.scored, (rows + candidates.origins).flatten())
        places = self.scorers.places(self.scorers.advance(states, candidates.tokens.flatten()))
        if places is None:
            raise UserError("per_node is for places of a lexicon, and there is none.", "Give a DictionaryScorer.")
        kept = candidates.totals.clone()
        for row, totals in enumerate(candidates.totals.tolist()):  # the best first
            counts: Counter[Any] = Counter()
            for i, total in enumerate(totals):
                place = places[row * len(totals) + i]
                counts[place] += total > -torch.inf
                if counts[place] > most:
                    kept[row, i] = -torch.inf
        return kept

    def _nodes(self, origins: list[list[int]], tokens: list[list[int]], totals: list[list[float]]) -> Tensor:
        made = []
        for i, row in enumerate(zip(origins, tokens, totals, strict=True)):
            choices = zip(*row, strict=True)
            made.append([self._node(i, o, t, p, "continued") if p > -torch.inf else -1 for o, t, p in choices])
        return torch.tensor(made, device=self.device)

    def _node(self, i: int, origin: int, token: int, log_prob: float, fate: Fate) -> int:
        assert self.trees is not None
        assert self.live.nodes is not None
        return self.trees[self.live.rows[i]].add(BeamNode(int(self.live.nodes[i, origin]), token, log_prob, fate))

    def _drop_done(self) -> None:
        """Drops rows whose outputs cannot change any more."""
        live = self.live
        time, width = live.written.shape[-1], live.totals.shape[1]
        longest = torch.tensor([self.lengths[row] for row in live.rows], device=self.device).repeat_interleave(width)
        bounds = self.scorers.bound(live.scored, live.totals.flatten(), longest).view_as(live.totals).amax(-1).tolist()
        going = [i for i, row in enumerate(live.rows) if time < self.lengths[row] and not self._done(row, bounds[i])]
        if len(going) == len(live.rows):
            return
        self.active = bool(going)
        if not going:
            return
        kept = torch.tensor(going, device=self.device)
        flat = (kept[:, None] * width + torch.arange(width, device=self.device)).flatten()
        live.rows = [live.rows[i] for i in going]
        live.totals, live.log_probs, live.written, live.attention, live.nodes = select(
            (live.totals, live.log_probs, live.written, live.attention, live.nodes), kept
        )
        live.state, live.scored, self.last = select((live.state, live.scored, self.last), flat, kept)

    def _done(self, row: int, bound: float) -> bool:
        ended = sorted((o.hypothesis.score for o in self.outputs[row] if o.hypothesis.ended), reverse=True)
        if bound == -torch.inf:
            return True
        if self.beam.size == 1 or self.beam.stop == "enough":
            return len(ended) >= self.beam.size
        return len(ended) >= self.beam.n_best and ended[self.beam.n_best - 1] >= bound

    def _check_choice(self, scores: Tensor, values: Tensor) -> None:
        """Every row must have a hypothesis that can go on; `values` (B·W, k) are the best that may follow."""
        live = self.live
        best = values[:, 0].double().view(live.totals.shape) + live.totals
        broken = ~(best.amax(-1) > -torch.inf)
        if not bool(broken.any()):
            return
        i = int(broken.int().argmax())
        where = f"for token {live.written.shape[-1] + 1} of row {live.rows[i]}"
        if bool(scores.isnan().any()):
            raise UserError(
                f"The model's log-probabilities {where} contain NaN.",
                "Its weights may not be finite: use a checkpoint from before the loss became NaN.",
            )
        if self.outputs[live.rows[i]]:
            return  # the outputs found so far stay; the row is done after this step
        raise UserError(
            f"No token is left to write {where}: all have probability 0 or are not allowed.",
            "Forbid fewer tokens, or loosen the scorers.",
        )
