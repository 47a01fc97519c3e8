"""Writes an ONNX graph node by node with `onnx.helper`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9  # of opset 18; newer runtimes read it too

ONNX_TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.float16: TensorProto.FLOAT16,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.bool: TensorProto.BOOL,
}


@dataclass(frozen=True)
class GraphValue:
    """A tensor of the graph: its name, dtype and sizes; a size that is free is None."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | None, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Size:
    """A whole number that is known only when the graph runs, such as the length of a batch: an int64 scalar."""

    name: str


class GraphWriter:
    """The nodes and constants of a graph under construction.

    >>> graph = GraphWriter()
    >>> graph.node("Add", "x", graph.constant(np.float32(1)))
    'Add_2'
    """

    def __init__(self, outer: GraphWriter | None = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        # the body of a loop shares names and constants with the graph around it
        self.constants: dict[str, onnx.TensorProto] = {} if outer is None else outer.constants
        self._count: list[int] = [0] if outer is None else outer._count
        self._known: dict[tuple[Any, ...], str] = {} if outer is None else outer._known

    def fresh(self, stem: str) -> str:
        """A new name."""
        self._count[0] += 1
        return f"{stem}_{self._count[0]}"

    def node(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Write a node with one output, and return its name; "" stands for a missing optional input."""
        (output,) = self.split_node(kind, inputs, [name or self.fresh(kind)], **attributes)
        return output

    def split_node(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> list[str]:
        """Write a node with named outputs."""
        self.nodes.append(helper.make_node(kind, list(inputs), list(outputs), **attributes))
        return list(outputs)

    def constant(self, array: NDArray[Any] | np.generic, name: str | None = None) -> str:
        """A constant; a small one without a name of its own is written once."""
        array = np.asarray(array)
        if name is not None:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            return name
        key = (array.dtype.str, array.shape, array.tobytes())
        if array.size > 64 or key not in self._known:
            self._known[key] = self.constant(array, self.fresh("constant"))
        return self._known[key]

    def ints(self, *values: int) -> str:
        """A constant vector of whole numbers, such as axes."""
        return self.constant(np.array(values, dtype=np.int64))

    def scalar(self, value: float, dtype: torch.dtype) -> str:
        """A constant number."""
        return self.constant(torch.tensor(value, dtype=dtype).numpy())

    def cast(self, name: str, dtype: torch.dtype) -> str:
        return self.node("Cast", name, to=ONNX_TYPES[dtype])

    def tensor(self, value: Any, dtype: torch.dtype) -> str:
        """A value, size or number as a tensor of a dtype."""
        if isinstance(value, GraphValue):
            return value.name if value.dtype == dtype else self.cast(value.name, dtype)
        if isinstance(value, Size):
            return value.name if dtype == torch.int64 else self.cast(value.name, dtype)
        return self.scalar(value, dtype)

    def size(self, value: int | Size) -> str:
        """A whole number as an int64 scalar."""
        return value.name if isinstance(value, Size) else self.scalar(value, torch.int64)

    def shape(self, sizes: Sequence[int | Size]) -> str:
        """A vector of sizes."""
        if not any(isinstance(size, Size) for size in sizes):
            return self.ints(*sizes)  # type: ignore[arg-type]
        parts = [
            self.node("Unsqueeze", size.name, self.ints(0)) if isinstance(size, Size) else self.ints(size)
            for size in sizes
        ]
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def size_of(self, name: str, axis: int) -> Size:
        """The size of a tensor along an axis from 0 up."""
        found = self.node("Shape", name, start=axis, end=axis + 1)
        return Size(self.node("Squeeze", found, self.ints(0)))

    def model(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto], name: str
    ) -> onnx.ModelProto:
        """The finished model: only what its outputs need, and checked by ONNX's own checker."""
        nodes = needed(self.nodes, {output.name for output in outputs})
        used = names_used(nodes) | {output.name for output in outputs}
        constants = [tensor for constant, tensor in self.constants.items() if constant in used]
        graph = helper.make_graph(nodes, name, list(inputs), list(outputs), constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="unrolled", ir_version=IR_VERSION
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def body(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto], name: str
    ) -> onnx.GraphProto:
        """The body of a loop, which reads constants of the graph around it."""
        return helper.make_graph(
            needed(self.nodes, {output.name for output in outputs}), name, list(inputs), list(outputs)
        )


def value_info(name: str, dtype: torch.dtype, shape: Sequence[int | str | None]) -> onnx.ValueInfoProto:
    """The type of an input or output; a string names a free size."""
    return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], list(shape))


def names_used(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """All names that nodes read, those inside loops included."""
    used: set[str] = set()
    for node in nodes:
        used.update(node.input)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                used |= names_used(attribute.g.node) | {output.name for output in attribute.g.output}
    return used


def needed(nodes: Sequence[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """The nodes that the wanted values depend on, in their order."""
    kept: list[onnx.NodeProto] = []
    wanted = set(wanted)
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted |= names_used([node])
    return kept[::-1]
