"""Initialisations by name, for RNN, LSTM and GRU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from unrolled.errors import UserError, unknown_name


def torch_default(layer: nn.RNNBase) -> None:
    """Uniform in ±1/√H, as torch.nn does; gains of layer norm one, its shifts and learned states zero."""
    for name, parameter in layer.named_parameters():
        fill_default(name, parameter, layer.hidden_size)


@torch.no_grad()
def fill_default(name: str, parameter: Tensor, hidden_size: int) -> None:
    """Fill one parameter with the default for its name."""
    if name.startswith(("norm_c_bias", "initial_", "combine_weight")):
        parameter.zero_()
    elif name.startswith("norm_"):
        parameter.fill_(1.0)
    else:
        nn.init.uniform_(parameter, -1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size))


@torch.no_grad()
def orthogonal(layer: nn.RNNBase) -> None:
    """Each gate's U orthogonal and W Glorot-uniform, biases zero (Saxe et al. 2014; Keras' default)."""
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_hh"):
            for gate in _gates(layer, parameter):
                nn.init.orthogonal_(gate)
        elif name.startswith("weight_ih"):
            for gate in _gates(layer, parameter):
                nn.init.xavier_uniform_(gate)
        elif name.startswith("bias_"):
            parameter.zero_()


@torch.no_grad()
def forget_bias(layer: nn.RNNBase) -> None:
    """The LSTM's forget gate starts open: its bias is 1, so that memory lasts (Jozefowicz et al. 2015)."""
    if not isinstance(layer, nn.LSTM):
        raise UserError(f"init='forget_bias' is for LSTM, got {type(layer).__name__}.", "It has no forget gate.")
    if not layer.bias:
        raise UserError("init='forget_bias' needs a bias.", "Use bias=True.")
    forget = slice(layer.hidden_size, 2 * layer.hidden_size)
    for name, parameter in layer.named_parameters():
        if name.startswith(("bias_ih", "bias_hh")):
            parameter[forget] = 1.0 if name.startswith("bias_ih") else 0.0


@torch.no_grad()
def identity(layer: nn.RNNBase) -> None:
    """U = 1, W normal with deviation 0.001, biases zero: a ReLU RNN that starts as a sum (Le et al. 2015)."""
    if not isinstance(layer, nn.RNN):
        raise UserError(
            f"init='identity' is for RNN(nonlinearity='relu'), got {type(layer).__name__}.",
            "Use 'orthogonal' or, for an LSTM, 'forget_bias'.",
        )
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_hh"):
            nn.init.eye_(parameter)
        elif name.startswith("weight_ih"):
            nn.init.normal_(parameter, std=0.001)
        elif name.startswith("bias_"):
            parameter.zero_()


INITS: dict[str, Callable[[nn.RNNBase], None]] = {
    "torch": torch_default,
    "orthogonal": orthogonal,
    "forget_bias": forget_bias,
    "identity": identity,
}


def initialize(layer: nn.RNNBase, names: str | Iterable[str]) -> None:
    """Apply initialisations in order; each changes only its own parameters.

    >>> import unrolled
    >>> layer = unrolled.LSTM(2, 3)
    >>> initialize(layer, ["orthogonal", "forget_bias"])
    >>> layer.bias_ih_l0
    Parameter containing:
    tensor([0., 0., 0., 1., 1., 1., 0., 0., 0., 0., 0., 0.], requires_grad=True)
    """
    for name in [names] if isinstance(names, str) else names:
        if name not in INITS:
            raise unknown_name("initialisation", name, INITS)
        INITS[name](layer)


def _gates(layer: nn.RNNBase, weight: Tensor) -> tuple[Tensor, ...]:
    return torch.split(weight, layer.hidden_size)
