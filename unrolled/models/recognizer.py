"""Recognizers: the probability of each label, or the blank, at every step of a signal (CTC)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.config import only
from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.kernels.lengths import real_steps
from unrolled.models.inputs import FrameInput, ScaledInput
from unrolled.models.plane_encoder import PlaneEncoder
from unrolled.models.recurrent_settings import (
    Change,
    RecurrentSettings,
    recurrent_layer,
    unchanged,
)
from unrolled.models.transformer_settings import Feedforward, Heads, NormFirst, PositionEncoding, check_heads
from unrolled.nn.front import ConvolutionFront
from unrolled.nn.linear import Linear
from unrolled.nn.positions import Positions
from unrolled.nn.transformer import TransformerEncoder

USUAL_STRIDES = {"line": (2, 2), "audio": (2, 1)}  # strides of the first convolutions, over time


MAPS = only({"data.kind": ("audio", "line")})


class RecognizerSettings(RecurrentSettings):
    """The `model` section of `recognize`."""

    kind: Literal["recurrent", "transformer", "mdlstm"] = Field(
        "recurrent",
        description="Network after the front layers; mdlstm: a multi-dimensional LSTM over the picture of a line.",
    )
    hidden_size: int = Field(128, ge=1, description="Units per layer and direction; width of a Transformer.")
    num_layers: int = Field(2, ge=1, description="Number of recurrent layers, or of Transformer blocks.")
    dropout: float = Field(
        0.3, ge=0, lt=1, description="Dropout after the front layers, between layers, before the scores."
    )
    bidirectional: bool = Field(
        True, description="Read in both directions; false: outputs depend on the past alone, and files are streamed."
    )
    channels: list[int] = Field(
        [32, 64],
        json_schema_extra=MAPS,
        description="Recordings, lines: channels of each 3×3 convolution before the layers; each halves the features.",
    )
    strides: list[int] | None = Field(
        None,
        json_schema_extra=MAPS,
        description="Stride of each convolution over time, 1 to 3; none: [2, 2] for lines, [2, 1] for recordings.",
    )
    front: list[int] = Field(
        [],
        json_schema_extra=only({"data.kind": "frames"}),
        description="Frames: sizes of dense layers on each; of images the vector's, else 64.",
    )
    peephole: Literal["none", "current", "previous"] = Field(
        "none",
        json_schema_extra=only({"kind": "mdlstm"}, {"cell": "lstm"}),
        description="Peepholes: LSTM gates that read the cell state.",
    )
    form: Literal["diagonal", "parallel"] = Field(
        "diagonal",
        json_schema_extra=only(kind="mdlstm"),
        description="mdlstm: sweeps from the corners (Graves & Schmidhuber 2009) or the sides (Stollenga et al. 2015).",
    )
    heads: Heads = 4
    feedforward: Feedforward = 768
    positions: PositionEncoding = "sinusoidal"
    norm_first: NormFirst = True


def strides_of(settings: RecognizerSettings, kind: str) -> list[int]:
    """A stride for each convolution; frames have none."""
    if kind == "frames":
        return []
    count, strides = len(settings.channels), settings.strides
    if strides is None:
        strides = [*USUAL_STRIDES[kind], *[1] * count][:count]
    if len(strides) != count:
        raise UserError(
            f"model.strides={strides} has {len(strides)} numbers for {count} convolutions.",
            "Give one for each number of model.channels.",
        )
    if not count or min(settings.channels) < 1 or not all(1 <= stride <= 3 for stride in strides):
        raise UserError(
            f"model.channels={settings.channels} and model.strides={strides} are not valid convolutions.",
            "Give channels from 1 up, and strides from 1 to 3, such as model.channels=[32,64].",
        )
    return strides


def plane_encoder(settings: RecognizerSettings, kind: str) -> PlaneEncoder:
    """The multi-dimensional LSTM that the settings describe, or an error that says why there is none."""
    if kind != "line":
        why = {
            "audio": "recordings: it adds up the rows of a column, and the bands of a sound must stay apart",
            "frames": "frames: they have no rows",
        }
        raise UserError(f"model.kind=mdlstm reads pictures of lines, not {why[kind]}.", "Use model.kind=recurrent.")
    if not settings.bidirectional:
        raise UserError(
            "model.kind=mdlstm reads a line from all four directions, so it cannot have model.bidirectional=false.",
            "Use model.bidirectional=true, or model.kind=recurrent.",
        )
    if settings.peephole == "previous":
        raise UserError(
            "model.peephole=previous is not for model.kind=mdlstm.", "Its output gate reads the new state: use current."
        )
    form, peephole = settings.form, settings.peephole == "current"
    parts = (settings.channels[-1], settings.hidden_size, settings.num_layers, settings.dropout)
    return PlaneEncoder(*parts, form=form, peephole=peephole)


class RecognizerOutput(NamedTuple):
    """Output of a recognizer for a batch."""

    log_probs: Tensor  # (B, T, V)
    lengths: Tensor  # (B,), of the output steps


class MapInput(ScaledInput):
    """Lines or spectrograms (B, T, D), scaled, through convolutions."""

    def __init__(self, features: int, settings: RecognizerSettings, kind: str) -> None:
        super().__init__([features])
        self.front = ConvolutionFront(
            features, settings.channels, strides_of(settings, kind), not settings.bidirectional
        )
        self.norm = nn.LayerNorm(self.front.output_size)  # without it the network predicts only blanks for long
        self.output_size, self.time_factor = self.front.output_size, self.front.time_factor

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        real = real_steps(lengths, frames.shape[1])
        x = (frames.float() - self.mean) / self.deviation * real[..., None]
        vectors, lengths = self.front(x, lengths)
        return self.norm(vectors), lengths


class StepInput(nn.Module):
    """Frames (B, T, …), each through the same layers as in `classify`; the number of steps stays."""

    def __init__(self, shape: Sequence[int], settings: RecognizerSettings) -> None:
        super().__init__()
        self.frames = FrameInput(shape, settings.front, settings.dropout)
        self.output_size, self.time_factor = self.frames.output_size, 1
        self.fit = self.frames.fit

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.frames(Batch(frames, frames)), lengths


class Recognizer(nn.Module):
    """Front → recurrent layers or a Transformer → log P(label or blank) at every step; the blank is label 0."""

    def __init__(self, settings: RecognizerSettings, kind: str, shape: Sequence[int], labels: int) -> None:
        super().__init__()
        self.causal = not settings.bidirectional
        self.input: MapInput | StepInput
        self.input = StepInput(shape, settings) if kind == "frames" else MapInput(shape[0], settings, kind)
        self.dropout = nn.Dropout(settings.dropout)
        width = self.input.output_size
        self.layer: Any = None
        self.plane: PlaneEncoder | None = None
        if settings.kind == "mdlstm":
            self.plane = plane_encoder(settings, kind)
            self.scores = Linear(self.plane.output_size, labels)
        elif settings.kind == "transformer":
            check_heads(settings.hidden_size, settings.heads)
            self.project = Linear(width, settings.hidden_size)
            self.positions = Positions(settings.positions, settings.hidden_size, max_length=8192)
            parts = (settings.heads, settings.num_layers, settings.feedforward, settings.dropout, settings.norm_first)
            self.encoder = TransformerEncoder(settings.hidden_size, *parts, causal=self.causal)
            self.scores = Linear(settings.hidden_size, labels)
        else:
            self.layer = recurrent_layer(settings, width, bidirectional=settings.bidirectional)
            self.scores = Linear(settings.output_size * (2 if settings.bidirectional else 1), labels)

    @property
    def time_factor(self) -> int:
        """Input steps per output step."""
        return self.input.time_factor

    def forward(self, batch: Batch) -> RecognizerOutput:
        x, lengths = self.states(batch)
        return RecognizerOutput(self.scores(self.dropout(x)).float().log_softmax(-1), lengths)

    def states(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Outputs of the layers (B, T, D), and their lengths (B,)."""
        assert batch.lengths is not None
        x, lengths = self.input(batch.inputs, batch.lengths)
        x = self.dropout(x)
        if self.layer is not None:
            x, _ = self.layer(x, lengths=lengths)
        elif self.plane is not None:
            x = self.plane(x, lengths)
        else:
            mask = real_steps(lengths, x.shape[1])
            x = self.encoder(self.dropout(self.positions(self.project(x))), mask)
        return x, lengths

    def trace(self, batch: Batch, change: Change = unchanged) -> tuple[RecognizerOutput, Trace | None, Tensor | None]:
        """`forward`, and the trace of recurrent layers, or a Transformer's attention (L, N, T, T) of the first row.

        A multi-dimensional LSTM has neither.
        `change` is applied to the layers' input.
        """
        assert batch.lengths is not None
        x, lengths = self.input(batch.inputs, batch.lengths)
        x = change(x)
        if self.layer is not None:
            trace: Trace = self.layer.trace(x, lengths=lengths)
            return RecognizerOutput(self.scores(trace.output).float().log_softmax(-1), lengths), trace, None
        if self.plane is not None:
            scores = self.scores(self.plane(x, lengths))
            return RecognizerOutput(scores.float().log_softmax(-1), lengths), None, None
        mask = real_steps(lengths, x.shape[1])
        x, weights = self.encoder.visible(self.positions(self.project(x)), mask)
        seen = torch.stack(weights, dim=1)[0].detach()
        return RecognizerOutput(self.scores(x).float().log_softmax(-1), lengths), None, seen

    def advance(self, frames: Tensor | NDArray[np.float32], seen: int, state: Any) -> tuple[Tensor, Any]:
        """More steps of one stream: frames (T, …); the first `seen` are context that was read before.

        log P (T', V) of the new ones, and the state after them.
        """
        given = torch.as_tensor(frames, device=self.scores.weight.device)
        x, _ = self.input(given[None], torch.tensor([len(given)], device=given.device))
        x = x[:, seen // self.time_factor :]
        x, state = self.layer(x, state)
        return self.scores(x)[0].float().log_softmax(-1), state

    def advance_many(
        self, frames: NDArray[np.float32], seen: int, states: Sequence[Any] | None
    ) -> tuple[Tensor, list[Any]]:
        """`advance` of several streams: frames (B, T, …) → log P (B, T', V), and the state of each."""
        given = torch.as_tensor(frames, device=self.scores.weight.device)
        x, _ = self.input(given, torch.full((len(given),), given.shape[1], device=given.device))
        state: Any = None
        if states is not None:  # (L, B, H) each; of a GRU or RNN one tensor
            pair = isinstance(states[0], tuple)
            state = (
                tuple(torch.cat(parts, 1) for parts in zip(*states, strict=True))
                if pair
                else torch.cat(list(states), 1)
            )
        x, state = self.layer(x[:, seen // self.time_factor :], state)
        parts = [part.split(1, 1) for part in (state if isinstance(state, tuple) else (state,))]
        each: list[Any] = list(zip(*parts, strict=True)) if isinstance(state, tuple) else list(parts[0])
        return self.scores(x).float().log_softmax(-1), each

    @property
    def context(self) -> int:
        """Steps of context that `advance` needs before a block."""
        return self.input.front.context if isinstance(self.input, MapInput) else 0
