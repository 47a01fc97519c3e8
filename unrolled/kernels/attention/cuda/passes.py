"""The forward and the backward pass of a decoder with attention on a GPU: buffers, products and launches.

Every step is two or three products of cuBLAS and the kernels between them, on the current stream and without a wait for
the GPU, so that both passes can be captured in a CUDA graph. Operands have 16 bits; sums and states are float32.

B batch, T steps, S positions, H units, G gates, P blocks of the product, F numbers fed to the cell, A of a key, C of a
value, Q of a query and its gate. Our sequences are (T, B, ·).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unrolled.kernels.attention.cuda import programs
from unrolled.kernels.attention.cuda.arguments import DecoderArguments
from unrolled.kernels.attention.cuda.programs import Grid
from unrolled.kernels.cuda import launch
from unrolled.kernels.cuda.products import product
from unrolled.kernels.recurrence.cuda.constants import VECTOR
from unrolled.kernels.recurrence.cuda.plan import KINDS, LSTM_CURRENT, Kind


class DecoderTensors(NamedTuple):
    """A decoder with attention and its batch, in 16 bits or float32; None is zero, or absent."""

    gates_x: Tensor  # (B, T, G·H)
    weight_hh: Tensor  # U (G·H, H)
    weight_feed: Tensor  # (G·H, F)
    keys: Tensor  # (B, S, A)
    values: Tensor  # (B, S, C)
    h_0: Tensor  # (B, H)
    bias_hh: Tensor | None
    peephole: Tensor | None  # (3, H)
    weight_query: Tensor | None  # (A, H)
    bias_query: Tensor | None
    vector: Tensor | None  # (A,)
    weight_mix: Tensor | None  # (F, C + H); with it, Luong's form
    bias_mix: Tensor | None
    weight_gate: Tensor | None  # (1, H) of Xu's form
    bias_gate: Tensor | None  # (1,)
    c_0: Tensor | None
    fed_0: Tensor | None  # (B, F)
    mask: Tensor | None  # (B, S)
    lengths: Tensor | None  # (B,)
    feed_mask: Tensor | None  # (B, T, F)
    mix_mask: Tensor | None  # (B, T, C + H)


class DecoderNumbers(NamedTuple):
    """The numbers of a decoder with attention."""

    kind: int
    scale: float
    half: bool  # float16, otherwise bfloat16


class DecoderSaved(NamedTuple):
    """The buffers that the forward pass leaves to the backward pass; empty if the decoder has none."""

    entering: Tensor  # (T + 1, B, H + F)
    gates: Tensor  # (T, B, saved, H)
    kept_weights: Tensor  # (T, B, S) float32
    c_states: Tensor  # (T + 1, B, H) float32
    queries: Tensor  # (T, B, Q) float32
    reset_h: Tensor  # (T, B, H)
    mixing: Tensor  # (T, B, C + H)


class Results(NamedTuple):
    """The results of the forward pass."""

    output: Tensor  # (B, T, H), or (B, T, F)
    context: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S)
    h_n: Tensor
    c_n: Tensor
    fed_n: Tensor


class DecoderJob(NamedTuple):
    """Tensors and settings, and the sizes they have."""

    tensors: DecoderTensors
    settings: DecoderNumbers

    @property
    def kind(self) -> Kind:
        """The cell."""
        return KINDS[self.settings.kind]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of operands and results."""
        return torch.float16 if self.settings.half else torch.bfloat16

    @property
    def luong(self) -> bool:
        """True for Luong's form, which attends after the step."""
        return self.tensors.weight_mix is not None

    @property
    def sizes(self) -> tuple[int, ...]:
        """B, T, S, H, F, A and C."""
        t = self.tensors
        batch, steps = t.gates_x.shape[:2]
        _, positions, key = t.keys.shape
        return batch, steps, positions, t.weight_hh.shape[1], t.weight_feed.shape[1], key, t.values.shape[2]

    @property
    def query_size(self) -> int:
        """Q: A, and a vector more with a gate, whose sum is its first number."""
        return int(self.tensors.keys.shape[2]) + VECTOR * self.gated

    @property
    def gated(self) -> bool:
        """True for Xu's form, whose context goes through a gate."""
        return self.tensors.weight_gate is not None

    @property
    def blocks(self) -> int:
        """P."""
        return self.kind.gates + self.kind.separate_candidate

    def results(self) -> Results:
        """New tensors for the results."""
        batch, steps, positions, hidden, feed, _, value = self.sizes

        def new(*shape: int) -> Tensor:
            return self.tensors.gates_x.new_empty(shape, dtype=self.dtype)

        return Results(
            output=new(batch, steps, feed if self.luong else hidden),
            context=new(batch, steps, value),
            weights=new(batch, steps, positions),
            h_n=new(batch, hidden),
            c_n=new(batch, hidden) if self.kind.cell_state else new(0),
            fed_n=new(batch, feed) if self.luong else new(0),
        )

    def saved(self, save: bool) -> DecoderSaved:
        """New buffers for the steps; without `save`, only those that the forward pass needs itself."""
        batch, steps, positions, hidden, feed, _, value = self.sizes

        def new(wanted: bool, *shape: int, wide: bool = False) -> Tensor:
            dtype = torch.float32 if wide else self.dtype
            return self.tensors.gates_x.new_empty(shape if wanted else (0,), dtype=dtype)

        return DecoderSaved(
            entering=new(True, steps + 1, batch, hidden + feed),
            gates=new(save, steps, batch, self.kind.saved, hidden),
            kept_weights=new(save, steps, batch, positions, wide=True),
            c_states=new(self.kind.cell_state, steps + 1, batch, hidden, wide=True),
            queries=new(self.tensors.weight_query is not None, steps, batch, self.query_size, wide=True),
            reset_h=new(self.kind.two_products, steps, batch, hidden),
            mixing=new(self.luong, steps, batch, value + hidden),
        )

    def query_weight(self) -> Tensor | None:
        """W_q (Q, H) in 16 bits, with the gate's row twice and zeros below it; None: the query is h."""
        weight, gate = self.tensors.weight_query, self.tensors.weight_gate
        if weight is None or gate is None:
            return None if weight is None else weight.to(self.dtype)
        below = gate.new_zeros(VECTOR - 2, gate.shape[1])
        return torch.cat([part.to(self.dtype) for part in (weight, gate, gate, below)])

    def query_bias(self) -> Tensor | None:
        """The bias of the product with W_q, (Q,)."""
        bias, gate = self.tensors.bias_query, self.tensors.bias_gate
        if gate is None:
            return bias
        return torch.cat([gate.new_zeros(self.sizes[5]) if bias is None else bias, gate, gate.new_zeros(VECTOR - 1)])

    def step_weight(self) -> Tensor:
        """[U | W_feed] (P·H, H + F), in 16 bits. Zeros keep apart what a GRU's reset gate multiplies and what not."""
        hidden, kind = self.tensors.weight_hh.shape[1], self.kind
        own, feed = (w.to(self.dtype) for w in (self.tensors.weight_hh, self.tensors.weight_feed))
        if not (kind.separate_candidate or kind.two_products):
            return torch.cat([own, feed], dim=1)
        both = torch.cat([own[: 2 * hidden], feed[: 2 * hidden]], dim=1)
        of_feed = torch.cat([torch.zeros_like(own[2 * hidden :]), feed[2 * hidden :]], dim=1)
        if kind.two_products:
            return torch.cat([both, of_feed])
        of_h = torch.cat([own[2 * hidden :], torch.zeros_like(feed[2 * hidden :])], dim=1)
        return torch.cat([both, of_h, of_feed])


