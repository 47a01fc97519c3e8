"""Beam search: the likeliest outputs of any model with `start` and `step`, many inputs at once."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from unrolled.errors import UserError, unknown_name
from unrolled.search.arrays import Array, arrays_for
from unrolled.search.limits import Limits, check_beam, check_n_best
from unrolled.search.scorers.ranking import Ranking
from unrolled.search.scorers.scorer import Scorers
from unrolled.search.tokens.hypotheses import (
    BeamNode,
    BeamResult,
    BeamTree,
    Fate,
    Hypothesis,
    nan_scores,
    nothing_left,
)
from unrolled.search.tokens.token_model import Graph, TokenModel, TokenStep, checked_step, reorder, select

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


def beam_search(
    model: TokenModel,
    rows: int,
    limits: Limits,
    *,
    start: int,
    beam: Beam = Beam(),  # noqa: B008, it is frozen
    memory: Any = None,
    memory_mask: Array | None = None,
    attention: bool = False,
    tree: bool = False,
    graph: Graph = "auto",
    meanwhile: Callable[[], object] | None = None,
) -> list[BeamResult]:
    """The best outputs for each of `rows` inputs, found in one tensor program for all inputs and hypotheses.

    An output begins after the token `start`, which is not part of it, and ends with `limits.end`. The probability of a
    prefix counts. `memory` goes to `model.start`, one row for each input; `memory_mask` (rows, S) is True at its real
    positions, for the coverage term. Hypotheses are ordered by log-probability plus what the scorers add.

    A row's result does not depend on the rows beside it.

    On a GPU the steps of our networks run in CUDA graphs: see docs/gpu.md. `graph` "off" runs them one by one, and
    "steady" takes the same steps of fixed shapes on a CPU too. The host may call `meanwhile` while it would wait for
    the GPU.

    >>> import torch
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
    if graph != "off" and (steady := _steady(model, beam, limits, tree, graph)) is not None:
        found = steady(lengths, limits, start, beam, memory, memory_mask, attention, meanwhile)
        if found is not None:
            return found
    search = _Search(model, beam, limits, lengths, limits.end, memory_mask)

    def run() -> list[BeamResult]:
        search.begin(model.start(memory), start, attention, tree)
        while search.active:
            search.advance()
        return [search.result(row) for row in range(rows)]

    return search.arrays.without_gradients(run)()  # type: ignore[no-any-return]


def _steady(
    model: Any, beam: Beam, limits: Limits, tree: bool, graph: Graph
) -> Callable[..., list[BeamResult] | None] | None:
    """The same search in steps of fixed shapes; None: it has none for this model or these settings."""
    on_gpu = getattr(getattr(model, "device", None), "type", None) == "cuda"
    if not on_gpu and graph != "steady":
        return None
    from unrolled.search.tokens.steady import SteadyModel
    from unrolled.search.tokens.steady_beam import steady_beam, why_not_steady

    if not isinstance(model, SteadyModel) or why_not_steady(beam, limits, tree) is not None:
        return None
    cache = model.graphs
    return None if cache is None else partial(steady_beam, model, cache)


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

    totals: Array  # log-probabilities with what scorers added; -inf where there is none
    log_probs: Array  # by the model alone
    origins: Array  # the hypothesis that each continues
    tokens: Array

    def gather(self, arrays: Any, totals: Array, places: Array) -> _Candidates:
        return _Candidates(totals, *(arrays.gather(one, places) for one in self[1:]))


@dataclass
class _Live:
    """The hypotheses that are being continued: B rows still searched, W hypotheses each."""

    rows: list[int]  # the input of each row
    totals: Array  # (B, W), -inf where there is none
    log_probs: Array  # (B, W), by the model alone
    written: Array  # (B, W, T)
    state: Any  # of the model, B·W rows
    scored: Any  # states of the scorers, B·W rows
    attention: Array | None  # (B, W, T, S)
    nodes: Array | None  # (B, W), in the tree


