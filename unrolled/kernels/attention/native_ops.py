"""Attending decoders of the native engine as torch operators: all steps forward, and back.

`torch.ops.unrolled.attention` takes projected inputs, a memory and weights to outputs, contexts, weights and the final
state; what the backward pass needs comes out as one flat buffer (see `Sections`). Everything is float32 on the CPU.

B batch, T steps, S positions, N heads, G gates, H units, A width of a key, V of a value, C of a context, F of what the
cell is fed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.cells import Score
from unrolled.cells.attending import join_heads, split_heads
from unrolled.kernels.recurrence.native_buffers import (
    GRU_RESET_AFTER,
    GRU_RESET_BEFORE,
    LSTM,
    Lease,
    Order,
    Sections,
    empty,
)
from unrolled.kernels.recurrence.native_ops import (
    address,
    differentiable_once,
    names_of,
    refuse_double_backward,
    set_sequence,
)


def _sections(given: dict[str, Any]) -> Sections:
    """What a run saves, (B·T, ·) rows all of them."""
    gates_x: Tensor = given["gates_x"]
    rows, wide = gates_x.shape[0] * gates_x.shape[1], gates_x.shape[2]
    hidden, kind = given["weight_hh"].shape[1], given["kind"]
    shapes = {"gates": (rows, wide), "h_entering": (rows, hidden), "fed_rows": (rows, given["weight_feed"].shape[1])}
    if given["hidden_mask"] is not None:
        shapes["seen"] = (rows, hidden)
    if kind == LSTM:
        shapes["c_entering"] = (rows, hidden)
    if kind in (GRU_RESET_AFTER, GRU_RESET_BEFORE):
        shapes["candidate"] = (rows, hidden)
    if given["weight_query"] is not None:
        shapes["query_rows"] = (rows, given["keys"].shape[2])
    if given["heads"] > 1:
        shapes["head_weights"] = (rows, given["heads"] * given["keys"].shape[1])
    if given["weight_out"] is not None:
        shapes["looked"] = (rows, given["values"].shape[2])
    if given["luong"]:
        shapes |= {"hidden_rows": (rows, hidden), "mixed": (rows, hidden + _context_size(given))}
    return Sections(shapes)


def _context_size(given: dict[str, Any]) -> int:
    size: int = given["values"].shape[2] if given["weight_out"] is None else given["weight_out"].shape[0]
    return size


def _describe(job: _native.AttentionJob, given: dict[str, Any]) -> list[Any]:
    """Fills in what forward and backward have in common; what is returned must live until the job has run."""
    gates_x, keys, values = given["gates_x"], given["keys"], given["values"]
    job.batch, job.steps, _ = gates_x.shape
    _, job.positions, job.key_size = keys.shape
    job.hidden, job.feed = given["weight_hh"].shape[1], given["weight_feed"].shape[1]
    job.value_size, job.context_size, job.heads = values.shape[2], _context_size(given), given["heads"]
    job.kind, job.luong, job.scale, job.narrow = (given[name] for name in ("kind", "luong", "scale", "narrow"))
    alive: list[Any] = []
    for name in _POINTERS:
        if given[name] is not None:
            setattr(job, name, address(given[name], alive))
    for name in ("gates_x", "feed_mask", "mix_mask"):
        if given[name] is not None:
            alive.append(set_sequence(getattr(job, f"set_{name}"), given[name]))
    order = Order(gates_x, given["lengths"])
    order.describe(job)
    return [*alive, order]


_POINTERS = (
    *("weight_hh", "bias_hh", "weight_feed", "weight_query", "bias_query", "weight_out", "bias_out", "vector"),
    *("weight_mix", "bias_mix", "keys", "values", "mask", "hidden_mask"),
)


def _forward(*inputs: Any, allocate: Callable[[int], Tensor] = empty) -> tuple[Tensor, ...]:
    """Output, context, weights, final h, final c and final h̃ (or nothing), and what is saved."""
    given = dict(zip(_FORWARD_NAMES, inputs, strict=True))
    job = _native.AttentionJob()
    alive = _describe(job, given)
    for name in ("h_0", "c_0", "fed_0"):
        if given[name] is not None:
            setattr(job, name, address(given[name], alive))
    saved = empty(0)
    if given["save"]:
        layout = _sections(given)
        saved = allocate(layout.size)
        for name, part in layout.views(saved).items():
            setattr(job, name, part.data_ptr())
    results = [empty(*shape) for shape in _shapes(given)]
    for name, result in zip(("output", "context", "weights", "h_n", "c_n", "fed_n"), results, strict=True):
        if result.dim() > 1:
            setattr(job, name, result.data_ptr())
    job.forward(torch.get_num_threads())
    return *results, saved


def _shapes(given: dict[str, Any]) -> list[tuple[int, ...]]:
    """Of the results but the last; (0,) for what there is not."""
    batch, steps = given["gates_x"].shape[:2]
    hidden, feed = given["weight_hh"].shape[1], given["weight_feed"].shape[1]
    luong = given["luong"]
    return [
        (batch, steps, feed if luong else hidden),
        (batch, steps, _context_size(given)),
        (batch, steps, given["keys"].shape[1]),
        (batch, hidden),
        (batch, hidden) if given["kind"] == LSTM else (0,),
        (batch, feed) if luong else (0,),
    ]


def _backward(*inputs: Any) -> list[Tensor]:
    """Gradients of the first inputs of `_forward`, `_DIFFERENTIABLE` of them; of what was not given, empty tensors."""
    given = dict(zip(_BACKWARD_NAMES, inputs, strict=True))
    job = _native.AttentionJob()
    alive = _describe(job, given)
    parts = _sections(given).views(given["saved"])
    for name, part in parts.items():
        setattr(job, name, part.data_ptr())
    job.output, job.weights = address(given["output"], alive), address(given["weights"], alive)
    for name in ("d_output", "d_context", "d_weights"):
        if given[name] is not None:
            alive.append(set_sequence(getattr(job, f"set_{name}"), given[name]))
    for name in ("d_h_n", "d_c_n", "d_fed_n"):
        if given[name] is not None:
            setattr(job, name, address(given[name], alive))
    found = {name: empty(*shape) for name, shape in _gradient_shapes(given).items()}
    for name, gradient in found.items():
        setattr(job, name, gradient.data_ptr())
    job.backward(torch.get_num_threads())
    gradients = _gradients(given, parts, found)
    if given["bias_hh"] is None:
        del gradients["bias_hh"]
    return [gradients[name] if name in gradients else empty(0) for name in _FORWARD_NAMES[:_DIFFERENTIABLE]]


def _gradient_shapes(given: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """What the backward pass writes."""
    batch, steps, wide = given["gates_x"].shape
    (_, positions, key_size), value_size = given["keys"].shape, given["values"].shape[2]
    hidden, feed = given["weight_hh"].shape[1], given["weight_feed"].shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        "d_gates": (batch, steps, wide),
        "d_seen": (batch, steps, _context_size(given)),
        "d_scores": (batch, steps, given["heads"], positions),
        "d_query": (batch, steps, key_size),
        "d_h_0": (batch, hidden),
    }
    if given["kind"] == LSTM:
        shapes["d_c_0"] = (batch, hidden)
    if given["kind"] == GRU_RESET_AFTER:
        shapes["d_candidate"] = (batch, steps, hidden)
    if given["weight_out"] is not None:
        shapes["d_looked"] = (batch, steps, value_size)
    if given["vector"] is not None:
        shapes |= {"d_keys": (batch, positions, key_size), "d_vector": (batch, key_size)}
    if given["luong"]:
        shapes |= {"d_mixed": (batch, steps, feed), "d_fed_0": (batch, feed)}
    return shapes


def _gradients(given: dict[str, Any], parts: dict[str, Tensor], found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradients by name: those of the weights are one product over all steps each."""
    as_rows = _narrow if given["narrow"] else _as_is
    d_gates, looking = as_rows(found["d_gates"]), as_rows(parts["hidden_rows" if given["luong"] else "h_entering"])
    result = {"gates_x": found["d_gates"], "h_0": found["d_h_0"]}
    result["weight_feed"] = _over_steps(d_gates, as_rows(parts["fed_rows"]))
    result |= _recurrent_gradients(given, parts, found, d_gates)
    for name in ("c_0", "fed_0"):
        if f"d_{name}" in found:
            result[name] = found[f"d_{name}"]
    query = parts.get("query_rows", parts["hidden_rows" if given["luong"] else "h_entering"]).view_as(found["d_query"])
    result |= _memory_gradients(given, parts, found, query)
    pairs = [("query", "d_query", looking)]
    pairs += [(name, of, as_rows(parts[rows])) for name, of, rows in _AFTER if rows in parts]
    for name, of, rows in pairs:
        if given[f"weight_{name}"] is not None:
            result[f"weight_{name}"] = _over_steps(as_rows(found[of]), rows)
        if given[f"bias_{name}"] is not None:
            result[f"bias_{name}"] = found[of].sum((0, 1))
    return result


