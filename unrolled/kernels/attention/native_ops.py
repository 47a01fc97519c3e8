"""Decoders with attention on the native engine as a torch operator: all steps forward, and their gradients.

`torch.ops.unrolled.attention` takes projected inputs, a memory and weights to outputs, contexts, weights and the final
state. The backward pass reads one flat buffer, `saved` (see `_sections`). Everything is float32 on the CPU.

B batch, T steps, S positions, N heads, G gates, H units, A width of a key, V of a value, C of a context, F of the
cell's second input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.cells import Score
from unrolled.cells.attending import join_heads, split_heads
from unrolled.kernels.attention import second_order
from unrolled.kernels.lengths import check_lengths
from unrolled.kernels.native_buffers import (
    Allocate,
    Sections,
    address,
    empty,
    set_addresses,
    set_buffers,
    set_sequences,
)
from unrolled.kernels.native_operator import Kernel, NativeOperator
from unrolled.kernels.recurrence.native_cells import CELLS
from unrolled.kernels.recurrence.native_rows import RowOrder


class DecoderInputs(NamedTuple):
    """A decoder with attention. The C++ job has fields of the same names; options that are off are None."""

    gates_x: Tensor  # (B, T, G·H)
    weight_hh: Tensor
    bias_hh: Tensor | None
    weight_feed: Tensor
    weight_query: Tensor | None
    bias_query: Tensor | None
    weight_out: Tensor | None
    bias_out: Tensor | None
    vector: Tensor | None
    weight_mix: Tensor | None
    bias_mix: Tensor | None
    keys: Tensor  # (B, S, A)
    values: Tensor  # (B, S, V)
    h_0: Tensor
    c_0: Tensor | None
    fed_0: Tensor | None
    mask: Tensor | None
    hidden_mask: Tensor | None
    feed_mask: Tensor | None
    mix_mask: Tensor | None
    lengths: Tensor | None
    scale: float
    kind: int
    heads: int
    luong: bool
    narrow: bool

    @property
    def hidden(self) -> int:
        return self.weight_hh.shape[1]

    @property
    def feed(self) -> int:
        return self.weight_feed.shape[1]

    @property
    def context_size(self) -> int:
        return self.values.shape[2] if self.weight_out is None else self.weight_out.shape[0]


class DecoderResults(NamedTuple):
    """Outputs, final state (empty if the decoder has none) and the buffer for the backward pass."""

    output: Tensor  # (B, T, H), or (B, T, F)
    context: Tensor  # (B, T, C)
    weights: Tensor  # (B, T, S)
    h_n: Tensor
    c_n: Tensor
    fed_n: Tensor
    saved: Tensor


def _sections(inputs: DecoderInputs) -> Sections:
    """The sections that a run saves, each with B·T rows."""
    batch, steps, wide = inputs.gates_x.shape
    rows, hidden, cell = batch * steps, inputs.hidden, CELLS[inputs.kind]
    shapes = {"gates": (rows, wide), "h_entering": (rows, hidden), "fed_rows": (rows, inputs.feed)}
    if inputs.hidden_mask is not None:
        shapes["seen"] = (rows, hidden)
    if cell.memory:
        shapes["c_entering"] = (rows, hidden)
    if cell.candidate:
        shapes["candidate"] = (rows, hidden)
    if inputs.weight_query is not None:
        shapes["query_rows"] = (rows, inputs.keys.shape[2])
    if inputs.heads > 1:
        shapes["head_weights"] = (rows, inputs.heads * inputs.keys.shape[1])
    if inputs.weight_out is not None:
        shapes["looked"] = (rows, inputs.values.shape[2])
    if inputs.luong:
        shapes |= {"hidden_rows": (rows, hidden), "mixed": (rows, hidden + inputs.context_size)}
    return Sections(shapes)


_POINTERS = (
    *("weight_hh", "bias_hh", "weight_feed", "weight_query", "bias_query", "weight_out", "bias_out", "vector"),
    *("weight_mix", "bias_mix", "keys", "values", "mask", "hidden_mask"),
)


def _describe(inputs: DecoderInputs) -> tuple[_native.AttentionJob, list[Any]]:
    """A job with the fields of both passes; the list must outlive its run."""
    job, alive = _native.AttentionJob(), list[Any]()
    job.batch, job.steps, _ = inputs.gates_x.shape
    _, job.positions, job.key_size = inputs.keys.shape
    job.hidden, job.feed, job.heads = inputs.hidden, inputs.feed, inputs.heads
    job.value_size, job.context_size = inputs.values.shape[2], inputs.context_size
    job.kind, job.luong, job.scale, job.narrow = inputs.kind, inputs.luong, inputs.scale, inputs.narrow
    set_addresses(job, inputs, _POINTERS, alive)
    masks = (job.set_feed_mask, inputs.feed_mask), (job.set_mix_mask, inputs.mix_mask)
    set_sequences([(job.set_gates_x, inputs.gates_x), *masks], alive)
    order = RowOrder(inputs.gates_x, inputs.lengths)
    order.describe(job)
    return job, [*alive, order]


def _forward(inputs: DecoderInputs, allocate: Allocate | None) -> DecoderResults:
    job, alive = _describe(inputs)
    set_addresses(job, inputs, ("h_0", "c_0", "fed_0"), alive)
    saved = empty(0)
    if allocate is not None:
        sections = _sections(inputs)
        saved = allocate(sections.size)
        set_buffers(job, sections.views(saved))
    results = {name: empty(*shape) for name, shape in _shapes(inputs).items()}
    set_buffers(job, results)  # an empty tensor has no address
    job.forward(torch.get_num_threads())
    return DecoderResults(**results, saved=saved)


def _shapes(inputs: DecoderInputs) -> dict[str, tuple[int, ...]]:
    """The shapes of the results except `saved`; (0,) for a missing state."""
    batch, steps = inputs.gates_x.shape[:2]
    return {
        "output": (batch, steps, inputs.feed if inputs.luong else inputs.hidden),
        "context": (batch, steps, inputs.context_size),
        "weights": (batch, steps, inputs.keys.shape[1]),
        "h_n": (batch, inputs.hidden),
        "c_n": (batch, inputs.hidden) if CELLS[inputs.kind].memory else (0,),
        "fed_n": (batch, inputs.feed) if inputs.luong else (0,),
    }


def _backward(
    inputs: DecoderInputs, kept: DecoderResults, d: DecoderResults, needed: Sequence[bool]
) -> dict[str, Tensor]:
    """The gradients by name."""
    job, alive = _describe(inputs)
    parts = _sections(inputs).views(kept.saved)
    set_buffers(job, parts)
    set_addresses(job, kept, ("output", "weights"), alive)
    seen = (job.set_d_output, d.output), (job.set_d_context, d.context), (job.set_d_weights, d.weights)
    set_sequences(seen, alive)
    set_addresses(job, d, ("h_n", "c_n", "fed_n"), alive, prefix="d_")
    found = {name: empty(*shape) for name, shape in _gradient_shapes(inputs).items()}
    set_buffers(job, found)
    job.backward(torch.get_num_threads())
    return _gradients(inputs, kept.weights, parts, found)


def _gradient_shapes(inputs: DecoderInputs) -> dict[str, tuple[int, ...]]:
    """The buffers that the backward pass writes."""
    batch, steps, wide = inputs.gates_x.shape
    (_, positions, key_size), value_size = inputs.keys.shape, inputs.values.shape[2]
    hidden, feed = inputs.hidden, inputs.feed
    shapes: dict[str, tuple[int, ...]] = {
        "d_gates": (batch, steps, wide),
        "d_seen": (batch, steps, inputs.context_size),
        "d_scores": (batch, steps, inputs.heads, positions),
        "d_query": (batch, steps, key_size),
        "d_h_0": (batch, hidden),
    }
    cell = CELLS[inputs.kind]
    if cell.memory:
        shapes["d_c_0"] = (batch, hidden)
    if cell.candidate and not cell.two_products:
        shapes["d_candidate"] = (batch, steps, hidden)
    if inputs.weight_out is not None:
        shapes["d_looked"] = (batch, steps, value_size)
    if inputs.vector is not None:
        shapes |= {"d_keys": (batch, positions, key_size), "d_vector": (batch, key_size)}
    if inputs.luong:
        shapes |= {"d_mixed": (batch, steps, feed), "d_fed_0": (batch, feed)}
    return shapes


def _gradients(
    inputs: DecoderInputs, weights: Tensor, parts: dict[str, Tensor], found: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The gradients by name: those of the weights are one product over all steps each."""
    as_rows = _narrow if inputs.narrow else _as_is
    d_gates, looking = as_rows(found["d_gates"]), as_rows(parts["hidden_rows" if inputs.luong else "h_entering"])
    result = {"gates_x": found["d_gates"], "h_0": found["d_h_0"]}
    result["weight_feed"] = _over_steps(d_gates, as_rows(parts["fed_rows"]))
    result |= _recurrent_gradients(inputs, parts, found, d_gates)
    for name in ("c_0", "fed_0"):
        if f"d_{name}" in found:
            result[name] = found[f"d_{name}"]
    query = parts.get("query_rows", parts["hidden_rows" if inputs.luong else "h_entering"]).view_as(found["d_query"])
    if inputs.heads > 1:
        weights = parts["head_weights"].view(*query.shape[:2], inputs.heads, -1).transpose(1, 2)
    result |= _memory_gradients(inputs, weights, found, query)
    pairs = [("query", "d_query", looking)]
    pairs += [(name, of, as_rows(parts[rows])) for name, of, rows in _AFTER if rows in parts]
    for name, of, rows in pairs:
        if getattr(inputs, f"weight_{name}") is not None:
            result[f"weight_{name}"] = _over_steps(as_rows(found[of]), rows)
        if getattr(inputs, f"bias_{name}") is not None:
            result[f"bias_{name}"] = found[of].sum((0, 1))
    return result