@dataclass
class _Search:
    model: TokenModel
    beam: Beam
    limits: Limits
    lengths: list[int]
    end: int
    memory_mask: Array | None
    outputs: list[list[_Output]] = field(default_factory=list)
    trees: list[BeamTree] | None = None
    count: int = 0

    def __post_init__(self) -> None:
        self.arrays = arrays_for(self.model)

    def begin(self, state: Any, start: int, attention: bool, tree: bool) -> None:
        rows = len(self.lengths)
        self.outputs = [[] for _ in range(rows)]
        self.trees = [BeamTree() for _ in range(rows)] if tree else None
        self.keep_attention, self.start = attention, start
        arrays = self.arrays
        totals = arrays.zeros((rows, 1), "float64")
        self.live = _Live(
            list(range(rows)),
            totals,
            totals,
            arrays.zeros((rows, 1, 0), "int64"),
            state,
            None,
            None,
            arrays.zeros((rows, 1), "int64") - 1 if tree else None,
        )
        self.last = arrays.zeros((rows,), "int64") + start  # (B·W,) the tokens the model reads next
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
        ends = (candidates.tokens == self.end) & ~self.arrays.tensor(self._inside_prefix(time))[:, None]
        last = self.arrays.tensor([self.lengths[row] == time + 1 for row in live.rows])
        ranked = self.arrays.arange(ends.shape[1]) < size
        self._finish(candidates, ends & ranked, ended=True)
        if bool(last.any()):
            self._finish_last(last, candidates, self._endings(step, added, blocked))
        going_on = self.arrays.masked_fill(candidates.totals, ends, -math.inf)
        self._continue(step.state, candidates._replace(totals=going_on))
        self._drop_done()

    def _prepare(self, rows: int, vocabulary: int) -> None:
        self.limits.check_ids(vocabulary, start=self.start)
        ranking = self.beam.ranking.scorers(self.memory_mask)
        self.scorers = Scorers([*self.limits.all_scorers(vocabulary), *ranking], self.arrays)
        self.live.scored = self.scorers.initial(rows)

    def _attend(self, attention: Array | None, rows: int, width: int) -> None:
        """Gives a step's attention to the scorers, and keeps it where it was asked for."""
        live = self.live
        live.scored = self.scorers.attend(live.scored, attention)
        if not self.keep_attention:
            return
        if attention is None:
            raise UserError("This model has no attention, so there is no attention.", "Leave out attention.")
        now = attention.reshape(rows, width, 1, -1)
        live.attention = now if live.attention is None else self.arrays.cat([live.attention, now], 2)

    def _next_scores(self, vocabulary: int, time: int) -> tuple[Array | None, Array]:
        """Scores that scorers add to the next tokens, and a mask, True where forbidden: (B·W or 1, V) each."""
        rows = [row for row in self.live.rows for _ in range(self.live.totals.shape[1])]
        added, masked = self.scorers.next_scores(self.live.scored, len(rows), vocabulary)
        added = self.limits.lifted(added, rows, [time] * len(rows))
        return added, self.limits.blocked(rows, [time] * len(rows), vocabulary, self.arrays, masked)

    def _inside_prefix(self, time: int) -> list[bool]:
        """True for rows whose prefix goes on: an end token in it ends nothing, except as the last one allowed."""
        prefixes = self.limits.prefixes or [()] * len(self.lengths)
        return [time < min(len(prefixes[row]), self.lengths[row] - 1) for row in self.live.rows]

    def _candidates(self, step: TokenStep, added: Array | None, blocked: Array) -> _Candidates:
        """The best continuations of each row, the best first."""
        live, most, arrays = self.live, 2 * self.beam.size, self.arrays
        rows, width = live.totals.shape
        count = min(most, step.scores.shape[-1])
        if added is None:
            scores = arrays.float(step.scores)
            values, tokens = arrays.top_scores(scores, count, blocked, normalised=step.normalised)
            own = values
        else:
            log_probs = arrays.float(step.log_probs)
            values, tokens = arrays.top_scores(log_probs + arrays.float(added), count, blocked)
            own = arrays.gather(log_probs, tokens)
        self._check_choice(step.scores, values)
        shape = (rows, width, count)
        totals = (live.totals[..., None] + arrays.double(values).reshape(shape)).reshape(rows, -1)  # (B, W·k)
        log_probs = (live.log_probs[..., None] + arrays.double(own).reshape(shape)).reshape(rows, -1)
        best, places = arrays.first(totals, min(most, totals.shape[1]))  # (B, C)
        origins = arrays.expand(arrays.repeat(arrays.arange(width), count), totals.shape)
        found = _Candidates(totals, log_probs, origins, tokens.reshape(totals.shape))
        return found.gather(arrays, best, places)

    def _endings(self, step: TokenStep, added: Array | None, blocked: Array) -> _Candidates:
        """Every hypothesis with the end as its next token."""
        live, arrays, shape = self.live, self.arrays, self.live.totals.shape
        own = arrays.double(step.log_probs[:, self.end])
        values = own if added is None else own + arrays.double(added[:, self.end])
        values = arrays.where(blocked[:, self.end], -math.inf, values).reshape(shape)
        origins = arrays.expand(arrays.arange(shape[1]), shape)
        return _Candidates(
            live.totals + values, live.log_probs + own.reshape(shape), origins, arrays.full_like(origins, self.end)
        )

    def _finish(self, candidates: _Candidates, chosen: Array, *, ended: bool) -> None:
        """The chosen continuations (B, C) become outputs, ended or cut."""
        chosen = chosen & (candidates.totals > -math.inf)
        if not bool(chosen.any()):
            return
        totals, log_probs, origins, tokens = (one[chosen] for one in candidates)
        rows = self.arrays.rows_of(chosen)
        states = select(self.live.scored, rows * self.live.totals.shape[1] + origins)
        scores = self.scorers.final(self.scorers.advance(states, tokens), totals)
        columns = (one.tolist() for one in (rows, origins, tokens, log_probs, scores))
        for row, origin, token, log_prob, score in zip(*columns, strict=True):
            self._keep(row, origin, token, Hypothesis([], log_prob, score, ended))

    def _finish_last(self, last: Array, candidates: _Candidates, endings: _Candidates) -> None:
        """The rows at their limit: every hypothesis may still end, though others rank before it; the best are cut."""
        size = self.beam.size
        ends, last = candidates.tokens == self.end, last[:, None]
        self._finish(candidates, ~ends & last, ended=False)
        if size == 1:
            return  # greedy search ends only where the end is likeliest
        done = self.arrays.counted(candidates.origins[:, :size], ends[:, :size], endings.origins.shape[1])
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
            attention=None if live.attention is None else self.arrays.copy(live.attention[i, origin]),
        )
        heapq.heappush(outputs, output)
        if len(outputs) > self.beam.size:
            heapq.heappop(outputs)

    def _continue(self, state: Any, candidates: _Candidates) -> None:
        """The `size` likeliest hypotheses that did not end go on; one while all are in a prefix: there is one way."""
        live, arrays = self.live, self.arrays
        rows, width = live.totals.shape
        totals = candidates.totals if self.beam.per_node is None else self._thinned(candidates, self.beam.per_node)
        size = 1 if all(self._inside_prefix(live.written.shape[-1])) else self.beam.size
        best, places = arrays.first(totals, min(size, totals.shape[1]))  # (B, W')
        if self.beam.margin is not None:
            best = arrays.masked_fill(best, best < best[:, :1] - self.beam.margin, -math.inf)
        best, log_probs, origins, tokens = candidates.gather(arrays, best, places)
        flat = (arrays.arange(rows)[:, None] * width + origins).reshape(-1)  # (B·W',)
        live.state = reorder(state, flat)
        live.scored = self.scorers.advance(reorder(live.scored, flat), tokens.reshape(-1))
        if live.attention is not None:
            looked = live.attention.shape[2:]
            live.attention = live.attention.reshape(-1, *looked)[flat].reshape(*best.shape, *looked)
        time = live.written.shape[-1]
        written = live.written.reshape(rows * width, time)[flat].reshape(*best.shape, time)
        live.written = arrays.cat([written, tokens[..., None]], -1)
        live.totals, live.log_probs, self.last = best, log_probs, tokens.reshape(-1)
        if live.nodes is not None:
            reached = arrays.masked_fill(log_probs, best == -math.inf, -math.inf)
            live.nodes = self._nodes(origins.tolist(), tokens.tolist(), reached.tolist())

    def _thinned(self, candidates: _Candidates, most: int) -> Array:
        """The totals (B, C), -inf where `most` better ones of the row stand at the same place of the lexicon."""
        rows = self.arrays.arange(len(candidates.totals))[:, None] * self.live.totals.shape[1]
        states = select(self.live.scored, (rows + candidates.origins).reshape(-1))
        places = self.scorers.places(self.scorers.advance(states, candidates.tokens.reshape(-1)))
        if places is None:
            raise UserError("per_node is for places of a lexicon, and there is none.", "Give a DictionaryScorer.")
        kept = self.arrays.copy(candidates.totals)
        for row, totals in enumerate(candidates.totals.tolist()):  # the best first
            counts: Counter[Any] = Counter()
            for i, total in enumerate(totals):
                place = places[row * len(totals) + i]
                counts[place] += total > -math.inf
                if counts[place] > most:
                    kept[row, i] = -math.inf
        return kept

    def _nodes(self, origins: list[list[int]], tokens: list[list[int]], totals: list[list[float]]) -> Array:
        made = []
        for i, row in enumerate(zip(origins, tokens, totals, strict=True)):
            choices = zip(*row, strict=True)
            made.append([self._node(i, o, t, p, "continued") if p > -math.inf else -1 for o, t, p in choices])
        return self.arrays.tensor(made)

    def _node(self, i: int, origin: int, token: int, log_prob: float, fate: Fate) -> int:
        assert self.trees is not None
        assert self.live.nodes is not None
        return self.trees[self.live.rows[i]].add(BeamNode(int(self.live.nodes[i, origin]), token, log_prob, fate))

    def _drop_done(self) -> None:
        """Drops rows whose outputs cannot change any more."""
        live, arrays = self.live, self.arrays
        time, width = live.written.shape[-1], live.totals.shape[1]
        longest = arrays.repeat(arrays.tensor([self.lengths[row] for row in live.rows]), width)
        highest = self.scorers.bound(live.scored, live.totals.reshape(-1), longest)
        bounds = arrays.amax(highest.reshape(live.totals.shape)).tolist()
        going = [i for i, row in enumerate(live.rows) if time < self.lengths[row] and not self._done(row, bounds[i])]
        if len(going) == len(live.rows):
            return
        self.active = bool(going)
        if not going:
            return
        kept = arrays.tensor(going)
        flat = (kept[:, None] * width + arrays.arange(width)).reshape(-1)
        live.rows = [live.rows[i] for i in going]
        live.totals, live.log_probs, live.written, live.attention, live.nodes = select(
            (live.totals, live.log_probs, live.written, live.attention, live.nodes), kept
        )
        live.state, live.scored, self.last = select((live.state, live.scored, self.last), flat, kept)

    def _done(self, row: int, bound: float) -> bool:
        ended = sorted((o.hypothesis.score for o in self.outputs[row] if o.hypothesis.ended), reverse=True)
        if bound == -math.inf:
            return True
        if self.beam.size == 1 or self.beam.stop == "enough":
            return len(ended) >= self.beam.size
        return len(ended) >= self.beam.n_best and ended[self.beam.n_best - 1] >= bound

    def _check_choice(self, scores: Array, values: Array) -> None:
        """Every row must have a hypothesis that can go on; `values` (B·W, k) are the best that may follow."""
        live = self.live
        arrays = self.arrays
        best = arrays.double(values[:, 0]).reshape(live.totals.shape) + live.totals
        broken = ~(arrays.amax(best) > -math.inf)
        if not bool(broken.any()):
            return
        rows = [live.rows[i] for i, found in enumerate(broken.tolist()) if found]
        token = live.written.shape[-1] + 1
        if bool(arrays.isnan(scores).any()):
            raise nan_scores(token, rows[0])
        for row in rows:
            if not self.outputs[row]:  # the outputs of others stay; these rows are done after this step
                raise nothing_left(token, row)
