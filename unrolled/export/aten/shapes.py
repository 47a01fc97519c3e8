"""Operators that move numbers without changing them: views, slices, gathers, fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from unrolled.errors import UserError
from unrolled.export.onnx_graph import GraphValue, GraphWriter, Size

aten = torch.ops.aten
_END = np.iinfo(np.int64).max


def _axis(value: GraphValue, dim: int) -> int:
    return dim % max(value.rank, 1)


def _view(graph: GraphWriter, made: GraphValue, a: GraphValue, sizes: Sequence[int | Size]) -> str:
    return graph.node("Reshape", a.name, graph.shape(sizes), allowzero=0 if -1 in sizes else 1)


def _permute(graph: GraphWriter, made: GraphValue, a: GraphValue, order: Sequence[int]) -> str:
    return graph.node("Transpose", a.name, perm=[_axis(a, dim) for dim in order])


def _swapped(graph: GraphWriter, made: GraphValue, a: GraphValue, first: int = 0, second: int = 1) -> str:
    order = list(range(a.rank))
    first, second = _axis(a, first), _axis(a, second)
    order[first], order[second] = order[second], order[first]
    return graph.node("Transpose", a.name, perm=order)


def _unsqueeze(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int) -> str:
    return graph.node("Unsqueeze", a.name, graph.ints(dim % (a.rank + 1)))


def _squeeze(graph: GraphWriter, made: GraphValue, a: GraphValue, dims: int | Sequence[int]) -> str:
    chosen = [_axis(a, dim) for dim in ([dims] if isinstance(dims, int) else dims)]
    chosen = [dim for dim in chosen if a.shape[dim] == 1]
    return graph.node("Squeeze", a.name, graph.ints(*chosen)) if chosen else a.name


def _slice(
    graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> str:
    first = 0 if start is None else start
    last = _END if end is None else end
    return graph.node("Slice", a.name, graph.shape([first]), graph.shape([last]), graph.ints(_axis(a, dim)),
                      graph.ints(step))  # fmt: skip


def _select(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int, index: int | Size) -> str:
    return graph.node("Gather", a.name, graph.size(index), axis=_axis(a, dim))


def _cat(graph: GraphWriter, made: GraphValue, parts: Sequence[GraphValue], dim: int = 0) -> str:
    # torch takes an empty vector beside tensors of any rank
    names = [graph.tensor(part, made.dtype) for part in parts if part.rank == made.rank]
    return names[0] if len(names) == 1 else graph.node("Concat", *names, axis=dim % made.rank)


def _split(graph: GraphWriter, made: Sequence[GraphValue], a: GraphValue, sizes: Any, dim: int = 0) -> list[str]:
    outputs = [graph.fresh("Split") for _ in made]
    lengths = graph.shape(sizes) if isinstance(sizes, (list, tuple)) else graph.ints(*(
        _known(part.shape[_axis(a, dim)], "split") for part in made
    ))  # fmt: skip
    return graph.split_node("Split", [a.name, lengths], outputs, axis=_axis(a, dim))


def _unbind(graph: GraphWriter, made: Sequence[GraphValue], a: GraphValue, dim: int = 0) -> list[str]:
    return [_select(graph, part, a, dim, index) for index, part in enumerate(made)]


def _expand(graph: GraphWriter, made: GraphValue, a: GraphValue, sizes: Sequence[int | Size], **_: Any) -> str:
    return graph.node("Expand", a.name, graph.shape([1 if size == -1 else size for size in sizes]))


def _full(graph: GraphWriter, made: GraphValue, sizes: Sequence[int | Size], value: Any, **_: Any) -> str:
    return graph.node("Expand", graph.tensor(value, made.dtype), graph.shape(sizes))


def _filled(number: float) -> Callable[..., str]:
    def rule(graph: GraphWriter, made: GraphValue, sizes: Sequence[int | Size], **_: Any) -> str:
        return _full(graph, made, sizes, number)

    return rule


def _full_like(graph: GraphWriter, made: GraphValue, a: GraphValue, value: Any, **_: Any) -> str:
    return graph.node("Expand", graph.tensor(value, made.dtype), graph.node("Shape", a.name))


def _filled_like(number: float) -> Callable[..., str]:
    def rule(graph: GraphWriter, made: GraphValue, a: GraphValue, **_: Any) -> str:
        return _full_like(graph, made, a, number)

    return rule


def _arange(graph: GraphWriter, made: GraphValue, start: Any, end: Any, step: Any = 1, **_: Any) -> str:
    return graph.node("Range", *(graph.tensor(one, made.dtype) for one in (start, end, step)))


def _embedding(graph: GraphWriter, made: GraphValue, weight: GraphValue, ids: GraphValue, *_: Any, **__: Any) -> str:
    return graph.node("Gather", weight.name, ids.name, axis=0)


def _gather(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int, index: GraphValue, **_: Any) -> str:
    return graph.node("GatherElements", a.name, index.name, axis=_axis(a, dim))


def _index_select(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int, index: GraphValue) -> str:
    return graph.node("Gather", a.name, index.name, axis=_axis(a, dim))


def _index(graph: GraphWriter, made: GraphValue, a: GraphValue, indices: Sequence[GraphValue | None]) -> str:
    """a[…, i, …], or a[i, j, …] with indices of the first axes that are broadcast together."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) == 1:
        axis, index = given[0]
        return graph.node("Gather", a.name, index.name, axis=axis)
    if [axis for axis, _ in given] != list(range(len(given))):
        raise UserError("A network indexes a tensor in a way that has no rule for ONNX.", "Index its first axes.")
    rank = max(index.rank for _, index in given)
    together = given[0][1].name
    for _, index in given[1:]:  # the common shape
        together = graph.node("Add", together, index.name)
    shape = graph.node("Shape", together)
    parts = [graph.node("Unsqueeze", graph.node("Expand", index.name, shape), graph.ints(rank)) for _, index in given]
    return graph.node("GatherND", a.name, graph.node("Concat", *parts, axis=rank))


