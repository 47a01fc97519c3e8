"""Settings of recurrent layers, shared by all tasks, and the layers they describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from unrolled.config import Section
from unrolled.nn import layer
from unrolled.nn.dropin import DropIn

State = tuple[Tensor, ...]
"""The state of a model between steps, batch first: (B, …) each."""
Change = Callable[[Tensor], Tensor]
"""A function applied to the input vectors (B, T, D) of a traced network."""


def unchanged(x: Tensor) -> Tensor:
    """The identity `Change`."""
    return x


class RecurrentSettings(Section):
    """Recurrent layers: the cell, its sizes, and regularisation."""

    cell: Literal["rnn", "lstm", "gru"] = Field("lstm", description="The recurrent cell.")
    hidden_size: int = Field(256, ge=1, description="Units per layer.")
    num_layers: int = Field(1, ge=1, description="Number of stacked recurrent layers.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout of embeddings, between layers and before the scores.")
    peephole: Literal["none", "current", "previous"] = Field(
        "none", description="Peepholes: LSTM gates that read the cell state."
    )
    reset_after: bool = Field(True, description="GRU: true as in PyTorch and cuDNN, false as in Cho et al. 2014.")
    nonlinearity: str = Field("tanh", description="Activation of the rnn cell.")
    layer_norm: bool = Field(False, description="Layer norm inside the cell.")
    variational_dropout: float = Field(
        0.0, ge=0, lt=1, description="Recurrent dropout: one mask per sequence for all steps."
    )
    zoneout: float = Field(0.0, ge=0, lt=1, description="Zoneout: probability that a unit keeps its old state.")
    dropconnect: float = Field(0.0, ge=0, lt=1, description="Dropout on the recurrent weights.")
    combine: Literal["last", "concat", "mean", "mix"] = Field(
        "last", description="Layers whose states give the scores."
    )
    init: str = Field("torch", description="torch, orthogonal, forget_bias or identity; several with +.")

    @property
    def output_size(self) -> int:
        """Width of the output, of one direction."""
        return self.hidden_size * (self.num_layers if self.combine == "concat" else 1)


def recurrent_layer(settings: RecurrentSettings, input_size: int, *, bidirectional: bool = False) -> DropIn:
    """The layers that the settings describe, batch first."""
    options = {
        "num_layers": settings.num_layers,
        "batch_first": True,
        "bidirectional": bidirectional,
        "dropout": settings.dropout if settings.num_layers > 1 else 0.0,
        "zoneout": settings.zoneout,
        "combine": settings.combine,
    }
    made = layer(settings.cell, input_size, settings.hidden_size, **options, **cell_options(settings))
    assert isinstance(made, DropIn)
    return made


def cell_options(settings: RecurrentSettings, *, attending: bool = False) -> dict[str, Any]:
    """The options of one layer; an attending layer rejects unsupported ones, so these are named only if set."""
    options: dict[str, Any] = {
        "layer_norm": settings.layer_norm,
        "variational_dropout": settings.variational_dropout,
        "dropconnect": settings.dropconnect,
        "init": settings.init.split("+"),
    }
    if attending and settings.zoneout:
        options["zoneout"] = settings.zoneout
    own: dict[str, dict[str, Any]] = {
        "lstm": {"peephole": settings.peephole if settings.peephole != "none" else False},
        "gru": {"reset_after": settings.reset_after},
        "rnn": {"nonlinearity": settings.nonlinearity},
    }
    return options | own[settings.cell]


def state_to_torch(state: State | None) -> Any:
    """(B, L, H) each → torch's (L, B, H), in a tuple only for an LSTM."""
    if state is None:
        return None
    turned = tuple(s.transpose(0, 1).contiguous() for s in state)
    return turned if len(turned) > 1 else turned[0]


def state_from_torch(state: Tensor | State) -> State:
    """The inverse of `state_to_torch`."""
    return tuple(s.transpose(0, 1) for s in (state if isinstance(state, tuple) else (state,)))
