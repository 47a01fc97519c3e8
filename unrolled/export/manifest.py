"""The manifest of an exported model: everything but the numbers of its graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto

from unrolled.exported import FORMAT, VERSION
from unrolled.model import Model, current_versions

_TYPES: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.INT64: "int64", TensorProto.BOOL: "bool"}


@dataclass(frozen=True)
class WrittenGraph:
    """A graph that was written: its file, and its inputs and outputs."""

    name: str
    file: str
    model: onnx.ModelProto
    data: bytes

    def entry(self) -> dict[str, Any]:
        """The entry of the manifest about it."""
        graph = self.model.graph
        return {
            "file": self.file,
            "sha256": hashlib.sha256(self.data).hexdigest(),
            "inputs": [_described(one) for one in graph.input],
            "outputs": [_described(one) for one in graph.output],
        }


def _described(value: onnx.ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    shape = [size.dim_param or size.dim_value for size in tensor.shape.dim]
    return {"name": value.name, "dtype": _TYPES[tensor.elem_type], "shape": shape}


def manifest_of(model: Model, graphs: list[WrittenGraph], weights: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest, for JSON."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": model.task.name,
        "config": model.config.model_dump(mode="json"),
        "assets": model.task.assets_to_json(model.assets),
        "scores": dict(model.scores),
        "versions": {**current_versions(), "onnx": onnx.__version__},
        "weights": weights,
        "graphs": {graph.name: graph.entry() for graph in graphs},
        **more,
    }
