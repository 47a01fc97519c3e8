"""Networks of Keras 3 in our layers, with the same weights and the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.cells.activations import ACTIVATIONS, Activation
from unrolled.config.stored import Size
from unrolled.errors import UserError, unknown_name
from unrolled.nn.keras_file import KerasLayer, open_keras
from unrolled.nn.layers import GRU, LSTM, RNN

CELLS: dict[str, tuple[type[RNN] | type[LSTM] | type[GRU], tuple[int, ...]]] = {
    "SimpleRNN": (RNN, (0,)),
    "LSTM": (LSTM, (0, 1, 2, 3)),
    "GRU": (GRU, (1, 0, 2)),  # our gates r, z, n are Keras' second, first and third
}
NAMES = {"hard_sigmoid": "hardsigmoid", "hard_tanh": "hardtanh", "linear": "identity", "swish": "silu"}
MERGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": lambda forward, backward: torch.cat([forward, backward], -1),
    "sum": torch.add,
    "mul": torch.mul,
    "ave": lambda forward, backward: (forward + backward) / 2,
}


def softmax(x: Tensor) -> Tensor:
    """A distribution over the last dimension."""
    return x.softmax(-1)


def leaky_relu(x: Tensor) -> Tensor:
    """Keras' slope of 0.2."""
    return F.leaky_relu(x, 0.2)


OTHERS: dict[str, Activation] = {
    "exponential": torch.exp,
    "leaky_relu": leaky_relu,
    "mish": F.mish,
    "relu6": F.relu6,
    "selu": F.selu,
    "softmax": softmax,
}


class KerasRecurrence(nn.Module):
    """One of our recurrent layers as Keras calls it: (B, T, D) → (B, T, H), or (B, H) without `sequences`."""

    def __init__(self, layer: RNN | LSTM | GRU, sequences: bool, merge: str = "concat") -> None:
        super().__init__()
        self.layer, self.sequences, self.merge = layer, sequences, merge

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        output, state = self.layer(x, lengths=lengths)
        final = state[0] if isinstance(state, tuple) else state  # (directions, B, H)
        if not self.layer.bidirectional:
            chosen: Tensor = output if self.sequences else final[0]
            return chosen
        halves = output.chunk(2, -1) if self.sequences else final.unbind(0)
        merged: Tensor = MERGES[self.merge](*halves)
        return merged


class KerasDense(nn.Linear):
    """A linear layer with its activation."""

    def __init__(self, inputs: int, outputs: int, bias: bool, activation: Activation) -> None:
        super().__init__(inputs, outputs, bias)
        self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        return self.activation(super().forward(input))


class KerasActivation(nn.Module):
    """An activation alone."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x)


class KerasNetwork(nn.Module):
    """A chain of layers under their Keras names: `network["lstm"].layer` is an `unrolled.LSTM`.

    Inputs are batch first. `lengths` (B,) are those of the rows; an embedding with mask_zero computes them from the
    ids, in which 0 is padding. The outputs of a recurrent layer at padding are zero.
    """

    def __init__(self, layers: Iterable[tuple[str, nn.Module]], masked: bool = False) -> None:
        super().__init__()
        self.names = []
        for name, module in layers:
            self.names.append(name)
            self.add_module(name.replace(".", "_"), module)
        self.masked = masked

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise unknown_name("layer", name, self.names)
        return self.get_submodule(name.replace(".", "_"))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if self.masked and lengths is None:
            lengths = lengths_of(x)
        for name in self.names:
            module = self[name]
            x = module(x, lengths) if isinstance(module, KerasRecurrence) else module(x)
        return x


def lengths_of(ids: Tensor) -> Tensor:
    """The lengths of rows that end in zeros (B, T); zeros elsewhere are an error."""
    mask = ids != 0
    lengths = mask.sum(1)
    if not torch.equal(mask, torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]):
        row = int((mask != (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None])).any(1).nonzero()[0])
        raise UserError(
            f"Row {row} has zeros before other ids, and the embedding masks zeros (mask_zero).",
            "Put the padding at the end of every row.",
        )
    return lengths


def from_keras(path: str | Path) -> KerasNetwork:
    """A network from a .keras file of Keras 3: recurrent layers, Bidirectional, Embedding, Dense, Dropout, Activation.

    The answers are those of Keras. The model must be a chain of layers. No code of the file is ever run: a layer or an
    activation of another kind is an error that names it. Reading needs h5py, not Keras.
    """
    with open_keras(path) as file:
        chain = [layer for layer in file.chain if layer.kind != "InputLayer"]
        if not chain:
            raise UserError(f"{file.path} has no layers.", "Give a model with some.")
        made = [(layer.name, BUILDERS[layer.kind](layer)) for layer in chain]
        masked = any(layer.kind == "Embedding" and layer.setting("mask_zero", bool, False) for layer in chain)
    return KerasNetwork(made, masked).eval()


def _activation(layer: KerasLayer, name: str = "activation", default: str = "linear") -> str | Activation:
    """The activation of a setting: our name for it, or a function."""
    given = layer.config.get(name, default) if isinstance(layer.config, dict) else default
    if not isinstance(given, str):
        raise layer.refused(f"has code of its own as {name}, which is not run")
    ours = NAMES.get(given, given)
    if given in OTHERS:  # Keras' own slope of leaky_relu too
        return OTHERS[given]
    if ours not in ACTIVATIONS:
        raise layer.refused(f"has {name}={given!r}, which is not known here")
    return ours


def _function(layer: KerasLayer, name: str = "activation") -> Activation:
    found = _activation(layer, name)
    return ACTIVATIONS[found] if isinstance(found, str) else found


def _embedding(layer: KerasLayer) -> nn.Module:
    shape = layer.setting("input_dim", Size), layer.setting("output_dim", Size)
    return nn.Embedding(*shape, _weight=layer.weight(0, shape))


def _dense(layer: KerasLayer) -> nn.Module:
    inputs, outputs = _width(layer), layer.setting("units", Size)
    if layer.setting("quantization_config", dict[str, Any], None) is not None:
        raise layer.refused("is quantised")
    bias = layer.setting("use_bias", bool, True)
    kernel = layer.weight(0, (inputs, outputs))
    made = KerasDense(inputs, outputs, bias, _function(layer))
    state = {"weight": kernel.T} | ({"bias": layer.weight(1, (outputs,))} if bias else {})
    made.load_state_dict(state)
    return made


def _width(layer: KerasLayer, *, cell: bool = False) -> int:
    """The features of a layer's input: the rows of its first weight."""
    return layer.file.rows(f"{layer.group}/{'cell/' if cell else ''}vars/0")


