"""A cell as the body of an ONNX Scan, recorded from its own `step`: for cells that no ONNX node computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from unrolled.cells import AnyCell
from unrolled.export.nodes import write_node
from unrolled.export.onnx_graph import GraphValue, GraphWriter, value_info

ROWS = 2  # of the example that is recorded; no step depends on their number


class Loop(NamedTuple):
    """The names of a loop's results: output (T, B, O), and final states (1, B, size)."""

    output: str
    finals: list[str]


def write_loop(
    graph: GraphWriter,
    cell: AnyCell,
    x: str,
    lengths: str | None,
    states: Sequence[str],
    place: int,
    keep: Sequence[float],
) -> Loop:
    """Write a cell over all steps of x (T, B, D).

    The direction `place` is 0 forward and 1 backward; `states` hold both. `keep` is the share of each old state that
    zoneout keeps.
    """
    order = _backward_order(graph, x, lengths) if place else None
    given = x if order is None else _reordered(graph, x, order)
    weight = getattr(cell, "weight_ih", None)
    width = int(weight.shape[1]) if isinstance(weight, Tensor) else int(getattr(cell, "input_size"))  # noqa: B009
    body = GraphWriter(graph)
    entering = [graph.fresh("state") for _ in cell.state_names]
    step_x, step_real = graph.fresh("x"), graph.fresh("real")
    sizes = list(cell.state_sizes)
    results = _write_step(body, cell, (step_x, width), list(zip(entering, sizes, strict=True)))
    left, output = _kept(body, results, entering, keep, step_real if lengths is not None else None)
    infos = [value_info(name, torch.float32, (None, size)) for name, size in zip(entering, sizes, strict=True)]
    infos.append(value_info(step_x, torch.float32, (None, width)))
    scanned = [given]
    if lengths is not None:
        infos.append(value_info(step_real, torch.bool, (None, 1)))
        scanned.append(_real_steps(graph, x, lengths))
    made = [value_info(name, torch.float32, (None, None)) for name in (*left, output)]
    initial = _initial(graph, x, states, place, sizes)
    names = [graph.fresh("Scan") for _ in range(len(sizes) + 1)]
    graph.split_node(
        "Scan", [*initial, *scanned], names, body=body.body(infos, made, graph.fresh("cell")),
        num_scan_inputs=len(scanned),
    )  # fmt: skip
    *finals, outputs = names
    turned = outputs if order is None else _reordered(graph, outputs, order)
    return Loop(turned, [graph.node("Unsqueeze", one, graph.ints(0)) for one in finals])


def _write_step(body: GraphWriter, cell: AnyCell, x: tuple[str, int], states: Sequence[tuple[str, int]]) -> list[str]:
    """The output and the new states of one step."""

    def step(row: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        output, new = cell.step(cell.project(row), state)[:2]
        return (output, *new)

    examples = [torch.zeros(ROWS, width) for _, width in (x, *states)]
    with torch.no_grad():
        record = make_fx(
            step,
            decomposition_table=torch.export.default_decompositions(),  # type: ignore[arg-type]
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )
        recorded = record(*examples)
    values: dict[fx.Node, Any] = {}
    names = iter([x, *states])
    for node in recorded.graph.nodes:
        if node.op == "placeholder":
            name, width = next(names)
            values[node] = GraphValue(name, torch.float32, (None, width))
        elif node.op == "get_attr":
            tensor = getattr(recorded, str(node.target)).detach().float().contiguous()
            values[node] = GraphValue(body.constant(tensor.numpy()), torch.float32, tuple(tensor.shape))
        elif node.op == "call_function":
            values[node] = write_node(body, node, values)
    (results,) = recorded.graph.output_node().args
    return [body.node("Identity", values[one].name) for one in results]  # type: ignore[union-attr, index]


def _kept(
    body: GraphWriter, results: Sequence[str], entering: Sequence[str], keep: Sequence[float], real: str | None
) -> tuple[list[str], str]:
    """The states left after zoneout and padding, and the output, zero in the padding."""
    output, *new = results
    if any(keep):
        mixed = []
        for name, old, share in zip(new, entering, keep, strict=True):
            kept = body.node("Mul", old, body.scalar(share, torch.float32))
            mixed.append(body.node("Add", kept, body.node("Mul", name, body.scalar(1 - share, torch.float32))))
        new, output = mixed, mixed[0]
    if real is not None:
        new = [body.node("Where", real, name, old) for name, old in zip(new, entering, strict=True)]
        output = body.node("Where", real, output, body.scalar(0, torch.float32))
    # a loop's results need names of their own
    return [body.node("Identity", name) for name in new], body.node("Identity", output)


def _initial(graph: GraphWriter, x: str, states: Sequence[str], place: int, sizes: Sequence[int]) -> list[str]:
    """The initial states (B, size): those of the direction, or zeros."""
    if states:
        return [graph.node("Gather", one, graph.scalar(place, torch.int64), axis=0) for one in states]
    rows = graph.size_of(x, 1)
    return [graph.node("Expand", graph.scalar(0, torch.float32), graph.shape([rows, size])) for size in sizes]


def _steps(graph: GraphWriter, x: str) -> str:
    """0 … T − 1, (T, 1)."""
    parts = (graph.size(0), graph.size_of(x, 0).name, graph.size(1))
    return graph.node("Unsqueeze", graph.node("Range", *parts), graph.ints(1))


def _real_steps(graph: GraphWriter, x: str, lengths: str) -> str:
    """(T, B, 1), True before each length."""
    return graph.node("Unsqueeze", graph.node("Less", _steps(graph, x), lengths), graph.ints(2))


def _backward_order(graph: GraphWriter, x: str, lengths: str | None) -> str:
    """The step to read at each step backward, (T, B): a row's real steps reversed, its padding in place."""
    steps = _steps(graph, x)
    if lengths is None:
        rows = graph.node("Shape", x, start=1, end=2)
        lengths = graph.node("Expand", graph.size_of(x, 0).name, rows)
    turned = graph.node("Sub", graph.node("Sub", lengths, graph.ints(1)), steps)  # (T, B)
    return graph.node("Where", graph.node("Less", steps, lengths), turned, steps)


def _reordered(graph: GraphWriter, x: str, order: str) -> str:
    """The steps of (T, B, D) in an order of their own for each row."""
    full = graph.node("Expand", graph.node("Unsqueeze", order, graph.ints(2)), graph.node("Shape", x))
    return graph.node("GatherElements", x, full, axis=0)
