"""Settings of recurrent layers, shared by all tasks, and the layers they describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, field_validator
from torch import Tensor

from unrolled.cells import ACTIVATIONS
from unrolled.config import Section, but, only
from unrolled.errors import unknown_name
from unrolled.nn import layer
from unrolled.nn.dropin import DropIn

State = tuple[Tensor, ...]
"""The state of a model between steps, batch first: (B, …) each."""
Change = Callable[[Tensor], Tensor]
"""A function applied to the input vectors (B, T, D) of a traced network."""


def unchanged(x: Tensor) -> Tensor:
    """The identity `Change`."""
    return x


RECURRENT = only(kind=("recurrent", "stepwise"))
TRANSFORMER = only(kind="transformer")
"""The kinds that keys of recurrent layers and of Transformers belong to, in tasks with several kinds of models."""


class RecurrentSettings(Section):
    """Recurrent layers: the cell, its sizes, and regularisation."""

    cell: Literal["rnn", "lstm", "gru"] = Field("lstm", json_schema_extra=RECURRENT, description="The recurrent cell.")
    hidden_size: int = Field(256, ge=1, description="Units per layer.")
    num_layers: int = Field(1, ge=1, json_schema_extra=RECURRENT, description="Number of stacked recurrent layers.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout of embeddings, between layers and before the scores.")
    proj_size: int = Field(
        0,
        ge=0,
        json_schema_extra=only(cell="lstm"),
        description="lstm: width that a learned matrix projects h to, below hidden_size; 0: none.",
    )
    bias: bool = Field(True, json_schema_extra=RECURRENT, description="Biases in the recurrent layers.")
    learned_state: bool = Field(
        False,
        json_schema_extra=RECURRENT,
        description="The state before the first step is learned, one for all sequences; false: zeros.",
    )
    peephole: Literal["none", "current", "previous"] = Field(
        "none", json_schema_extra=only(cell="lstm"), description="Peepholes: LSTM gates that read the cell state."
    )
    reset_after: bool = Field(
        True,
        json_schema_extra=only(cell="gru"),
        description="GRU: true as in PyTorch and cuDNN, false as in Cho et al. 2014.",
    )
    nonlinearity: str = Field("tanh", json_schema_extra=only(cell="rnn"), description="Activation of the rnn cell.")
    cell_activation: str = Field(
        "tanh",
        json_schema_extra=only(cell=("lstm", "gru")),
        description="lstm, gru: activation of the candidate state.",
    )
    gate_activation: str = Field(
        "sigmoid", json_schema_extra=only(cell=("lstm", "gru")), description="lstm, gru: activation of the gates."
    )
    output_activation: str | None = Field(
        None,
        json_schema_extra=only(cell="lstm"),
        description="lstm: activation of the cell state on its way to h; none: cell_activation.",
    )
    layer_norm: bool = Field(False, json_schema_extra=RECURRENT, description="Layer norm inside the cell.")
    variational_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        json_schema_extra=RECURRENT,
        description="Recurrent dropout: one mask per sequence for all steps.",
    )
    zoneout: float = Field(
        0.0,
        ge=0,
        lt=1,
        json_schema_extra=RECURRENT,
        description="Zoneout: probability that a unit keeps its old state.",
    )
    dropconnect: float = Field(
        0.0, ge=0, lt=1, json_schema_extra=RECURRENT, description="Dropout on the recurrent weights."
    )
    combine: Literal["last", "concat", "mean", "mix"] = Field(
        "last",
        json_schema_extra=only(kind=("recurrent", "stepwise"), num_layers=but(1)),
        description="Layers whose states give the scores.",
    )
    init: str = Field(
        "torch", json_schema_extra=RECURRENT, description="torch, orthogonal, forget_bias or identity; several with +."
    )

    @field_validator("cell_activation", "gate_activation", "output_activation")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in ACTIVATIONS:
            raise ValueError(str(unknown_name("activation", value, ACTIVATIONS)))
        return value

    @property
    def projection(self) -> int:
        """Width that h is projected to; 0: none."""
        return self.proj_size if self.cell == "lstm" else 0

    @property
    def output_size(self) -> int:
        """Width of the output, of one direction."""
        return (self.projection or self.hidden_size) * (self.num_layers if self.combine == "concat" else 1)


def recurrent_layer(settings: RecurrentSettings, input_size: int, *, bidirectional: bool = False) -> DropIn:
    """The layers that the settings describe, batch first."""
    options = {
        "num_layers": settings.num_layers,
        "batch_first": True,
        "bidirectional": bidirectional,
        "dropout": settings.dropout if settings.num_layers > 1 else 0.0,
        "zoneout": settings.zoneout,
        "combine": settings.combine,
        "learned_state": settings.learned_state,
    }
    made = layer(settings.cell, input_size, settings.hidden_size, **options, **cell_options(settings))
    assert isinstance(made, DropIn)
    return made


def cell_options(settings: RecurrentSettings, *, attending: bool = False) -> dict[str, Any]:
    """The options of one layer; an attending layer rejects unsupported ones, so these are named only if set."""
    options: dict[str, Any] = {
        "bias": settings.bias,
        "layer_norm": settings.layer_norm,
        "variational_dropout": settings.variational_dropout,
        "dropconnect": settings.dropconnect,
        "init": settings.init.split("+"),
    }
    if attending and settings.zoneout:
        options["zoneout"] = settings.zoneout
    gated = {"activation": settings.cell_activation, "gate_activation": settings.gate_activation}
    own: dict[str, dict[str, Any]] = {
        "lstm": {
            "peephole": settings.peephole if settings.peephole != "none" else False,
            "proj_size": settings.proj_size,
            "output_activation": settings.output_activation,
            **gated,
        },
        "gru": {"reset_after": settings.reset_after, **gated},
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