class _Call:
    """The arguments of all kernels of a pass, the tensors they point to, and the launches."""

    def __init__(self, decoder: DecoderJob, saved: DecoderSaved, backward: bool) -> None:
        t = decoder.tensors
        self.decoder, self._alive = decoder, list[Tensor]()
        names = ("batch", "steps", "positions", "hidden", "feed", "key_size", "value_size")
        self.sizes = dict(zip(names, decoder.sizes, strict=True))
        self.arguments = DecoderArguments(scale=decoder.settings.scale, query_size=decoder.query_size, **self.sizes)
        narrow = {"gates_x": t.gates_x, "keys": t.keys, "values": t.values, "feed_mask": t.feed_mask}
        self.set(decoder.dtype, **narrow, mix_mask=t.mix_mask)
        self.set(torch.float32, bias_h=t.bias_hh, peepholes=t.peephole, vector=t.vector, bias_mix=t.bias_mix)
        self.set(None, mask=t.mask, lengths=t.lengths)
        kept = saved._asdict()
        self.set(None, saved=kept.pop("gates"), **kept)
        self.device = t.gates_x.device
        additive, projected = t.vector is not None, t.weight_query is not None
        self.cell = programs.decoder_cell(decoder.kind, decoder.dtype, decoder.luong)
        self.look = programs.look(decoder.dtype, decoder.luong, additive, projected, decoder.gated)
        key, value, positions = (self.sizes[name] for name in ("key_size", "value_size", "positions"))
        self.rows = Grid(self.sizes["batch"], programs.look_bytes(key, value, positions, additive, backward))

    def set(self, dtype: torch.dtype | None, **tensors: Tensor | None) -> None:
        """Point arguments to tensors, in a dtype unless it is None; None and empty tensors leave a null pointer."""
        for name, tensor in tensors.items():
            if tensor is not None and tensor.numel():
                self._alive.append((tensor if dtype is None else tensor.to(dtype)).contiguous())
                setattr(self.arguments, name, self._alive[-1].data_ptr())

    def over_units(self, name: str) -> None:
        """Launch a kernel with two units in a thread."""
        grid = programs.pairs(self.sizes["batch"], self.sizes["hidden"])
        launch.run(self.cell, name, grid, self.arguments, self.device)

    def over_fed(self, name: str) -> None:
        """Launch a kernel with two of the numbers that Luong's form feeds in a thread."""
        grid = programs.pairs(self.sizes["batch"], self.sizes["feed"])
        launch.run(self.cell, name, grid, self.arguments, self.device)

    def attend(self, name: str) -> None:
        """Launch a kernel with a row in a block."""
        launch.run(self.look, name, self.rows, self.arguments, self.device)


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    product(a, b, wide=True, out=out)