_AFTER = (("out", "d_seen", "looked"), ("mix", "d_mixed", "mixed"))  # a weight, its product's gradient, what it read


def _as_is(rows: Tensor) -> Tensor:
    """(B, T, N), or (B·T, N) → (B·T, N)."""
    return rows.flatten(0, -2)


def _narrow(rows: Tensor) -> Tensor:
    return rows.flatten(0, -2).bfloat16()


def _over_steps(gradient: Tensor, rows: Tensor) -> Tensor:
    """Σ over all steps of a gradient (B·T, N) times what was multiplied (B·T, M): (N, M)."""
    return (gradient.t() @ rows).float()


def _memory_gradients(
    given: dict[str, Any], parts: dict[str, Tensor], found: dict[str, Tensor], query: Tensor
) -> dict[str, Tensor]:
    """Of keys, values and the vector of an additive score, head by head."""
    heads, (batch, steps) = given["heads"], query.shape[:2]
    weights = parts["head_weights"].view(batch, steps, heads, -1).transpose(1, 2) if heads > 1 else given["weights"]
    d_looked = found.get("d_looked", found["d_seen"])
    d_values = weights.mT @ (split_heads(d_looked, heads) if heads > 1 else d_looked)
    result = {"values": join_heads(d_values) if heads > 1 else d_values}
    if given["vector"] is not None:
        return result | {"keys": found["d_keys"], "vector": found["d_vector"].sum(0)}
    d_scores = found["d_scores"].transpose(1, 2) if heads > 1 else found["d_scores"].squeeze(2)
    d_keys = d_scores.mT @ (split_heads(query, heads) if heads > 1 else query)
    return result | {"keys": (join_heads(d_keys) if heads > 1 else d_keys).mul_(given["scale"])}