def _wrapped(layer: KerasLayer) -> nn.Module:
    """The layer in a TimeDistributed, which acts on every step: a Dense does so by itself."""
    inner = layer.inner("layer", "layer")
    if inner.kind != "Dense":
        raise layer.refused(f"repeats {inner.kind} at every step", "Only a Dense can be inside TimeDistributed.")
    return _dense(inner)


def _dropout(layer: KerasLayer) -> nn.Module:
    return nn.Dropout(layer.setting("rate", float | int))


def _activate(layer: KerasLayer) -> nn.Module:
    return KerasActivation(_function(layer))


def _recurrent(layer: KerasLayer) -> nn.Module:
    made = _cell_layer(layer)
    made.load_state_dict(_weights(layer, "l0"))
    return KerasRecurrence(made, layer.setting("return_sequences", bool, False))


def _bidirectional(layer: KerasLayer) -> nn.Module:
    forward, backward = layer.inner("layer", "forward_layer"), layer.inner("backward_layer", "backward_layer")
    merge = layer.config.get("merge_mode")
    if forward.kind not in CELLS:
        raise layer.refused(f"is a Bidirectional of {forward.kind}", f"It can hold {', '.join(CELLS)}.")
    if merge not in MERGES:
        raise layer.refused(f"has merge_mode={merge!r}", f"Expected one of {', '.join(MERGES)}.")
    if forward.kind != backward.kind or _meaning(forward) != _meaning(backward):
        raise layer.refused("has two directions of different kinds")
    made = _cell_layer(forward, bidirectional=True)
    made.load_state_dict(_weights(forward, "l0") | _weights(backward, "l0_reverse"))
    return KerasRecurrence(made, forward.setting("return_sequences", bool, False), merge)


def _meaning(layer: KerasLayer) -> dict[str, Any]:
    """The settings that both directions must share."""
    names = ("units", "activation", "recurrent_activation", "use_bias", "reset_after", "return_sequences")
    return {name: layer.config.get(name) for name in names}


def _cell_layer(layer: KerasLayer, bidirectional: bool = False) -> RNN | LSTM | GRU:
    """Our layer with the options of a recurrent one."""
    for name in ("return_state", "stateful", "go_backwards"):
        if layer.setting(name, bool, False):
            raise layer.refused(f"has {name}=True", "Save the model without it; the weights stay the same.")
    kind, _ = CELLS[layer.kind]
    options: dict[str, Any] = {"bias": layer.setting("use_bias", bool, True), "bidirectional": bidirectional}
    dropped = tuple(float(layer.setting(name, float | int, 0.0)) for name in ("dropout", "recurrent_dropout"))
    if any(dropped):
        options["variational_dropout"] = dropped
    if kind is RNN:
        options["nonlinearity"] = _activation(layer, default="tanh")
    else:
        options["activation"] = _activation(layer, default="tanh")
        options["gate_activation"] = _activation(layer, "recurrent_activation", "sigmoid")
    if kind is GRU:
        options["reset_after"] = layer.setting("reset_after", bool, True)
    return kind(_width(layer, cell=True), layer.setting("units", Size), batch_first=True, **options)


def _weights(layer: KerasLayer, suffix: str) -> dict[str, Tensor]:
    """The weights of one direction under our names: kernels transposed, gates in our order."""
    inputs, hidden = _width(layer, cell=True), layer.setting("units", Size)
    order = CELLS[layer.kind][1]
    rows = len(order) * hidden

    def ours(weight: Tensor) -> Tensor:
        blocks = weight.chunk(len(order))
        return torch.cat([blocks[number] for number in order])

    found = {
        f"weight_ih_{suffix}": ours(layer.weight(0, (inputs, rows), cell=True).T),
        f"weight_hh_{suffix}": ours(layer.weight(1, (hidden, rows), cell=True).T),
    }
    if layer.setting("use_bias", bool, True):
        two = layer.kind == "GRU" and layer.setting("reset_after", bool, True)
        bias = layer.weight(2, (2, rows) if two else (rows,), cell=True)
        first, second = bias if two else (bias, torch.zeros_like(bias))
        found |= {f"bias_ih_{suffix}": ours(first), f"bias_hh_{suffix}": ours(second)}
    return found


BUILDERS: dict[str, Callable[[KerasLayer], nn.Module]] = {
    **dict.fromkeys(CELLS, _recurrent),
    "Embedding": _embedding,
    "Bidirectional": _bidirectional,
    "Dense": _dense,
    "TimeDistributed": _wrapped,
    "Dropout": _dropout,
    "Activation": _activate,
}
