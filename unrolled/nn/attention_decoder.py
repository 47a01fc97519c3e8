"""Recurrent decoders with attention: Bahdanau's, Luong's and Xu's, for whole sequences or step by step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unrolled.cells import AttentionCell, BahdanauCell, LuongCell, Score, State, Trace, VisualCell, drawn_place
from unrolled.errors import UserError, unknown_name
from unrolled.kernels.attention.scan import (
    ATTENTION_ENGINES,
    Attended,
    AttentionJob,
    attention_choice,
    checked_job,
    quick_score,
    run_attention_job,
)
from unrolled.kernels.engine_choice import Choice, known_engine
from unrolled.kernels.lengths import check_lengths, real_steps
from unrolled.nn.attention import SCORES, Attention, MultiHeadAttention
from unrolled.nn.attention_trace import traced_attention
from unrolled.nn.checks import check_choice, check_probability, check_sizes
from unrolled.nn.layers import GRU, LSTM, RNN
from unrolled.nn.linear import Linear
from unrolled.nn.stack import variational_mask

CELLS: dict[str, type[RNN | LSTM | GRU]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}
FORMS = ("bahdanau", "luong", "xu")


class DecoderState(NamedTuple):
    """A decoder between two steps; every tensor has the batch at dimension 0.

    In a search the cell's state has B·W rows: W consecutive hypotheses for each memory.
    """

    cell: State  # (B, size) each, as `AttentionDecoder.state_names`
    keys: Tensor  # (B, S, A)
    values: Tensor  # (B, S, C)
    mask: Tensor | None  # (B, S)


class DecoderStep(NamedTuple):
    """The results of one step of a decoder."""

    output: Tensor  # (B, O)
    context: Tensor  # (B, C)
    weights: Tensor  # (B, S)
    state: DecoderState


class AttentionDecoder(nn.Module):
    """One recurrent layer that attends to a memory at every step.

    `form` "bahdanau" attends before a step and outputs s_i (equations: `unrolled.cells.BahdanauCell`); "luong" attends
    after it, outputs the attentional vector h̃_i of `output_size` and feeds it to the next step (`LuongCell`); "xu"
    attends before it, through a gate, and with `hard` to one position only (`VisualCell`): the likeliest, or in
    training a sampled one, except for a share `expected` of the rows, which get the mean. `score` is one of SCORES, or
    "multihead" with `num_heads`. `attention_size` is the width of an additive score or of all heads. `feed_dropout`
    acts on the cell's second input, `mix_dropout` on the [c; h] of Luong's form. `options` are those of the cell's
    layer (`unrolled.nn.LSTM`, …) for one layer in one direction.

    >>> decoder = AttentionDecoder(input_size=3, hidden_size=4, memory_size=6, cell="lstm", form="luong")
    >>> memory, mask = torch.randn(2, 5, 6), torch.arange(5) < torch.tensor([[5], [3]])
    >>> seen = decoder(torch.randn(2, 7, 3), memory, mask)
    >>> seen.output.shape, seen.context.shape, seen.weights.shape
    (torch.Size([2, 7, 4]), torch.Size([2, 7, 6]), torch.Size([2, 7, 5]))
    >>> state = decoder.start(memory, mask)
    >>> output, context, weights, state = decoder.step(torch.randn(2, 3), state)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        memory_size: int,
        *,
        cell: str = "gru",
        form: str = "bahdanau",
        score: str = "additive",
        attention_size: int | None = None,
        num_heads: int = 1,
        output_size: int | None = None,
        feed_dropout: float = 0.0,
        mix_dropout: float = 0.0,
        hard: bool = False,
        expected: float = 0.5,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size, memory_size=memory_size)
        if cell not in CELLS:
            raise unknown_name("cell", cell, CELLS)
        for name in ("num_layers", "bidirectional", "zoneout", "learned_state", "combine"):
            if name in options:
                raise UserError(f"AttentionDecoder has no option {name}.", "It is one layer, read in one direction.")
        self.form, self.memory_size = check_choice("form", form, FORMS), memory_size
        self.feed_dropout = check_probability("feed_dropout", feed_dropout)
        self.mix_dropout = check_probability("mix_dropout", mix_dropout)
        self.expected, self.hard = check_probability("expected", expected), hard
        if hard and (form != "xu" or score == "multihead"):
            raise UserError(f"hard=True with form={form!r}, score={score!r}.", "Hard attention is form='xu', one head.")
        self.backend = known_engine(ATTENTION_ENGINES, backend)
        self.rnn = CELLS[cell](input_size, hidden_size, batch_first=True, **options)
        self.state_names = self.rnn.cell_class.state_names + (("fed",) if form == "luong" else ())
        self.attention = _attention(score, self._query_size(), memory_size, attention_size, num_heads)
        self.context_size = memory_size if isinstance(self.attention, Attention) else self.attention.size
        self.output_size = self._query_size()
        if form == "luong":
            self.output_size = hidden_size if output_size is None else output_size
            check_sizes(output_size=self.output_size)
            self.mix = Linear(self.context_size + self._query_size(), self.output_size)  # W_c, b_c
        elif output_size not in (None, self.output_size):
            raise UserError(f"output_size={output_size} with form={form!r}.", f"Its output is s, {hidden_size} wide.")
        if form == "xu":
            self.gate = Linear(self._query_size(), 1)  # w_β, b_β
        self.feed_size = self.output_size if form == "luong" else self.context_size
        rows = hidden_size * max(len(self.rnn.cell_class.gate_names), 1)
        self.weight_feed = nn.Parameter(torch.empty(rows, self.feed_size))
        nn.init.uniform_(self.weight_feed, -1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size))

    def _query_size(self) -> int:
        return self.rnn.proj_size or self.rnn.hidden_size

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """The width of each of `state_names`."""
        return (*self.rnn._state_sizes(), *((self.output_size,) if self.form == "luong" else ()))

    def _project(self, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """memory (B, S, M) → keys (B, S, A), values (B, S, C); the padding has no effect."""
        if mask is not None:
            memory = torch.where(mask[..., None], memory, 0)
        if isinstance(self.attention, Attention):
            return self.attention.project(memory), memory
        keys, values = self.attention.project(memory)  # (B, N, S, d)
        return keys.transpose(1, 2).flatten(2), values.transpose(1, 2).flatten(2)

    def _cell(self, batch: int) -> AttentionCell:
        """The cell of a step, in training with freshly sampled masks."""
        cell = self.rnn.single_cell(batch)
        score: Score = self.attention.score()
        if self.form == "bahdanau":
            return BahdanauCell(cell, score, self.weight_feed)
        if self.form == "xu":
            means = torch.rand(batch, device=self.weight_feed.device) < self.expected if self._draws else None
            return VisualCell(cell, score, self.weight_feed, self.gate.weight, self.gate.bias, self.hard, means)
        return LuongCell(cell, score, self.weight_feed, self.mix.weight, self.mix.bias)

    def start(self, memory: Tensor, mask: Tensor | None = None, state: State | None = None) -> DecoderState:
        """The state before the first step: memory (B, S, M), mask (B, S) True where real.

        `state` are the cell's (B, size) tensors; by default they, and h̃, are zero.
        """
        keys, values = self._project(memory, mask)
        if memory.is_cuda and torch.is_autocast_enabled("cuda") and self.form != "xu":
            # as the products of every step would, once for all of them
            keys, values = (part.to(torch.get_autocast_dtype("cuda")) for part in (keys, values))
        return DecoderState(self._initial(memory, state), keys, values, mask)

    def _initial(self, memory: Tensor, state: State | None) -> State:
        initial = tuple(state or ())
        missing = self.state_sizes[len(initial) :]
        if initial and len(missing) > (1 if self.form == "luong" else 0):
            names = ", ".join(self.rnn.cell_class.state_names)
            raise UserError(f"The initial state has {len(initial)} tensors.", f"Expected those of the cell: {names}.")
        return (*initial, *(memory.new_zeros(memory.shape[0], size) for size in missing))

    def step(self, x: Tensor, state: DecoderState) -> DecoderStep:
        """One step: x (B, D) → output (B, O), context (B, C), weights (B, S), next state; or B·W rows each."""
        cell = self._cell(x.shape[0])
        cell = replace(cell, score=quick_score(cell.score, x, self.backend))
        masks = [m if m is None else m[:, 0] for m in self._drawn(x, 1)]
        masks += [gumbel(state.keys.new_empty(len(x), state.keys.shape[1]))] if self._draws else []
        step = cell.step(cell.cell.project(x), state.cell, state.keys, state.values, state.mask, *masks)
        return DecoderStep(step.output, step.context, step.weights, state._replace(cell=step.state))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        state: State | None = None,
        lengths: Tensor | None = None,
    ) -> Attended:
        """All steps of known inputs: x (B, T, D), memory (B, S, M), mask (B, S) → `Attended`."""
        job = self.job(x, memory, mask, state, lengths)
        seen = run_attention_job(job, self.backend)
        if not isinstance(job.cell, VisualCell) or not job.cell.hard:
            return seen
        chosen = drawn_place(seen.weights, job.noise)
        return seen._replace(
            chosen=chosen if job.cell.expected is None else chosen.masked_fill(job.cell.expected[:, None], -1)
        )

    def trace(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None, state: State | None = None
    ) -> tuple[Attended, Trace]:
        """`forward` on the reference engine, and the trace of its layer: see `unrolled.cells.Trace`."""
        return traced_attention(self.job(x, memory, mask, state, None), x, self.rnn, self.weight_feed)

    def job(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, state: State | None, lengths: Tensor | None
    ) -> AttentionJob:
        """The job of `forward` for an engine."""
        cell = self._cell(x.shape[0])
        feed, mix = self._drawn(x, x.shape[1])
        keys, values = self._project(memory, mask)
        if lengths is not None:
            lengths = check_lengths(lengths, x.shape[0], x.shape[1], x.device)
            x = torch.where(real_steps(lengths, x.shape[1])[..., None], x, 0)
        gates_x, initial = cell.cell.project(x), self._initial(memory, state)
        noise = gumbel(keys.new_empty(*x.shape[:2], keys.shape[1])) if self._draws else None
        return checked_job(AttentionJob(cell, gates_x, keys, values, mask, initial, lengths, feed, mix, noise))

    def backend_for(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        state: State | None = None,
        lengths: Tensor | None = None,
    ) -> Choice:
        """The engine that `forward` would run on with these arguments, and why."""
        return attention_choice(self.job(x, memory, mask, state, lengths), self.backend)

    @property
    def _draws(self) -> bool:
        return self.hard and self.training

    def _drawn(self, x: Tensor, steps: int) -> tuple[Tensor | None, Tensor | None]:
        """Dropout masks (B, T, ·) of the cell's second input and of [c; h]."""
        feed, mix = (self.feed_dropout, self.mix_dropout) if self.training else (0.0, 0.0)
        if self.form != "luong":
            mix = 0.0
        batch, width = x.shape[0], self.context_size + self._query_size()
        return variational_mask(feed, x, batch, steps, self.feed_size), variational_mask(mix, x, batch, steps, width)


def gumbel(like: Tensor) -> Tensor:
    """Gumbel noise g: argmax_j log α_j + g_j is j with probability α_j."""
    return -torch.empty_like(like).exponential_().clamp(min=torch.finfo(like.dtype).tiny).log()


def _attention(
    score: str, query_size: int, memory_size: int, size: int | None, num_heads: int
) -> Attention | MultiHeadAttention:
    if score not in (*SCORES, "multihead"):
        raise unknown_name("attention score", score, [*SCORES, "multihead"])
    if score != "multihead":
        if num_heads != 1:
            raise UserError(f"num_heads={num_heads} with score={score!r}.", "Use score='multihead' for several heads.")
        return Attention(score, query_size, memory_size, size)
    if size not in (None, query_size):
        raise UserError(
            f"attention_size={size} with score='multihead'.", f"All heads together are {query_size} wide, as the query."
        )
    return MultiHeadAttention(query_size, num_heads, key_size=memory_size)