def forward(decoder: DecoderJob, save: bool) -> tuple[Results, DecoderSaved]:
    """Run all steps."""
    t, dtype = decoder.tensors, decoder.dtype
    batch, steps, _, hidden, feed, _, _ = decoder.sizes
    saved, results = decoder.saved(save), decoder.results()
    entering, two = saved.entering, decoder.kind.two_products
    h, fed = t.h_0.float().clone(), None if t.fed_0 is None else t.fed_0.float().clone()
    entering[0, :, :hidden] = t.h_0
    if t.fed_0 is not None:
        entering[0, :, hidden:] = t.fed_0 if t.feed_mask is None else t.fed_0 * t.feed_mask[:, 0]
    if t.c_0 is not None:
        saved.c_states[0] = t.c_0

    def sums(*shape: int) -> Tensor:
        return entering.new_empty(shape, dtype=torch.float32)

    step_weight = decoder.step_weight().t()
    gates = sums(batch, decoder.blocks * hidden)
    candidate, second = (t.weight_hh[2 * hidden :].to(dtype).t(), sums(batch, hidden)) if two else (None, None)
    query = None if (weight := decoder.query_weight()) is None else weight.t()
    query_bias = decoder.query_bias()
    mix, mixed = (None, None) if t.weight_mix is None else (t.weight_mix.to(dtype).t(), sums(batch, feed))
    call = _Call(decoder, saved, backward=False)
    call.set(None, h=h, fed=fed, products=gates, second_products=second, mixed_products=mixed)
    call.set(None, output=results.output, context=results.context, weights=results.weights)

    def attend(step: int) -> None:
        if query is not None:
            _product(entering[step + decoder.luong, :, :hidden], query, saved.queries[step])
            if query_bias is not None:
                saved.queries[step].add_(query_bias)
        call.attend("attend")

    for step in range(steps):
        call.arguments.step = step
        if not decoder.luong:
            attend(step)
        _product(entering[step], step_weight, gates)
        if candidate is not None and second is not None:
            call.over_units("reset_hidden")
            _product(saved.reset_h[step], candidate, second)
        call.over_units("step_cell")
        if mix is not None and mixed is not None:
            attend(step)
            _product(saved.mixing[step], mix, mixed)
            call.over_fed("mix")
    results.h_n.copy_(h)
    if decoder.kind.cell_state:
        results.c_n.copy_(saved.c_states[steps])
    if fed is not None:
        results.fed_n.copy_(fed)
    return results, saved


class _Gradients(NamedTuple):
    """The buffers of the backward pass; empty if the decoder has none."""

    d_gates: Tensor  # (T, B, P·H)
    d_mixed: Tensor  # (T, B, F)
    d_queries: Tensor  # (T, B, Q)
    d_contexts: Tensor  # (T, B, C) float32
    d_scores: Tensor  # (T, B, S) float32
    d_h: Tensor  # (B, H) float32, as what follows
    d_c: Tensor
    d_fed: Tensor
    d_entering: Tensor  # (B, H + F)
    d_hidden: Tensor  # (B, H)
    d_mixing: Tensor  # (B, C + H)
    d_reset_h: Tensor