_AFTER = (("out", "d_seen", "looked"), ("mix", "d_mixed", "mixed"))  # a weight, the gradient of its product, its input


def _as_is(rows: Tensor) -> Tensor:
    """(B, T, N), or (B·T, N) → (B·T, N)."""
    return rows.flatten(0, -2)


def _narrow(rows: Tensor) -> Tensor:
    return rows.flatten(0, -2).bfloat16()


def _over_steps(gradient: Tensor, rows: Tensor) -> Tensor:
    """Σ over all steps of a gradient (B·T, N) times its factor (B·T, M): (N, M)."""
    return (gradient.t() @ rows).float()


def _memory_gradients(
    inputs: DecoderInputs, weights: Tensor, found: dict[str, Tensor], query: Tensor
) -> dict[str, Tensor]:
    """Gradients of keys, values and the additive vector; `weights` (B, T, S), or of each head (B, N, T, S)."""
    heads = inputs.heads
    d_looked = found.get("d_looked", found["d_seen"])
    d_values = weights.mT @ (split_heads(d_looked, heads) if heads > 1 else d_looked)
    result = {"values": join_heads(d_values) if heads > 1 else d_values}
    if inputs.vector is not None:
        return result | {"keys": found["d_keys"], "vector": found["d_vector"].sum(0)}
    d_scores = found["d_scores"].transpose(1, 2) if heads > 1 else found["d_scores"].squeeze(2)
    d_keys = d_scores.mT @ (split_heads(query, heads) if heads > 1 else query)
    return result | {"keys": (join_heads(d_keys) if heads > 1 else d_keys).mul_(inputs.scale)}


