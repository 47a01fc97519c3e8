"""Writes one recorded operator as ONNX nodes, by its rule."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from unrolled.errors import UserError
from unrolled.export.aten import elementwise, shapes, sums
from unrolled.export.onnx_graph import GraphValue, GraphWriter

aten = torch.ops.aten
RULES: dict[Any, Callable[..., Any]] = {**elementwise.RULES, **shapes.RULES, **sums.RULES}
SIZES = {operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.floordiv: "Div", max: "Max"}
SIZES |= {torch.sym_max: "Max", torch.sym_min: "Min"}
COMPARISONS = (operator.ge, operator.le, operator.gt, operator.lt, operator.eq, operator.ne)
CHECKS = {
    aten._assert_tensor_metadata.default,
    aten._assert_scalar.default,
    aten.sym_constrain_range_for_size.default,
    aten.sym_constrain_range.default,
    *COMPARISONS,
}
"""What a recording checks, and a graph does not compute."""


def write_node(graph: GraphWriter, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """Write one operator; the value, size or list of values that it gives."""
    given: Any = fx.map_arg(node.args, lambda one: values[one])
    options: Any = fx.map_arg(dict(node.kwargs), lambda one: values[one])
    target: Any = node.target
    if target is operator.getitem:
        parts, place = given
        return parts[place] if place < len(parts) else None  # left out: inference never uses it
    if target in CHECKS:
        return None
    if target is aten.sym_size.int:
        return graph.size_of(given[0].name, given[1] % given[0].rank)
    if target in SIZES:
        return elementwise.size_arithmetic(graph, SIZES[target], *given)
    if target not in RULES:
        raise UserError(
            f"The operator {target} has no rule for ONNX.",
            "Leave it out of the network, or add a rule to unrolled/export/aten.",
        )
    made = unnamed(node.meta["val"])
    found = RULES[target](graph, made, *given, **options)
    if isinstance(found, list):
        return [named(value, name) for value, name in zip(made, found, strict=False)]
    return named(made, found)


def unnamed(example: Any) -> Any:
    """The dtype and sizes of what a node gives; names come later."""
    if isinstance(example, (list, tuple)):
        return [unnamed(one) for one in example]
    if isinstance(example, Tensor):
        sizes = tuple(size if isinstance(size, int) else None for size in example.shape)
        return GraphValue("", example.dtype, sizes)
    return None


def named(value: GraphValue, name: str) -> GraphValue:
    return GraphValue(name, value.dtype, value.shape)