def _unfold(graph: GraphWriter, made: GraphValue, a: GraphValue, dim: int, size: int, step: int) -> str:
    """Windows along an axis; the places inside a window become the last axis."""
    axis = _axis(a, dim)
    last = graph.node("Sub", graph.size_of(a.name, axis).name, graph.scalar(size - 1, torch.int64))
    starts = graph.node("Range", graph.scalar(0, torch.int64), last, graph.scalar(step, torch.int64))
    places = graph.node("Add", graph.node("Unsqueeze", starts, graph.ints(1)), graph.ints(*range(size)))
    windows = graph.node("Gather", a.name, places, axis=axis)  # (…, windows, size, …)
    order = [at for at in range(a.rank + 1) if at != axis + 1] + [axis + 1]
    return windows if order == sorted(order) else graph.node("Transpose", windows, perm=order)


def _pad(graph: GraphWriter, made: GraphValue, a: GraphValue, widths: Sequence[int | Size], value: float = 0.0) -> str:
    """torch names the widths of the last axis first, ONNX all beginnings and then all ends."""
    before: list[int | Size] = [0] * a.rank
    after: list[int | Size] = [0] * a.rank
    for place in range(len(widths) // 2):
        before[a.rank - 1 - place], after[a.rank - 1 - place] = widths[2 * place], widths[2 * place + 1]
    return graph.node("Pad", a.name, graph.shape([*before, *after]), graph.scalar(value, made.dtype))


def _repeat(graph: GraphWriter, made: GraphValue, a: GraphValue, times: Sequence[int | Size]) -> str:
    missing = len(times) - a.rank
    name = graph.node("Unsqueeze", a.name, graph.ints(*range(missing))) if missing else a.name
    return graph.node("Tile", name, graph.shape(times))


def _flip(graph: GraphWriter, made: GraphValue, a: GraphValue, dims: Sequence[int]) -> str:
    axes = [_axis(a, dim) for dim in dims]
    starts, ends = graph.ints(*[-1] * len(axes)), graph.ints(*[-_END] * len(axes))
    return graph.node("Slice", a.name, starts, ends, graph.ints(*axes), graph.ints(*[-1] * len(axes)))


def _known(size: int | None, kind: str) -> int:
    if size is None:
        raise UserError(f"A network has a {kind} of a size that is free, which has no rule for ONNX.")
    return size


RULES: dict[Any, Callable[..., Any]] = {
    aten.view.default: _view,
    aten.reshape.default: _view,
    aten._unsafe_view.default: _view,
    aten.permute.default: _permute,
    aten.transpose.int: _swapped,
    aten.t.default: _swapped,
    aten.unsqueeze.default: _unsqueeze,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.cat.default: _cat,
    aten.split_with_sizes.default: _split,
    aten.split.Tensor: _split,
    aten.unbind.int: _unbind,
    aten.expand.default: _expand,
    aten.full.default: _full,
    aten.zeros.default: _filled(0),
    aten.ones.default: _filled(1),
    aten.empty.memory_format: _filled(0),
    aten.full_like.default: _full_like,
    aten.zeros_like.default: _filled_like(0),
    aten.ones_like.default: _filled_like(1),
    aten.arange.start_step: _arange,
    aten.embedding.default: _embedding,
    aten.gather.default: _gather,
    aten.index_select.default: _index_select,
    aten.index.Tensor: _index,
    aten.unfold.default: _unfold,
    aten.constant_pad_nd.default: _pad,
    aten.repeat.default: _repeat,
    aten.flip.default: _flip,
}
