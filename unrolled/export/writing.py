"""Writes a recorded computation as an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch
from torch import Tensor, fx
from torch.export.graph_signature import InputKind

from unrolled.export.layers import write_layer
from unrolled.export.nodes import named, unnamed, write_node
from unrolled.export.onnx_graph import GraphValue, GraphWriter, value_info
from unrolled.export.recording import Argument, Recorded

LAYER = torch.ops.unrolled_export.layer.default


def write_graph(
    recorded: Recorded, arguments: Sequence[Argument], outputs: Sequence[str], name: str
) -> onnx.ModelProto:
    """The ONNX model of a recorded computation; `outputs` name its results in order."""
    graph, program = GraphWriter(), recorded.program
    values: dict[fx.Node, Any] = {}
    inputs = _inputs(graph, recorded, arguments, values)
    results: list[Any] = []
    for node in program.graph.nodes:
        if node.op == "call_function":
            values[node] = (
                _layer(graph, node, values, recorded) if node.target is LAYER else write_node(graph, node, values)
            )
        elif node.op == "output":
            results = [values[one] if isinstance(one, fx.Node) else one for one in node.args[0]]
    free = _names_of_sizes(program.graph, arguments)
    made = []
    for wanted, result in zip(outputs, results, strict=True):
        example = _meta_of(program.graph, result, values)
        graph.node("Identity", result.name, name=wanted)
        made.append(value_info(wanted, result.dtype, [_free_name(size, free) for size in example.shape]))
    return graph.model(inputs, made, name)


def _layer(graph: GraphWriter, node: fx.Node, values: Mapping[fx.Node, Any], recorded: Recorded) -> list[GraphValue]:
    given: Any = fx.map_arg(node.args, lambda one: values[one])
    x, state, lengths, name, _ = given
    names = write_layer(graph, recorded.layers[name], x, state, lengths)
    return [named(value, name) for value, name in zip(unnamed(node.meta["val"]), names, strict=True)]


def _inputs(
    graph: GraphWriter, recorded: Recorded, arguments: Sequence[Argument], values: dict[fx.Node, Any]
) -> list[onnx.ValueInfoProto]:
    """The graph's inputs; weights become constants, a shared one once."""
    program = recorded.program
    given, infos = iter(arguments), []
    known: dict[tuple[Any, ...], str] = {}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, entry in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if entry.kind is InputKind.USER_INPUT:
            argument = next(given)
            values[node] = named(unnamed(node.meta["val"]), argument.name)
            shape = [argument.free.get(axis, size) for axis, size in enumerate(argument.example.shape)]
            infos.append(value_info(argument.name, argument.example.dtype, shape))
            continue
        assert entry.target is not None
        stored = program.constants if entry.kind is InputKind.CONSTANT_TENSOR else program.state_dict
        tensor = stored[entry.target] if entry.target in stored else program.constants[entry.target]
        assert isinstance(tensor, Tensor)
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in known or not tensor.numel():
            name = entry.target.removeprefix("network.")
            known[key] = graph.constant(tensor.detach().cpu().contiguous().numpy(), name)
        values[node] = named(unnamed(node.meta["val"]), known[key])
    return infos


def _meta_of(graph: fx.Graph, result: GraphValue, values: Mapping[fx.Node, Any]) -> Tensor:
    (node,) = [node for node, value in values.items() if value is result][:1]
    example: Tensor = node.meta["val"]
    return example


def _names_of_sizes(graph: fx.Graph, arguments: Sequence[Argument]) -> dict[str, str]:
    """The symbols of torch's recording → the names of the free sizes of inputs."""
    names: dict[str, str] = {}
    users = [node for node in graph.nodes if node.op == "placeholder"][-len(arguments) :]
    for node, argument in zip(users, arguments, strict=True):
        for axis, name in argument.free.items():
            names.setdefault(str(node.meta["val"].shape[axis]), name)
    return names


def _free_name(size: Any, names: Mapping[str, str]) -> int | str:
    return size if isinstance(size, int) else names.get(str(size), f"[{size}]")
