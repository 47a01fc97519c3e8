"""onnxruntime as a peer: one recurrent layer as an ONNX graph, in float32 or dynamically quantised to int8."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper


def session(layer: torch.nn.RNNBase, quantized: bool = False, threads: int = 1) -> ort.InferenceSession:
    """A session that runs a one-layer torch.nn.LSTM, GRU or RNN: inputs X (T, B, D), h0 and, for an LSTM, c0."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(_model(layer), str(path))
        if quantized:
            from onnxruntime.quantization import quantize_dynamic

            quantize_dynamic(str(path), str(path) + ".q", op_types_to_quantize=["LSTM"])
            path = Path(str(path) + ".q")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        return ort.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])


def inputs(layer: torch.nn.RNNBase, x: torch.Tensor) -> dict[str, Any]:
    zeros = np.zeros((1, x.shape[1], layer.hidden_size), np.float32)
    return {"X": x.detach().numpy(), "h0": zeros} | ({"c0": zeros} if layer.mode == "LSTM" else {})


def bound_step(session: ort.InferenceSession, x: torch.Tensor, hidden: int) -> Callable[[], np.ndarray]:
    """One step of an LSTM session with everything bound beforehand: its outputs are its next states; returns Y."""
    shape = [1, 1, hidden]
    states = [[ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32) for _ in "hc"] for _ in range(2)]
    for value in states[0]:
        value.update_inplace(np.zeros(shape, np.float32))
    output = ort.OrtValue.ortvalue_from_shape_and_type([1, 1, 1, hidden], np.float32)
    bindings = []
    for old, new in (states, states[::-1]):
        binding = session.io_binding()
        binding.bind_ortvalue_input("X", ort.OrtValue.ortvalue_from_numpy(x.detach().numpy()))
        binding.bind_ortvalue_output("Y", output)
        for i, o, a, b in zip(("h0", "c0"), ("hn", "cn"), old, new, strict=True):
            binding.bind_ortvalue_input(i, a)
            binding.bind_ortvalue_output(o, b)
        bindings.append(binding)
    turn = itertools.cycle(bindings)

    def step() -> np.ndarray:
        session.run_with_iobinding(next(turn))
        result: np.ndarray = output.numpy()
        return result

    return step


def _model(layer: torch.nn.RNNBase) -> onnx.ModelProto:
    mode, hidden = layer.mode.split("_")[0], layer.hidden_size
    # onnx orders gates i, o, f, c and z, r, h
    order = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}[mode]

    def ordered(name: str) -> np.ndarray:
        parameter = layer.get_parameter(name)
        return np.concatenate([parameter.detach().numpy()[g * hidden : (g + 1) * hidden] for g in order])

    weights = [
        numpy_helper.from_array(ordered("weight_ih_l0")[None].copy(), "W"),
        numpy_helper.from_array(ordered("weight_hh_l0")[None].copy(), "R"),
        numpy_helper.from_array(np.concatenate([ordered("bias_ih_l0"), ordered("bias_hh_l0")])[None].copy(), "B"),
    ]
    names = ["X", "W", "R", "B", "", "h0"] + (["c0"] if mode == "LSTM" else [])
    outputs = ["Y", "hn"] + (["cn"] if mode == "LSTM" else [])
    attributes: dict[str, Any] = {"linear_before_reset": 1} if mode == "GRU" else {}
    node = helper.make_node(mode, names, outputs, hidden_size=hidden, **attributes)

    def value(name: str, shape: list[Any] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    states = [value(name, [1, "B", hidden]) for name in names[5:]]
    graph = helper.make_graph(
        [node], "layer", [value("X", ["T", "B", layer.input_size]), *states], [value(o, None) for o in outputs], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