def _recurrent_gradients(
    inputs: DecoderInputs, parts: dict[str, Tensor], found: dict[str, Tensor], d_gates: Tensor
) -> dict[str, Tensor]:
    """Gradients of U and its bias. A GRU's candidate is separate: r is between it and its product."""
    cell, as_rows, bias = CELLS[inputs.kind], _narrow if inputs.narrow else _as_is, found["d_gates"].sum((0, 1))
    seen = as_rows(parts.get("seen", parts["h_entering"]))
    if not cell.candidate:
        return {"weight_hh": _over_steps(d_gates, seen), "bias_hh": bias}
    gates = (cell.gates - 1) * inputs.hidden
    if cell.two_products:
        d_candidate, of_candidate = d_gates[:, gates:], as_rows(parts["candidate"])
    else:
        d_candidate, of_candidate = as_rows(found["d_candidate"]), seen
        bias = torch.cat([bias[:gates], found["d_candidate"].sum((0, 1))])
    weight = [_over_steps(d_gates[:, :gates], seen), _over_steps(d_candidate, of_candidate)]
    return {"weight_hh": torch.cat(weight), "bias_hh": bias}


def _fake(inputs: DecoderInputs, save: bool) -> DecoderResults:
    like = inputs.gates_x
    results = {name: like.new_empty(shape) for name, shape in _shapes(inputs).items()}
    return DecoderResults(**results, saved=like.new_empty(_sections(inputs).size if save else 0))


def _fake_gradient(inputs: DecoderInputs, name: str) -> Tensor:
    return inputs.gates_x.new_empty(getattr(inputs, name).shape)


def _check(inputs: DecoderInputs) -> None:
    if inputs.lengths is not None:
        batch, steps, _ = inputs.gates_x.shape
        check_lengths(inputs.lengths, batch, steps, inputs.gates_x.device)


attention = NativeOperator(
    Kernel(
        "attention",
        "The native engine",
        DecoderInputs,
        DecoderResults,
        differentiable="fed_0",
        forward=_forward,
        backward=_backward,
        fake=_fake,
        fake_gradient=_fake_gradient,
        reads=("output", "weights"),
        reference=second_order.run_reference,
        check=_check,
    )
)


def look(score: Score, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """`Score.look`: query (B, T, A), keys (B, S, A), values (B, S, V) → contexts (B, T, V), weights (B, T, S)."""
    job, alive = _native.AttentionJob(), list[Any]()
    job.batch, job.steps, job.key_size = query.shape
    _, job.positions, job.value_size = values.shape
    job.heads, job.scale = score.heads, score.scale
    job.query_rows, job.keys, job.values = (address(part, alive) for part in (query, keys, values))
    if mask is not None:
        job.mask = address(mask, alive)
    if score.vector is not None:
        job.vector = address(score.vector, alive)
    looked, weights = empty(*query.shape[:2], job.value_size), empty(*query.shape[:2], job.positions)
    job.looked, job.weights = looked.data_ptr(), weights.data_ptr()
    job.look(torch.get_num_threads())
    return looked, weights