def _recurrent_gradients(
    given: dict[str, Any], parts: dict[str, Tensor], found: dict[str, Tensor], d_gates: Tensor
) -> dict[str, Tensor]:
    """Of U and its bias. A GRU's candidate is apart: r stands between it and its product."""
    kind, as_rows, bias = given["kind"], _narrow if given["narrow"] else _as_is, found["d_gates"].sum((0, 1))
    seen = as_rows(parts.get("seen", parts["h_entering"]))
    if kind not in (GRU_RESET_AFTER, GRU_RESET_BEFORE):
        return {"weight_hh": _over_steps(d_gates, seen), "bias_hh": bias}
    gates = 2 * given["weight_hh"].shape[1]
    if kind == GRU_RESET_AFTER:
        d_candidate, of_candidate = as_rows(found["d_candidate"]), seen
        bias = torch.cat([bias[:gates], found["d_candidate"].sum((0, 1))])
    else:
        d_candidate, of_candidate = d_gates[:, gates:], as_rows(parts["candidate"])
    weight = [_over_steps(d_gates[:, :gates], seen), _over_steps(d_candidate, of_candidate)]
    return {"weight_hh": torch.cat(weight), "bias_hh": bias}


_GIVEN = """Tensor gates_x, Tensor weight_hh, Tensor? bias_hh, Tensor weight_feed, Tensor? weight_query,
Tensor? bias_query, Tensor? weight_out, Tensor? bias_out, Tensor? vector, Tensor? weight_mix, Tensor? bias_mix,
Tensor keys, Tensor values"""
_RUN = """Tensor? mask, Tensor? hidden_mask, Tensor? feed_mask, Tensor? mix_mask, Tensor? lengths, float scale,
int kind, int heads, bool luong, bool narrow"""
_FORWARD_SCHEMA = f"""({_GIVEN}, Tensor h_0, Tensor? c_0, Tensor? fed_0, {_RUN},
bool save) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"""
_BACKWARD_SCHEMA = f"""(Tensor? d_output, Tensor? d_context, Tensor? d_weights, Tensor? d_h_n, Tensor? d_c_n,
Tensor? d_fed_n, Tensor saved, Tensor output, Tensor weights, {_GIVEN}, {_RUN}) -> Tensor[]"""
_FORWARD_NAMES, _BACKWARD_NAMES = names_of(_FORWARD_SCHEMA), names_of(_BACKWARD_SCHEMA)
_STATES = 3
_DIFFERENTIABLE = len(_GIVEN.split(",")) + _STATES  # gates_x, the weights, the memory and the states

