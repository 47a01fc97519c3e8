"""Recurrent layers in ONNX: its RNN, LSTM and GRU nodes where they compute the same, else a Scan of the cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unrolled.cells import BuiltIn
from unrolled.export.cell_loop import write_loop
from unrolled.export.onnx_graph import GraphValue, GraphWriter
from unrolled.kernels.recurrence.onnx_node import (
    cell_refusal,
    node_attributes,
    node_peepholes,
    node_type,
    node_weights,
)
from unrolled.nn.dropin import DropIn
from unrolled.nn.recurrent import Recurrent


class LayerParts(NamedTuple):
    """A stack of recurrent layers: the cells of all layers and directions in order, and what happens around them."""

    cells: list[Any]
    directions: int
    combine: str
    shares: Tensor | None  # of the layers in the output, combine="mix"
    keep: list[float]  # share of each old state that zoneout keeps

    @classmethod
    def of(cls, layer: DropIn | Recurrent) -> LayerParts:
        """The parts of a layer."""
        directions = 2 if layer.bidirectional else 1
        shares = None
        if layer.combine == "mix":
            shares = layer.get_parameter("combine_weight").detach().float().softmax(0)
        if isinstance(layer, Recurrent):
            cells: list[Any] = list(layer.cells.values())
            keep = [layer.zoneout] * len(cells[0].state_names)
            return cls(cells, directions, layer.combine, shares, keep)
        cells = [_cell(layer, name) for name in layer._run_names()]
        return cls(cells, directions, layer.combine, shares, list(layer.zoneout))


class LayerRun(NamedTuple):
    """One layer of the stack: its input (T, B, D), lengths, and initial states (directions, B, size) by name."""

    x: str
    lengths: str | None  # int64
    states: list[str]  # none: zeros


def write_layer(
    graph: GraphWriter,
    layer: DropIn | Recurrent,
    x: GraphValue,
    state: Sequence[GraphValue],
    lengths: GraphValue | None,
) -> list[str]:
    """Write all layers and directions: x (B, T, D) → output (B, T, O), final states (L·directions, B, size)."""
    parts = LayerParts.of(layer)
    directions = parts.directions
    sequence = graph.node("Transpose", x.name, perm=[1, 0, 2])  # (T, B, D)
    outputs: list[str] = []
    finals: list[list[str]] = []
    for first in range(0, len(parts.cells), directions):
        initial = [
            graph.node("Slice", one.name, graph.ints(first), graph.ints(first + directions), graph.ints(0))
            for one in state
        ]
        given = LayerRun(sequence, None if lengths is None else lengths.name, initial)
        sequence, final = _write_run(graph, parts.cells[first : first + directions], parts.keep, given)
        outputs.append(sequence)
        finals.append(final)
    output = graph.node("Transpose", _combined(graph, parts, outputs), perm=[1, 0, 2])
    return [output, *_joined(graph, finals)]


def _cell(layer: DropIn, name: str) -> Any:
    """The cell of one direction of a layer, with its weights."""
    parameters = {f"{kind}_{name}": getattr(layer, f"{kind}_{name}").detach() for kind in layer._kinds()}
    return layer._cell_builder(name, None, None)(parameters)


def _combined(graph: GraphWriter, parts: LayerParts, outputs: list[str]) -> str:
    """The output of a stack from those of its layers, (T, B, O) each."""
    if parts.combine == "last" or len(outputs) == 1:
        return outputs[-1]
    if parts.combine == "concat":
        return graph.node("Concat", *outputs, axis=2)
    shares = torch.full((len(outputs),), 1 / len(outputs)) if parts.shares is None else parts.shares
    weighted = [
        graph.node("Mul", name, graph.scalar(float(share), torch.float32))
        for name, share in zip(outputs, shares, strict=True)
    ]
    return graph.node("Sum", *weighted)


def _joined(graph: GraphWriter, parts: list[list[str]]) -> list[str]:
    """Each state of several layers or directions, one after the other."""
    return [one[0] if len(one) == 1 else graph.node("Concat", *one, axis=0) for one in zip(*parts, strict=True)]


def _write_run(graph: GraphWriter, cells: list[Any], keep: Sequence[float], run: LayerRun) -> tuple[str, list[str]]:
    """One layer in all its directions → (T, B, directions·size), final states (directions, B, size)."""
    if not any(keep) and cell_refusal(cells[0]) is None:
        return _write_node(graph, cells, run)
    loops = [write_loop(graph, cell, run.x, run.lengths, run.states, place, keep) for place, cell in enumerate(cells)]
    if len(loops) == 1:
        return loops[0].output, loops[0].finals
    output = graph.node("Concat", *(loop.output for loop in loops), axis=2)
    return output, _joined(graph, [loop.finals for loop in loops])


def _write_node(graph: GraphWriter, cells: list[BuiltIn], run: LayerRun) -> tuple[str, list[str]]:
    cell, hidden = cells[0], cells[0].hidden_size
    kind = node_type(cell)
    states = run.states
    lengths = real = ""
    if run.lengths is not None:  # runtimes take lengths from 1 up: an empty row reads one step, which is dropped
        least = graph.node("Max", run.lengths, graph.ints(1))
        lengths = graph.cast(least, torch.int32)
        real = graph.node("Greater", run.lengths, graph.ints(0))  # (B,)
    weights = [_constant(graph, parts) for parts in zip(*map(node_weights, cells), strict=True)]
    inputs = [run.x, *weights, lengths, *(states or [""] * len(cell.state_names))]
    inputs.append(_constant(graph, [node_peepholes(one) for one in cells]))
    while not inputs[-1]:
        inputs.pop()
    outputs = [graph.fresh(kind) for _ in range(1 + len(cell.state_names))]
    direction = "bidirectional" if len(cells) == 2 else "forward"
    graph.split_node(kind, inputs, outputs, direction=direction, **node_attributes(cell, len(cells)))
    output, *finals = outputs
    if real:
        column, zero = graph.node("Unsqueeze", real, graph.ints(1)), graph.scalar(0, torch.float32)  # (B, 1)
        output = graph.node("Where", column, output, zero)
        before = states or [zero] * len(finals)
        finals = [graph.node("Where", column, new, old) for new, old in zip(finals, before, strict=True)]
    turned = graph.node("Transpose", output, perm=[0, 2, 1, 3])  # (T, B, directions, H)
    return graph.node("Reshape", turned, graph.ints(0, 0, len(cells) * hidden)), finals


def _constant(graph: GraphWriter, parts: Sequence[Tensor | None]) -> str:
    """The weights of all directions, (1, …) each, as one constant; "" if there are none."""
    given = [part.detach().float().cpu() for part in parts if part is not None]
    return graph.constant(torch.cat(given).numpy()) if given else ""