def _buffers(decoder: DecoderJob, finals: tuple[Tensor | None, ...]) -> _Gradients:
    """The buffers, with what is known before the last step: the gradients of the final states."""
    batch, steps, positions, hidden, feed, _, value = decoder.sizes
    d_h_n, d_c_n, d_fed_n = finals
    like = decoder.tensors.gates_x

    def new(wanted: bool, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return like.new_empty(shape if wanted else (0,), dtype=dtype)

    def state(wanted: bool, final: Tensor | None, width: int) -> Tensor:
        if not wanted or final is None:
            return like.new_zeros((batch, width) if wanted else (0,), dtype=torch.float32)
        return final.to(torch.float32, copy=True).contiguous()

    projected, dtype = decoder.tensors.weight_query is not None, decoder.dtype
    return _Gradients(
        d_gates=new(True, steps, batch, decoder.blocks * hidden, dtype=dtype),
        d_mixed=new(decoder.luong, steps, batch, feed, dtype=dtype),
        d_queries=new(projected, steps, batch, decoder.query_size, dtype=dtype),
        d_contexts=new(True, steps, batch, value),
        d_scores=new(True, steps, batch, positions),
        d_h=state(True, d_h_n, hidden),
        d_c=state(decoder.kind.cell_state, d_c_n, hidden),
        d_fed=state(decoder.luong, d_fed_n, feed),
        d_entering=state(True, None, hidden + feed),
        d_hidden=state(True, None, hidden),
        d_mixing=new(decoder.luong, batch, value + hidden),
        d_reset_h=new(decoder.kind.two_products, batch, hidden),
    )


def backward(
    decoder: DecoderJob, d_results: tuple[Tensor | None, ...], output: Tensor, saved: DecoderSaved
) -> dict[str, Tensor | None]:
    """The gradients of `DecoderTensors` by name, from those of `Results`."""
    t, dtype = decoder.tensors, decoder.dtype
    _, steps, _, hidden, _, _, _ = decoder.sizes
    d_output, d_context, d_weights, *finals = d_results
    found = _buffers(decoder, tuple(finals))
    step_weight = decoder.step_weight()
    candidate = t.weight_hh[2 * hidden :].to(dtype) if decoder.kind.two_products else None
    query, mix = decoder.query_weight(), None if t.weight_mix is None else t.weight_mix.to(dtype)
    call = _Call(decoder, saved, backward=True)
    call.set(dtype, d_output=d_output, d_context=d_context, d_weights=d_weights)
    call.set(None, output=output, **found._asdict())

    def attend_back(step: int) -> None:
        call.attend("attend_back")
        if query is not None:
            _product(found.d_queries[step], query, found.d_hidden)

    for step in reversed(range(steps)):
        call.arguments.step = step
        if mix is not None:
            call.over_fed("mix_back")
            _product(found.d_mixed[step], mix, found.d_mixing)
            attend_back(step)
        call.over_units("step_cell_back")
        if candidate is not None:
            _product(found.d_gates[step, :, 2 * hidden :], candidate, found.d_reset_h)
            call.over_units("reset_hidden_back")
        _product(found.d_gates[step], step_weight, found.d_entering)
        if mix is None:
            attend_back(step)
    return _gradients(decoder, call, found, saved)


def _gradients(decoder: DecoderJob, call: _Call, found: _Gradients, saved: DecoderSaved) -> dict[str, Tensor | None]:
    """The gradients by name: those of weights, keys and values are one product over all steps each."""
    t, kind, (_, steps, _, hidden, _, _, _) = decoder.tensors, decoder.kind, decoder.sizes
    d_fed_0 = found.d_entering[:, hidden:]
    if t.feed_mask is not None and decoder.luong:
        d_fed_0 = d_fed_0 * t.feed_mask[:, 0]
    d_h_0 = found.d_h + found.d_entering[:, :hidden]
    looking = saved.entering[int(decoder.luong) :, :, :hidden][:steps]  # (T, B, H): what asked
    result: dict[str, Tensor | None] = {
        "h_0": d_h_0 if decoder.luong else d_h_0 + found.d_hidden,
        "c_0": found.d_c if kind.cell_state else None,
        "fed_0": found.d_fed + d_fed_0 if decoder.luong else None,
    }
    result |= _cell_gradients(decoder, found, saved) | _memory_gradients(decoder, call, found, saved, looking)
    if t.weight_query is not None:
        d_query, key = _over_steps(found.d_queries, looking, t.weight_query), t.keys.shape[2]
        result |= {"weight_query": d_query[:key], "weight_gate": d_query[key : key + 2].sum(0, keepdim=True)}
        if t.bias_query is not None or decoder.gated:
            d_bias = found.d_queries.sum((0, 1), dtype=torch.float32)
            result |= {"bias_query": d_bias[:key], "bias_gate": d_bias[key : key + 2].sum(0, keepdim=True)}
    if t.weight_mix is not None:
        result["weight_mix"] = _over_steps(found.d_mixed, saved.mixing, t.weight_mix)
    if t.bias_mix is not None:
        result["bias_mix"] = found.d_mixed.sum((0, 1), dtype=torch.float32)
    return result


def _over_steps(gradient: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """Σ over all steps of a gradient (T, B, N) times its factor (T, B, M): (N, M), in float32 if the weight is."""
    return product(gradient.flatten(0, 1).t(), rows.flatten(0, 1), weight.dtype == torch.float32)


def _cell_gradients(decoder: DecoderJob, found: _Gradients, saved: DecoderSaved) -> dict[str, Tensor | None]:
    """Gradients of gates_x, U, W_feed, the recurrent bias and the peepholes."""
    t, kind, d_gates = decoder.tensors, decoder.kind, found.d_gates
    _, steps, _, hidden, _, _, _ = decoder.sizes
    last = 2 * hidden  # a GRU's candidate is the third
    d_step = _over_steps(d_gates, saved.entering[:steps], t.weight_hh)  # (P·H, H + F)
    d_own, d_feed, d_input = d_step[:, :hidden], d_step[:, hidden:], d_gates
    if kind.separate_candidate:
        d_own, d_feed = d_own[: 3 * hidden], torch.cat([d_feed[:last], d_feed[3 * hidden :]])
        d_input = torch.cat([d_gates[..., :last], d_gates[..., 3 * hidden :]], dim=2)
    if kind.two_products:
        d_own = torch.cat([d_own[:last], _over_steps(d_gates[..., last:], saved.reset_h, t.weight_hh)])
    result: dict[str, Tensor | None] = {"gates_x": d_input.transpose(0, 1), "weight_hh": d_own, "weight_feed": d_feed}
    if t.bias_hh is not None:
        result["bias_hh"] = d_gates[..., : kind.gates * hidden].sum((0, 1), dtype=torch.float32)
    if t.peephole is not None:
        before, after = saved.c_states[:-1], saved.c_states[1:]
        of_output = after if decoder.settings.kind == LSTM_CURRENT else before
        d_i, d_f, _, d_o = d_gates.float().chunk(4, dim=2)
        seen = ((d_i, before), (d_f, before), (d_o, of_output))
        result["peephole"] = torch.stack([(d * c).sum((0, 1)) for d, c in seen])
    return result


def _memory_gradients(
    decoder: DecoderJob, call: _Call, found: _Gradients, saved: DecoderSaved, looking: Tensor
) -> dict[str, Tensor | None]:
    """Gradients of keys, values and the additive vector, in float32."""
    t = decoder.tensors
    batch, _, positions, _, _, key, _ = decoder.sizes
    # (B, S, T) times (B, T, ·)
    result: dict[str, Tensor | None] = {
        "values": saved.kept_weights.permute(1, 2, 0) @ found.d_contexts.transpose(0, 1)
    }
    if t.vector is None:
        query = saved.queries[..., : t.keys.shape[2]] if t.weight_query is not None else looking.float()
        result["keys"] = (found.d_scores.permute(1, 2, 0) @ query.transpose(0, 1)).mul_(decoder.settings.scale)
        return result
    grid = Grid(batch * -(-positions // programs.TOGETHER))
    d_keys, d_vectors = (t.keys.new_empty(shape, dtype=torch.float32) for shape in (t.keys.shape, (grid.blocks, key)))
    call.set(None, d_keys=d_keys, d_vectors=d_vectors)
    launch.run(call.look, "keys_back", grid, call.arguments, call.device)
    return result | {"keys": d_keys, "vector": d_vectors.sum(0)}