attention = torch.library.custom_op(
    "unrolled::attention", lambda *inputs: _forward(*inputs), mutates_args=(), schema=_FORWARD_SCHEMA
)
attention_backward = torch.library.custom_op(
    "unrolled::attention_backward", _backward, mutates_args=(), schema=_BACKWARD_SCHEMA
)


@attention.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    given = dict(zip(_FORWARD_NAMES, inputs, strict=True))
    like: Tensor = given["gates_x"]
    size = _sections(given).size if given["save"] else 0
    return *(like.new_empty(shape) for shape in _shapes(given)), like.new_empty(size)


@attention_backward.register_fake
def _(*inputs: Any) -> list[Tensor]:
    given = dict(zip(_BACKWARD_NAMES, inputs, strict=True))
    like: Tensor = given["gates_x"]
    states = _shapes(given)[3:]
    shapes = [
        (0,) if given[name] is None else given[name].shape for name in _FORWARD_NAMES[: _DIFFERENTIABLE - _STATES]
    ]
    return [like.new_empty(shape) for shape in (*shapes, *states)]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...], saved: Tensor | None = None) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[6])
    ctx.kept = saved  # not seen from outside; otherwise it is among the results
    tensors = [*inputs[: _DIFFERENTIABLE - _STATES], *inputs[_DIFFERENTIABLE : _DIFFERENTIABLE + 5]]
    ctx.save_for_backward(output[6] if saved is None else None, output[0], output[2], *tensors)
    ctx.options = inputs[_DIFFERENTIABLE + 5 : -1]


def _pull_back(ctx: Any, call: Callable[..., Sequence[Tensor]], *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    saved, *tensors = ctx.saved_tensors
    found = call(*gradients[:6], ctx.kept if saved is None else saved, *tensors, *ctx.options)
    needed = ctx.needs_input_grad[:_DIFFERENTIABLE]
    others = (None,) * (len(ctx.needs_input_grad) - _DIFFERENTIABLE)
    return *(g if need else None for g, need in zip(found, needed, strict=True)), *others


def _attention_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    return _pull_back(ctx, attention_backward, *gradients)


attention.register_autograd(_attention_backward, setup_context=_set_up)
attention_backward.register_autograd(refuse_double_backward)


class _Eager(torch.autograd.Function):
    """The operator without the dispatcher, and with a buffer that is used again."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        ctx.lease = Lease()
        results = _forward(*inputs, allocate=ctx.lease.allocate)
        _set_up(ctx, inputs, results, saved=results[6])
        return *results[:6], empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return _pull_back(ctx, _eager_backward, *gradients)


_eager_backward = differentiable_once(_backward)


def run_attention(*inputs: Any) -> tuple[Tensor, ...]:
    """`torch.ops.unrolled.attention`, by the shortest way."""
    results: tuple[Tensor, ...]
    if torch.compiler.is_compiling() or type(inputs[0]) not in (Tensor, torch.nn.Parameter):
        results = attention(*inputs)
    elif inputs[-1]:  # save
        results = _Eager.apply(*inputs)  # type: ignore[no-untyped-call]  # torch's
    else:
        results = _forward(*inputs)
    return results


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
