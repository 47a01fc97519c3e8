"""Beam search: the likeliest outputs of any model with `start` and `step`, many inputs at once."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.kernels.vocabulary.scores import top_scores
from unrolled.search.blocking import forced, repeated_ngrams
from unrolled.search.constraints import Constraint
from unrolled.search.ranking import Ranking, unread
from unrolled.search.tokens.hypotheses import BeamNode, BeamResult, BeamTree, Fate, Hypothesis
from unrolled.search.tokens.token_model import TokenModel, checked_step, is_whole, reorder, select

Stop = Literal["safe", "enough"]


@dataclass(frozen=True)
class Beam:
    """How to search.

    `size` hypotheses are continued at every step. An output is found when its end is among the `size` likeliest of
    all continuations; outputs are ranked by `ranking`, those that ended before those that were cut at max_tokens.

    stop: "safe" goes on until no hypothesis can come to rank among the `n_best`, whatever follows: the result is that
    of a search without stopping. "enough" stops when as many outputs were found as the beam is wide, which is sooner,
    and may miss a better one. A beam of one is greedy search: it takes the likeliest token, and stops at the first end.
    """

    size: int = 5
    n_best: int = 1
    ranking: Ranking = field(default_factory=Ranking)
    stop: Stop = "safe"
    min_tokens: int = 0  # before the end token
    no_repeat_ngram: int = 0  # 0: off; 3: no three tokens in a row occur twice

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("n_best", 1), ("min_tokens", 0), ("no_repeat_ngram", 0)):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise UserError(f"{name}={value!r} is not a whole number from {least} up.", f"Use {max(1, least)}.")
        if self.n_best > self.size:
            raise UserError(
                f"n_best={self.n_best} is more than the beam's size={self.size}.", f"Use a beam of {self.n_best}."
            )
        if self.stop not in get_args(Stop):
            raise unknown_name("stop", self.stop, get_args(Stop))


@torch.no_grad()
def beam_search(
    model: TokenModel,
    rows: int,
    *,
    start: int,
    end: int,
    max_tokens: int | Sequence[int],
    beam: Beam = Beam(),  # noqa: B008, it is frozen
    memory: Any = None,
    memory_mask: Tensor | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    forbidden: Collection[int] = (),
    constraint: Constraint | None = None,
    attention: bool = False,
    tree: bool = False,
) -> list[BeamResult]:
    """The best outputs for each of `rows` inputs, found in one tensor program for all inputs and hypotheses.

    An output begins after the token `start`, which is no part of it, and ends with `end`; it has at most `max_tokens`
    tokens (one number, or one for each row), the end counted. `memory` goes to `model.start`, one row for each input;
    `memory_mask` (rows, S) says which of its positions are real, for the coverage term. `prefixes` are what outputs
    must begin with; their probability counts. `forbidden` tokens are never written, but in a prefix.

    A row's result does not depend on the rows beside it.

    >>> from unrolled.search.tokens.token_model import TokenStep
    >>> class Lazy:  # 1 or 2 with equal chance after 0, then the end, 3
    ...     table = torch.tensor([[0, 0.6, 0.4, 0], [0, 0, 0.1, 0.9], [0, 0, 0, 1], [0, 0, 0, 1]]).log()
    ...     def start(self, memory):
    ...         return None
    ...     def step(self, tokens, state):
    ...         return TokenStep(self.table[tokens], state)
    >>> (found,) = beam_search(Lazy(), 1, start=0, end=3, max_tokens=5, beam=Beam(2, n_best=2))
    >>> [(h.tokens, round(h.log_prob, 3)) for h in found.hypotheses]
    [([1], -0.616), ([2], -0.916)]
    """
    limits = list(max_tokens) if isinstance(max_tokens, Sequence) else [max_tokens] * rows
    if len(limits) != rows or not all(is_whole(limit) and limit >= 1 for limit in limits):
        raise UserError(
            f"max_tokens={max_tokens!r} does not give each of {rows} rows a whole number from 1 up.",
            "Use one number, or one for each row.",
        )
    begun = [list(prefix) for prefix in prefixes] if prefixes is not None else [[] for _ in range(rows)]
    if len(begun) != rows:
        raise UserError(f"{len(begun)} prefixes were given for {rows} rows.", "Give one for each; [] is none.")
    if rows == 0:
        return []
    search = _Search(model, beam, start, end, limits, begun, tuple(forbidden), constraint, memory_mask)
    search.begin(model.start(memory), attention, tree)
    while search.active:
        search.advance()
    return [search.found(row) for row in range(rows)]


@dataclass
class _Output:
    """A finished output of one row; the order of a heap: the worst first, what was cut before what ended."""

    hypothesis: Hypothesis
    number: int  # of equal scores, the one found first is better

    def __lt__(self, other: _Output) -> bool:
        mine, others = self.hypothesis, other.hypothesis
        return (mine.ended, mine.score, -self.number) < (others.ended, others.score, -other.number)


@dataclass
class _Live:
    """The hypotheses that are being continued: B rows still searched, W hypotheses each."""

    rows: list[int]  # which input each row is
    log_probs: Tensor  # (B, W), -inf where there is none
    written: Tensor  # (B, W, T)
    state: Any  # of the model, B·W rows
    allowed: Tensor | None  # state of the constraint, B·W rows
    covered: Tensor | None  # (B, W, S), the attention paid so far
    attention: Tensor | None  # (B, W, T, S)
    nodes: Tensor | None  # (B, W), in the tree


@dataclass
class _Search:
    model: TokenModel
    beam: Beam
    start: int
    end: int
    limits: list[int]
    prefixes: list[list[int]]
    forbidden: tuple[int, ...]
    constraint: Constraint | None
    memory_mask: Tensor | None
    outputs: list[list[_Output]] = field(default_factory=list)
    trees: list[BeamTree] | None = None
    count: int = 0

    def begin(self, state: Any, attention: bool, tree: bool) -> None:
        rows = len(self.limits)
        self.device = torch.device(getattr(self.model, "device", "cpu"))
        self.outputs = [[] for _ in range(rows)]
        self.trees = [BeamTree() for _ in range(rows)] if tree else None
        self.keep_attention = attention
        self.live = _Live(
            list(range(rows)),
            torch.zeros(rows, 1, dtype=torch.float64, device=self.device),
            torch.empty(rows, 1, 0, dtype=torch.int64, device=self.device),
            state,
            self.constraint.initial(rows).to(self.device) if self.constraint is not None else None,
            None,
            None,
            torch.full((rows, 1), -1, device=self.device) if tree else None,
        )
        self.last = torch.full((rows,), self.start, device=self.device)  # (B·W,) what the model reads next
        self.active = True

    def found(self, row: int) -> BeamResult:
        best = sorted(self.outputs[row], reverse=True)[: self.beam.n_best]
        return BeamResult([output.hypothesis for output in best], self.trees[row] if self.trees is not None else None)

    def advance(self) -> None:
        """One step of all hypotheses: the model, what may follow, the best continuations, who is done."""
        live, size = self.live, self.beam.size
        rows, width = live.log_probs.shape
        time = live.written.shape[-1]
        step = checked_step(self.model.step(self.last, live.state), rows * width, "step")
        scores, vocabulary = step.scores.float(), step.scores.shape[-1]  # (B·W, V)
        blocked = self._blocked(vocabulary, time)
        values, tokens = top_scores(scores, min(2 * size, vocabulary), blocked, normalised=step.normalised)
        self._check_choice(scores, values, time)
        totals = live.log_probs[..., None] + values.double().view(rows, width, -1)  # (B, W, k)
        best, places = totals.flatten(1).topk(min(2 * size, totals[0].numel()), dim=-1)  # (B, C), the best first
        origins = places.div(values.shape[-1], rounding_mode="floor")
        tokens = tokens.view(rows, -1).gather(1, places)
        self._read(step.attention, rows, width)
        ends = tokens == self.end
        last = torch.tensor([self.limits[row] == time + 1 for row in live.rows], device=self.device)
        ranked = torch.arange(best.shape[1], device=self.device) < size
        self._finish(best, origins, ends & ranked, None)
        if bool(last.any()):
            endings = torch.where(blocked[:, self.end], -torch.inf, step.log_probs[:, self.end].double())
            self._finish_last(last, best, origins, tokens, endings.view(rows, width) + live.log_probs)
        self._continue(step.state, best.masked_fill(ends, -torch.inf), origins, tokens)
        self._drop_done()

    def _blocked(self, vocabulary: int, time: int) -> Tensor:
        """Tokens that may not be written, True of them: (B·W, V), or (1, V) where it is the same for all."""
        live, width = self.live, self.live.log_probs.shape[1]
        if time == 0:
            self._check_ids(vocabulary)
        blocked = torch.zeros(1, vocabulary, dtype=torch.bool, device=self.device)
        blocked[:, list(self.forbidden)] = True
        if time < self.beam.min_tokens:
            blocked[:, self.end] = True
        if self.beam.no_repeat_ngram:
            blocked = blocked | repeated_ngrams(live.written.flatten(0, 1), self.beam.no_repeat_ngram, vocabulary)
        if self.constraint is not None and live.allowed is not None:
            blocked = blocked | ~self.constraint.allowed(live.allowed)
        must = forced([self.prefixes[row] for row in live.rows], time, self.device)
        if bool((must >= 0).any()):
            must = must.repeat_interleave(width)[:, None]
            only = torch.arange(vocabulary, device=self.device) != must
            blocked = torch.where(must >= 0, only, blocked)
        return blocked

    def _read(self, attention: Tensor | None, rows: int, width: int) -> None:
        """Adds a step's attention to what each hypothesis has paid."""
        live = self.live
        if attention is None:
            if self.beam.ranking.coverage or self.keep_attention:
                wanted = "coverage" if self.beam.ranking.coverage else "attention"
                raise UserError(f"This model has no attention, so there is no {wanted}.", f"Leave out {wanted}.")
            return
        now = attention.view(rows, width, -1)
        if self.beam.ranking.coverage:
            live.covered = now if live.covered is None else live.covered + now
        if self.keep_attention:
            now = now[:, :, None]
            live.attention = now if live.attention is None else torch.cat([live.attention, now], dim=2)

    def _finish(self, totals: Tensor, origins: Tensor, chosen: Tensor, tokens: Tensor | None) -> None:
        """Of the continuations (B, C) the chosen ones are outputs: ended, or cut after `tokens`."""
        chosen = chosen & (totals > -torch.inf)
        if not bool(chosen.any()):
            return
        live = self.live
        missed = None
        if live.covered is not None:
            missed = unread(live.covered, self._mask(live.rows)).gather(1, origins)
        length = torch.tensor(live.written.shape[-1] + 1, device=self.device)
        scores = self.beam.ranking.score(totals, length, missed)[chosen].tolist()
        places = chosen.nonzero().tolist()
        columns = zip(places, origins[chosen].tolist(), totals[chosen].tolist(), scores, strict=True)
        for (i, c), origin, total, score in columns:
            self._keep(i, origin, total, score, None if tokens is None else int(tokens[i, c]))

    def _finish_last(self, last: Tensor, totals: Tensor, origins: Tensor, tokens: Tensor, endings: Tensor) -> None:
        """The rows at their limit: every hypothesis may still end, though others rank before it; the best are cut.

        `endings` (B, W) are the log-probabilities of hypotheses that end here.
        """
        size = self.beam.size
        ends, last = tokens == self.end, last[:, None]
        self._finish(totals, origins, ~ends & last, tokens)
        if size == 1:
            return  # greedy search ends only where the end is likeliest
        done = torch.zeros_like(endings, dtype=torch.int32)
        done.scatter_add_(1, origins[:, :size], ends[:, :size].int())
        everyone = torch.arange(endings.shape[1], device=self.device).expand_as(endings)
        self._finish(endings, everyone, last & (done == 0), None)

    def _keep(self, i: int, origin: int, log_prob: float, score: float, token: int | None) -> None:
        """Hypothesis `origin` of row i, ended, or cut after `token`, is one of the outputs found."""
        live, outputs = self.live, self.outputs[self.live.rows[i]]
        if live.nodes is not None:
            self._node(i, origin, self.end if token is None else token, log_prob, "ended" if token is None else "cut")
        self.count += 1
        output = _Output(Hypothesis([], log_prob, score, token is None), self.count)
        if len(outputs) == self.beam.size and output < outputs[0]:
            return
        output.hypothesis = replace(
            output.hypothesis,
            tokens=live.written[i, origin].tolist() + ([] if token is None else [token]),
            attention=None if live.attention is None else live.attention[i, origin].clone(),
        )
        heapq.heappush(outputs, output)
        if len(outputs) > self.beam.size:
            heapq.heappop(outputs)

    def _continue(self, state: Any, totals: Tensor, origins: Tensor, tokens: Tensor) -> None:
        """The `size` likeliest hypotheses that did not end go on."""
        live = self.live
        rows, width = live.log_probs.shape
        totals, places = totals.topk(min(self.beam.size, totals.shape[1]), dim=-1)  # (B, W')
        origins, tokens = origins.gather(1, places), tokens.gather(1, places)
        flat = (torch.arange(rows, device=self.device)[:, None] * width + origins).flatten()  # (B·W',)
        live.state = reorder(state, flat)
        if self.constraint is not None and live.allowed is not None:
            live.allowed = self.constraint.advance(self.constraint.reorder(live.allowed, flat), tokens.flatten())
        shape = totals.shape
        live.covered, live.attention = (
            None if kept is None else kept.flatten(0, 1)[flat].view(*shape, *kept.shape[2:])
            for kept in (live.covered, live.attention)
        )
        live.written = torch.cat([live.written.flatten(0, 1)[flat].view(*shape, -1), tokens[..., None]], dim=-1)
        live.log_probs, self.last = totals, tokens.flatten()
        if live.nodes is not None:
            live.nodes = self._nodes(origins.tolist(), tokens.tolist(), totals.tolist())

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
        """Takes rows out whose outputs cannot change any more."""
        live = self.live
        time, width = live.written.shape[-1], live.log_probs.shape[1]
        longest = torch.tensor([self.limits[row] for row in live.rows], device=self.device)
        bounds = self.beam.ranking.bound(live.log_probs.amax(-1), longest).tolist()
        going = [i for i, row in enumerate(live.rows) if time < self.limits[row] and not self._done(row, bounds[i])]
        if len(going) == len(live.rows):
            return
        self.active = bool(going)
        if not going:
            return
        kept = torch.tensor(going, device=self.device)
        flat = (kept[:, None] * width + torch.arange(width, device=self.device)).flatten()
        live.rows = [live.rows[i] for i in going]
        live.log_probs, live.written, live.covered, live.attention, live.nodes = select(
            (live.log_probs, live.written, live.covered, live.attention, live.nodes), kept
        )
        live.state, self.last = select((live.state, self.last), flat, kept)
        if self.constraint is not None and live.allowed is not None:
            live.allowed = self.constraint.reorder(live.allowed, flat)

    def _done(self, row: int, bound: float) -> bool:
        ended = sorted((o.hypothesis.score for o in self.outputs[row] if o.hypothesis.ended), reverse=True)
        if bound == -torch.inf:
            return True
        if self.beam.size == 1 or self.beam.stop == "enough":
            return len(ended) >= self.beam.size
        return len(ended) >= self.beam.n_best and ended[self.beam.n_best - 1] >= bound

    def _mask(self, rows: list[int]) -> Tensor:
        assert self.live.covered is not None
        if self.memory_mask is None:
            return torch.ones(len(rows), self.live.covered.shape[-1], dtype=torch.bool, device=self.device)
        return self.memory_mask[rows].to(self.device)

    def _check_ids(self, vocabulary: int) -> None:
        named = [("start", [self.start]), ("end", [self.end]), ("forbidden", list(self.forbidden))]
        for name, tokens in named + [(f"prefixes[{row}]", prefix) for row, prefix in enumerate(self.prefixes)]:
            for token in tokens:
                if not is_whole(token) or not 0 <= token < vocabulary:
                    raise UserError(
                        f"{name} holds token {token!r}, but the model knows {vocabulary} tokens.",
                        f"Use tokens from 0 to {vocabulary - 1}.",
                    )

    def _check_choice(self, scores: Tensor, values: Tensor, time: int) -> None:
        """Every row must have a hypothesis that can go on; `values` (B·W, k) are the best that may follow."""
        live = self.live
        best = values[:, 0].double().view(live.log_probs.shape) + live.log_probs
        broken = ~(best.amax(-1) > -torch.inf)
        if not bool(broken.any()):
            return
        i = int(broken.int().argmax())
        where = f"for token {time + 1} of row {live.rows[i]}"
        if bool(scores.isnan().any()):
            raise UserError(
                f"The model's log-probabilities {where} contain NaN.",
                "Its weights may not be finite: use a checkpoint from before the loss became NaN.",
            )
        if self.outputs[live.rows[i]]:
            return  # what was found stays; the row is done after this step
        raise UserError(
            f"No token is left to write {where}: all have probability 0 or are not allowed.",
            "Forbid fewer tokens, or loosen the constraint.",
        )
