"""Operators that combine numbers: products, convolutions, sums, maxima, softmax, norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from unrolled.errors import UserError
from unrolled.export.onnx_graph import GraphValue, GraphWriter

aten = torch.ops.aten


def _axes(a: GraphValue, dims: Any) -> list[int]:
    if dims is None or dims == []:
        return list(range(a.rank))
    return [dim % a.rank for dim in ([dims] if isinstance(dims, int) else dims)]


def _product(graph: GraphWriter, made: GraphValue, a: GraphValue, b: GraphValue) -> str:
    return graph.node("MatMul", a.name, b.name)


def _sum_and_product(
    graph: GraphWriter,
    made: GraphValue,
    bias: GraphValue,
    a: GraphValue,
    b: GraphValue,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> str:
    return graph.node("Gemm", a.name, b.name, bias.name, alpha=float(alpha), beta=float(beta))


def _batched(
    graph: GraphWriter,
    made: GraphValue,
    bias: GraphValue,
    a: GraphValue,
    b: GraphValue,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> str:
    product = graph.node("Mul", graph.node("MatMul", a.name, b.name), graph.scalar(alpha, made.dtype))
    return graph.node("Add", graph.node("Mul", bias.name, graph.scalar(beta, made.dtype)), product)


def _reduce(kind: str) -> Callable[..., str]:
    def rule(
        graph: GraphWriter, made: GraphValue, a: GraphValue, dims: Any = None, keepdim: bool = False, **_: Any
    ) -> str:
        axes = graph.ints(*_axes(a, dims))
        return graph.node(kind, graph.tensor(a, made.dtype), axes, keepdims=int(keepdim))

    return rule


def _any(graph: GraphWriter, made: GraphValue, a: GraphValue, dims: Any = None, keepdim: bool = False) -> str:
    axes = graph.ints(*_axes(a, dims))
    found = graph.node("ReduceMax", graph.cast(a.name, torch.int64), axes, keepdims=int(keepdim))
    return graph.cast(found, torch.bool)


def _argmax(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int = -1, keepdim: bool = False) -> str:
    return graph.node("ArgMax", a.name, axis=dim % a.rank, keepdims=int(keepdim))


def _max_dim(
    graph: GraphWriter, made: Sequence[GraphValue], a: GraphValue, dim: int, keepdim: bool = False
) -> list[str]:
    return [_reduce("ReduceMax")(graph, a, a, dim, keepdim), _argmax(graph, a, a, dim, keepdim)]


def _cumsum(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int, **_: Any) -> str:
    return graph.node("CumSum", graph.tensor(a, made.dtype), graph.scalar(dim % a.rank, torch.int64))


def _softmax(kind: str) -> Callable[..., str]:
    def rule(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int, *_: Any) -> str:
        return graph.node(kind, graph.tensor(a, made.dtype), axis=dim % a.rank)

    return rule


def _layer_norm(
    graph: GraphWriter,
    made: Sequence[GraphValue],
    a: GraphValue,
    sizes: Sequence[int],
    gain: GraphValue | None,
    shift: GraphValue | None,
    epsilon: float,
) -> list[str]:
    width = tuple(int(size) for size in sizes)
    weight = graph.constant(np.ones(width, np.float32)) if gain is None else gain.name
    bias = [] if shift is None else [shift.name]
    return [graph.node("LayerNormalization", a.name, weight, *bias, axis=-len(width), epsilon=epsilon)]


def _group_norm(
    graph: GraphWriter,
    made: Sequence[GraphValue],
    a: GraphValue,
    gain: GraphValue | None,
    shift: GraphValue | None,
    rows: Any,
    channels: Any,
    places: Any,
    groups: int,
    epsilon: float,
) -> list[str]:
    """Each group of channels is one instance with mean 0 and variance 1."""
    flat = graph.node("Reshape", a.name, graph.shape([rows, groups, -1]))
    ones, zeros = (graph.constant(np.full(groups, number, np.float32)) for number in (1, 0))
    normal = graph.node("InstanceNormalization", flat, ones, zeros, epsilon=epsilon)
    found = graph.node("Reshape", normal, graph.node("Shape", a.name))
    axes = graph.ints(*range(1, a.rank - 1))  # (C,) → (C, 1, …)
    if gain is not None:
        found = graph.node("Mul", found, graph.node("Unsqueeze", gain.name, axes))
    return [found if shift is None else graph.node("Add", found, graph.node("Unsqueeze", shift.name, axes))]


def _convolution(
    graph: GraphWriter,
    made: GraphValue,
    a: GraphValue,
    weight: GraphValue,
    bias: GraphValue | None,
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    transposed: bool,
    _: Any,
    groups: int,
) -> str:
    if transposed:
        raise UserError("A transposed convolution has no rule for ONNX.", "Leave it out of the network.")
    inputs = [a.name, weight.name] + ([] if bias is None else [bias.name])
    return graph.node(
        "Conv", *inputs, strides=list(strides), pads=[*padding, *padding], dilations=list(dilations), group=groups
    )


def _max_pool(
    graph: GraphWriter,
    made: Sequence[GraphValue],
    a: GraphValue,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilations: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[str]:
    axes = len(kernel)
    pads, steps = ([*given] * (axes // len(given)) for given in (padding, dilations))
    found = graph.node(
        "MaxPool", a.name, kernel_shape=list(kernel), strides=list(strides or kernel), pads=[*pads, *pads],
        dilations=steps, ceil_mode=int(ceil_mode),
    )  # fmt: skip
    return [found]


def _mean_pool(graph: GraphWriter, made: GraphValue, a: GraphValue, sizes: Sequence[int]) -> str:
    """Means over a grid of `sizes` cells; each side of the picture must be a multiple of its cells."""
    sides = a.shape[-2:]
    if None in sides or any(side % cells for side, cells in zip(sides, sizes, strict=True)):  # type: ignore[operator]
        raise UserError(
            f"A mean over a grid of {tuple(sizes)} of maps of {sides} has no rule for ONNX.", "Choose sizes that fit."
        )
    kernel = [side // cells for side, cells in zip(sides, sizes, strict=True)]  # type: ignore[operator]
    return graph.node("AveragePool", a.name, kernel_shape=kernel, strides=kernel)


def _embedding_bag(
    graph: GraphWriter,
    made: Sequence[GraphValue],
    weight: GraphValue,
    ids: GraphValue,
    starts: GraphValue,
    scale_by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: GraphValue | None = None,
    *_: Any,
) -> list[str]:
    """The weighted sum of the rows of each bag: (ids,), (bags,) → (bags, D)."""
    assert mode == 0, "networks of ours add up"
    rows = graph.node("Gather", weight.name, ids.name, axis=0)  # (N, D)
    if weights is not None:
        rows = graph.node("Mul", rows, graph.node("Unsqueeze", weights.name, graph.ints(1)))
    # the bag of an id: how many bags have begun at its place, less one; an empty bag may begin behind the last id
    room = graph.node("Add", graph.node("Shape", ids.name), graph.ints(1))
    none, each = graph.scalar(0, torch.int64), graph.scalar(1, torch.int64)
    ones = graph.node("Expand", each, graph.node("Shape", starts.name))
    begin = graph.node("ScatterElements", graph.node("Expand", none, room), starts.name, ones, axis=0, reduction="add")
    begun = graph.node("CumSum", begin, none)  # (N + 1,)
    bags = graph.node("Sub", graph.node("Slice", begun, graph.ints(0), graph.ints(-1)), each)
    bags = graph.node("Unsqueeze", bags, graph.ints(1))
    shape = graph.node(
        "Concat", graph.node("Shape", starts.name), graph.node("Shape", weight.name, start=1, end=2), axis=0
    )
    empty = graph.node("Expand", graph.scalar(0, weight.dtype), shape)
    return [graph.node("ScatterND", empty, bags, rows, reduction="add")]


RULES: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.matmul.default: _product,
    aten.mv.default: _product,
    aten.addmm.default: _sum_and_product,
    aten.baddbmm.default: _batched,
    aten.sum.dim_IntList: _reduce("ReduceSum"),
    aten.sum.default: _reduce("ReduceSum"),
    aten.mean.dim: _reduce("ReduceMean"),
    aten.mean.default: _reduce("ReduceMean"),
    aten.amax.default: _reduce("ReduceMax"),
    aten.amin.default: _reduce("ReduceMin"),
    aten.any.dim: _any,
    aten.any.default: _any,
    aten.argmax.default: _argmax,
    aten.max.dim: _max_dim,
    aten.cumsum.default: _cumsum,
    aten._softmax.default: _softmax("Softmax"),
    aten._log_softmax.default: _softmax("LogSoftmax"),
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.convolution.default: _convolution,
    aten.max_pool2d_with_indices.default: _max_pool,
    aten._adaptive_avg_pool2d.default: _mean_pool,
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
}
