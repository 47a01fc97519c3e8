"""Forecasters: feed-forward and recurrent layers, or a Transformer, that estimate vectors at every step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field, field_validator
from torch import Tensor, nn

from unrolled.config import but, only
from unrolled.data.signals.categories import UNKNOWN
from unrolled.models.encoder_layers import EncoderLayerSettings, LookedAt, looked_at
from unrolled.models.forecaster_sizes import ForecasterSizes
from unrolled.models.outputs import LossName, Output
from unrolled.models.recurrent_settings import (
    TRANSFORMER,
    Change,
    State,
    recurrent_layer,
    state_from_torch,
    state_to_torch,
    unchanged,
)
from unrolled.models.transformer_settings import Feedforward
from unrolled.models.windowed_transformer import WindowedTransformer
from unrolled.nn.dropin import DropIn
from unrolled.nn.embedding import Embedding
from unrolled.nn.front import DenseFront
from unrolled.nn.linear import Linear

CALM = 3.0  # scaled inputs beyond it are compressed: training has hardly larger ones


class ForecasterSettings(EncoderLayerSettings):
    """The `model` section of `forecast`."""

    hidden_size: int = Field(64, ge=1, description="Units per layer and direction; width of a Transformer.")
    bidirectional: bool = Field(
        False, description="Read in both directions; only for data.horizon=0, where no row to come is predicted."
    )
    feedforward: Feedforward = 256
    category_size: int | None = Field(
        None,
        ge=1,
        json_schema_extra=only({"data.category_columns": but([], "")}),
        description="Size of the vectors of data.category_columns; none: half the number of values, at most 16.",
    )
    context: int = Field(
        128,
        ge=4,
        json_schema_extra=TRANSFORMER,
        description="transformer: rows of a window; a row sees at least half as many before it.",
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Dropout in the front layers, between layers and before the output."
    )
    front: list[int] = Field([], description="Widths of feed-forward layers before the recurrent ones: [64, 64].")
    loss: LossName | None = Field(
        None,
        description="Output and loss: a value by squared (mse) or absolute error (mae), a mean and a deviation "
        "(gaussian), quantiles, or the probability of a 1 (bernoulli); none: mse, or bernoulli if every target is "
        "0 or 1.",
    )
    quantiles: list[float] = Field(
        [0.1, 0.5, 0.9],
        min_length=1,
        json_schema_extra=only(loss="quantiles"),
        description="The quantiles of loss=quantiles.",
    )
    residual: bool | None = Field(
        None,
        description="Learn the difference from the last value; none: if a target is an input, except for bernoulli.",
    )
    changes: bool | None = Field(
        None, description="Read the change of each input too; none: yes, unless all are 0 or 1."
    )
    lags: int | None = Field(
        None,
        ge=0,
        description="Lags of a linear path beside the recurrent layers, fitted before training; "
        "none: 24, fewer with many columns, 0 for bernoulli.",
    )

    @field_validator("quantiles")
    @classmethod
    def _between(cls, value: list[float]) -> list[float]:
        if not all(0 < q < 1 for q in value) or sorted(set(value)) != value:
            raise ValueError("quantiles must rise and lie between 0 and 1, such as [0.1, 0.5, 0.9]")
        return value

    @field_validator("front")
    @classmethod
    def _positive(cls, value: list[int]) -> list[int]:
        if any(size < 1 for size in value):
            raise ValueError("a layer needs at least one unit")
        return value


class Forecaster(nn.Module):
    """x_t and its change → feed-forward layers → encoder layers → estimates for all horizons, plus a linear path.

        ŷ = base + scale ∘ (W h_t + V [x_t ; Δx_t … Δx_{t−p+1}] + b)

    `base` is the last value of the target if it is an input, else 0; `scale` is its usual change. The state has that of
    the layers and the last rows, so that a sequence can be cut anywhere; layers of both directions have none, and read
    each piece for itself. Without `tune_linear` V stays as fitted, and the layers learn the residual.
    """

    change_scale: Tensor
    scale: Tensor

    def __init__(
        self, settings: ForecasterSettings, layout: ForecasterSizes, output: Output, *, tune_linear: bool = True
    ) -> None:
        super().__init__()
        self.layout, self.output, self.tune_linear = layout, output, tune_linear
        self.rows = max(1, layout.lags)  # past rows kept in the state
        sizes = [settings.category_size or min(16, -(-values // 2)) for values in layout.categories]
        self.categories = nn.ModuleList(
            Embedding(values, size, padding_idx=UNKNOWN) for values, size in zip(layout.categories, sizes, strict=True)
        )
        width = layout.features + (layout.inputs if layout.changes else 0) + sum(sizes)
        self.front = DenseFront(width, settings.front, settings.dropout)
        self.causal = not settings.bidirectional
        self.layer: DropIn | WindowedTransformer
        if settings.kind == "transformer":
            self.layer = WindowedTransformer(settings, self.front.output_size, settings.context)
        else:
            self.layer = recurrent_layer(settings, self.front.output_size, bidirectional=settings.bidirectional)
        self.dropout = nn.Dropout(settings.dropout)
        outputs = math.prod(layout.outputs) * output.size
        self.head = Linear(settings.width, outputs)
        self.linear = Linear(layout.inputs * (1 + layout.lags), outputs, bias=False) if layout.lags else None
        self.register_buffer("change_scale", torch.ones(layout.inputs))
        self.register_buffer("scale", torch.ones(layout.outputs))

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Features (B, T, F) → estimates (B, T, horizons, K, P), and the state after the last step."""
        past = self.past(x, state, resets)
        seen = torch.cat([past, x[..., : self.layout.inputs]], dim=1)  # (B, rows + T, D)
        carried = None if state is None or not self.causal else state[:-1]
        output, final = self._encode(self.front(self.read(x, seen)), carried, lengths, resets)
        raw = self.head(self.dropout(output))
        if self.linear is not None:
            raw = raw + self.linear_path(seen)
        return self.place(raw, x), (*final, self._kept(seen, lengths))

    def _encode(
        self, x: Tensor, state: State | None, lengths: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        """The layers' output (B, T, H) and their state, () of both directions."""
        if isinstance(self.layer, WindowedTransformer):
            return self.layer(x, state, lengths=lengths, resets=resets)  # type: ignore[no-any-return]
        output, final = self.layer(x, state_to_torch(state), lengths=lengths, resets=resets if self.causal else None)
        return output, state_from_torch(final) if self.causal else ()

    def _kept(self, seen: Tensor, lengths: Tensor | None) -> Tensor:
        """The last rows (B, rows, D) of each sequence among all that were seen, (B, rows + T, D)."""
        if lengths is None:
            return seen[:, -self.rows :].contiguous()
        last = lengths[:, None] + torch.arange(self.rows, device=seen.device)  # (B, rows)
        return seen.gather(1, last[..., None].expand(-1, -1, seen.shape[-1]))

    def read(self, x: Tensor, seen: Tensor) -> Tensor:
        """Input of the first layer: features and changes, with extreme values compressed; vectors of categories."""
        numbers = self.layout.features
        parts = [calmed(x[..., :numbers])]
        if self.layout.changes:
            parts.append(calmed((seen[:, self.rows :] - seen[:, self.rows - 1 : -1]) / self.change_scale))
        parts += [table(x[..., numbers + i].long()) for i, table in enumerate(self.categories)]
        return torch.cat(parts, dim=-1)

    def linear_path(self, seen: Tensor) -> Tensor:
        assert self.linear is not None
        weight = self.linear.weight if self.tune_linear else self.linear.weight.detach()
        return F.linear(self.linear_features(seen), weight)

    def linear_features(self, seen: Tensor) -> Tensor:
        """All rows with the ones before them (B, rows + T, D) → inputs of the linear path, (B, T, D · (1 + lags))."""
        changes = (seen[:, 1:] - seen[:, :-1]) / self.change_scale
        windows = changes.unfold(1, self.rows, 1).flatten(2)  # (B, T, D · lags)
        return torch.cat([seen[:, self.rows :], windows], dim=-1)

    def place(self, raw: Tensor, x: Tensor) -> Tensor:
        raw = raw.view(*raw.shape[:-1], *self.layout.outputs, self.output.size)
        return self.output.place(raw, self.base(x), self.scale)

    def base(self, x: Tensor) -> Tensor:
        """The value of a raw output of zero, (B, T, 1, K)."""
        if not self.layout.residual:
            return x.new_zeros(*x.shape[:-1], 1, len(self.layout.positions))
        if self.layout.positions == tuple(range(self.layout.inputs)):
            return x[..., : self.layout.inputs].unsqueeze(-2)
        zero = x.new_zeros(*x.shape[:-1], 1)
        columns = torch.cat([x[..., : self.layout.inputs], zero], dim=-1)
        return columns[..., list(self.layout.positions)].unsqueeze(-2)

    def with_guess(self, x: Tensor, guess: Tensor) -> Tensor:
        """Features (…, F) with the inputs that are targets replaced by a guess (…, K)."""
        changed: Tensor = self.layout.with_guess(x, guess)
        return changed

    def row_stepper(self) -> ForecastStepper:
        """The forecaster row by row."""
        return ForecastStepper(self)

    def trace(self, x: Tensor, change: Change = unchanged) -> tuple[Tensor, LookedAt]:
        """The estimates, and a look at the layers; `change` is applied to their input."""
        seen = torch.cat([self.past(x, None), x[..., : self.layout.inputs]], dim=1)
        inside = looked_at(self.layer, change(self.front(self.read(x, seen))), None)
        raw = self.head(inside.output)
        if self.linear is not None:
            raw = raw + self.linear_path(seen)
        return self.place(raw, x), inside

    def past(self, x: Tensor, state: State | None, resets: Tensor | None = None) -> Tensor:
        """The rows before the first, (B, rows, D): carried, or copies of the first row of a new sequence."""
        first = x[:, :1, : self.layout.inputs].expand(-1, self.rows, -1)
        if state is None:
            return first
        if resets is None:
            return state[-1]
        return torch.where(resets[:, None, None], first, state[-1])


def calmed(x: Tensor) -> Tensor:
    """x up to ±3, and logarithmic growth beyond.

    >>> calmed(torch.tensor([0.5, -3.0, 102.0]))
    tensor([ 0.5000, -3.0000,  7.6052])
    """
    size = x.abs()
    reads = x.device.type == "cpu" and not torch.compiler._is_exporting_flag  # a GPU would wait for the answer
    if reads and not bool((size > CALM).any()):  # as most rows are
        return x
    return torch.where(size <= CALM, x, x.sign() * (CALM + (size - CALM).clamp(min=0).log1p()))


class ForecastStepper:
    """A forecaster row by row, for streams and control loops: a stepper with NumPy around it.

    On a GPU, and with a Transformer, each row is a call of the network. Else the weights are copied on construction.
    Layers of both directions read all rows at once.
    """

    def __init__(self, network: Forecaster) -> None:
        self._network = network
        layer, on_cpu = network.layer, network.head.weight.device.type == "cpu"
        self.packed = on_cpu and network.causal and isinstance(layer, DropIn)
        if not isinstance(layer, DropIn) or not self.packed:
            return
        self._stepper = layer.stepper()
        self._front = [
            (_array(layer.weight).T.copy(), _array(layer.bias))
            for layer in network.front.layers
            if isinstance(layer, nn.Linear)
        ]
        self._tables = [_array(table.weight) for table in network.categories if isinstance(table, nn.Embedding)]
        paths = [network.head.weight] + ([network.linear.weight] if network.linear is not None else [])
        self._read = np.zeros(sum(path.shape[1] for path in paths), dtype=np.float32)  # by the output layer
        self._weight, self._bias = _array(torch.cat(paths, dim=1)), _array(network.head.bias)
        self._change_scale, self._scale = _array(network.change_scale), network.scale.clone()

    @torch.no_grad()
    def __call__(self, x: NDArray[np.float32], state: Any) -> tuple[Tensor, Any]:
        """Features (n, F) of rows that follow each other → estimates (n, horizons, K, P), and the state.

        The recurrent layers and the output run row by row, everything else for all rows at once: the result does not
        depend on how rows are grouped.
        """
        network, layout = self._network, self._network.layout
        if not self.packed:
            return self._by_network(x, state)
        values, rows = x[:, : layout.inputs], network.rows
        if state is None:
            state = np.repeat(values[:1], rows, 0), self._stepper.initial_state(1)
        past, carried = state
        seen = np.concatenate([past, values])  # (rows + n, D)
        changes = (seen[1:] - seen[:-1]) / self._change_scale
        parts = [_calmed(x[:, : layout.features])]
        if layout.changes:
            parts.append(_calmed(changes[rows - 1 :]))
        parts += [table[x[:, layout.features + i].astype(np.int64)] for i, table in enumerate(self._tables)]
        read = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        raw = np.empty((len(x), len(self._bias)), dtype=np.float32)
        hidden, buffer = network.head.in_features, self._read
        for i in range(len(x)):
            row = read[i : i + 1]
            for weight, bias in self._front:
                row = np.maximum(row @ weight + bias, 0)
            output, carried = self._stepper(torch.from_numpy(row), carried)
            buffer[:hidden] = output.numpy()[0]
            if network.linear is not None:
                buffer[hidden : hidden + layout.inputs] = values[i]
                buffer[hidden + layout.inputs :] = changes[i : i + rows].T.ravel()
            raw[i] = self._weight @ buffer
        placed = torch.from_numpy(raw + self._bias).view(len(x), *layout.outputs, network.output.size)
        return network.output.place(placed, network.base(torch.from_numpy(x)), self._scale), (seen[-rows:], carried)

    def paths(self, state: Any, count: int) -> Any:
        """The state of a single row for `count` rows side by side, as `together` takes it."""
        if self.packed:
            past, carried = state
            state = (*carried, torch.from_numpy(past)[None])
        return tuple(part.expand(count, *part.shape[1:]).contiguous() for part in state)

    @torch.no_grad()
    def together(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next row (B, F) of several sequences → estimates (B, horizons, K, P), and the state."""
        estimates, state = self._network(x[:, None], state)
        return estimates[:, 0], state

    def _by_network(self, x: NDArray[np.float32], state: Any) -> tuple[Tensor, Any]:
        estimates, rows = [], torch.from_numpy(x).to(self._network.scale.device)
        if not self._network.causal:
            estimate, state = self._network(rows[None], None)
            return estimate[0], state
        for row in rows:
            estimate, state = self._network(row[None, None], state)
            estimates.append(estimate[0])
        return torch.cat(estimates), state


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().numpy().copy()
    return array


def _calmed(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """`calmed` for a single row, fast if nothing is extreme."""
    beyond = np.abs(x) - CALM
    if beyond.max() <= 0:
        return x
    compressed: NDArray[np.float32] = np.where(beyond <= 0, x, np.sign(x) * (CALM + np.log1p(np.maximum(beyond, 0))))
    return compressed.astype(np.float32)
