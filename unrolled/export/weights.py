"""Smaller weights in a graph: stored in 16 or 8 bits, and computed with in float32."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from unrolled.errors import unknown_name

Weights = Literal["fp32", "fp16", "int8"]
LEAST = 1024  # numbers in a weight that is worth it


def check_weights(weights: str) -> Weights:
    """The name of a type of weights, or an error with those there are."""
    if weights not in get_args(Weights):
        raise unknown_name("weights", weights, get_args(Weights))
    return weights  # type: ignore[return-value]


def with_weights(model: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """The model with its matrices in fewer bits; int8 has a scale for each row.

    Runtimes turn them into float32 once, when they load the graph.
    """
    if weights == "fp32":
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    stored, nodes = [], []
    for tensor in made.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.ndim < 2 or array.size < LEAST:
            stored.append(tensor)
            continue
        small, scale = _rounded(array, weights)
        stored.append(numpy_helper.from_array(small, f"{tensor.name}.{weights}"))
        last = tensor.name if scale is None else f"{tensor.name}.float"
        nodes.append(helper.make_node("Cast", [f"{tensor.name}.{weights}"], [last], to=TensorProto.FLOAT))
        if scale is not None:
            stored.append(numpy_helper.from_array(scale, f"{tensor.name}.scale"))
            nodes.append(helper.make_node("Mul", [last, f"{tensor.name}.scale"], [tensor.name]))
    nodes += made.graph.node
    del made.graph.initializer[:], made.graph.node[:]
    made.graph.initializer.extend(stored)
    made.graph.node.extend(nodes)
    onnx.checker.check_model(made, full_check=True)
    return made


def _rounded(array: NDArray[np.float32], weights: Weights) -> tuple[NDArray[np.generic], NDArray[np.float32] | None]:
    """The weights in fewer bits, and the scale of each row where there is one."""
    if weights == "fp16":
        return np.clip(array, -65504, 65504).astype(np.float16), None
    scale = np.abs(array).max(axis=-1, keepdims=True) / 127
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return np.round(array / scale).astype(np.int8), scale
