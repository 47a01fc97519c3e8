"""Drop-in RNN, LSTM and GRU for torch.nn, with more options.

Only the import changes: constructors, calls, parameter names and results are torch.nn's. Further options are keywords,
off by default. All three take:

    layer_norm            LN(W x) and LN(U h) in place of the products; for an LSTM also LN(c) (Ba et al. 2016)
    variational_dropout   one mask per sequence for all steps, on each layer's input and on h inside the
                          recurrence; one number, or a pair (input, hidden) (Gal & Ghahramani 2016)
    zoneout               the probability that a unit keeps its old state at a step; for an LSTM one number or a
                          pair (h, c) (Krueger et al. 2017)
    dropconnect           dropout on the recurrent weights U, sampled once per call (AWD-LSTM, Merity et al. 2018)
    learned_state         the initial state is a parameter; resets return to it
    combine               the output: "last" layer, or "concat", "mean" or learned "mix" of all layers
    init                  "torch", "orthogonal", "forget_bias", "identity", or several in order
    backend               "auto", or an engine by name (`unrolled.kernels.ENGINES`)
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import nn

from unrolled.cells import Activation, GRUCell, LSTMCell, RNNCell, activation
from unrolled.errors import unknown_name
from unrolled.nn.checks import check_dropout, check_flags, check_projection, check_sizes
from unrolled.nn.dropin import DropIn

_PEEPHOLES: dict[object, Literal["current", "previous"]] = {
    True: "current",
    "current": "current",
    "previous": "previous",
}


class RNN(DropIn, nn.RNN):
    """torch.nn.RNN with any nonlinearity: h_t = φ(W x_t + b_ih + U h_{t-1} + b_hh).

    `nonlinearity` is a name from `unrolled.cells.ACTIVATIONS` or any function of a tensor. For the other options
    see `unrolled.nn.layers`.

    >>> import torch
    >>> output, h_n = RNN(3, 5, nonlinearity="softsign")(torch.randn(7, 2, 3))
    >>> output.shape, h_n.shape
    (torch.Size([7, 2, 5]), torch.Size([1, 2, 5]))
    """

    cell_class = RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str | Activation = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        self._activation = activation(nonlinearity, "nonlinearity")
        torch_name = nonlinearity if nonlinearity in ("tanh", "relu") else "tanh"
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_flags(bias=bias, batch_first=batch_first)
        check_dropout(dropout)
        super().__init__(
            input_size, hidden_size, num_layers, torch_name, bias, batch_first, dropout, bidirectional,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity
        self._set_options(options)

    def _cell_options(self) -> dict[str, Any]:
        return {"activation": self._activation}

    def extra_repr(self) -> str:
        shown = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity!r}"
        return super().extra_repr() + shown


class LSTM(DropIn, nn.LSTM):
    """torch.nn.LSTM with peepholes, layer norm, lengths and resets (equations: `unrolled.cells.LSTMCell`).

    `peephole` is False, True or "current" (the output gate reads c_t), or "previous" (it reads c_{t-1}); its weights
    are `weight_peephole_l{k}{_reverse}`, (3, H), rows i, f, o. `activation` shapes the candidate, `gate_activation`
    the gates, `output_activation` (default: `activation`) the output of c. For the other options
    see `unrolled.nn.layers`.

    >>> import torch
    >>> layer = LSTM(3, 5, batch_first=True, peephole=True)
    >>> output, (h_n, c_n) = layer(torch.randn(2, 7, 3), lengths=[7, 4])
    >>> output[1, 4:].abs().sum().item()
    0.0
    """

    cell_class = LSTMCell
    own_options: ClassVar[dict[str, Any]] = {
        "peephole": False,
        "activation": "tanh",
        "gate_activation": "sigmoid",
        "output_activation": None,
    }

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_flags(bias=bias, batch_first=batch_first)
        check_dropout(dropout)
        check_projection(proj_size, hidden_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size,
            device=device, dtype=dtype,
        )  # fmt: skip
        settings = {**self.own_options, **options}
        self.peephole = _peephole(settings["peephole"])
        self._activation = activation(settings["activation"])
        self._gate_activation = activation(settings["gate_activation"])
        output = settings["output_activation"]
        self._output_activation = self._activation if output is None else activation(output)
        self._set_options(options)

    def _extra_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = super()._extra_shapes()
        if self.layer_norm:
            shapes |= {"norm_c": (self.hidden_size,), "norm_c_bias": (self.hidden_size,)}
        if self.peephole:
            shapes["weight_peephole"] = (3, self.hidden_size)
        return shapes

    def _cell_options(self) -> dict[str, Any]:
        return {
            "activation": self._activation,
            "gate_activation": self._gate_activation,
            "output_activation": self._output_activation,
            "peephole_output": self.peephole or "current",
        }


class GRU(DropIn, nn.GRU):
    """torch.nn.GRU in both conventions (equations: `unrolled.cells.GRUCell`).

    `reset_after=True` is PyTorch's and cuDNN's: the reset gate acts on U h + b. `reset_after=False` is the paper's
    (Cho et al. 2014): it acts on h. Parameter names are the same. `activation` shapes the candidate,
    `gate_activation` the gates. For the other options see `unrolled.nn.layers`.

    >>> import torch
    >>> output, h_n = GRU(3, 5, reset_after=False)(torch.randn(7, 2, 3))
    >>> output.shape
    torch.Size([7, 2, 5])
    """

    cell_class = GRUCell
    own_options: ClassVar[dict[str, Any]] = {
        "reset_after": True,
        "activation": "tanh",
        "gate_activation": "sigmoid",
    }

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_flags(bias=bias, batch_first=batch_first)
        check_dropout(dropout)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            device=device, dtype=dtype,
        )  # fmt: skip
        settings = {**self.own_options, **options}
        self.reset_after = bool(settings["reset_after"])
        self._activation = activation(settings["activation"])
        self._gate_activation = activation(settings["gate_activation"])
        self._set_options(options)

    def _cell_options(self) -> dict[str, Any]:
        return {
            "activation": self._activation,
            "gate_activation": self._gate_activation,
            "reset_after": self.reset_after,
        }


def _peephole(value: object) -> Literal["current", "previous"] | None:
    if value is False or value is None:
        return None
    if value not in _PEEPHOLES:
        raise unknown_name("peephole", value, ["True", "False", "current", "previous"])
    return _PEEPHOLES[value]
