"""A forecaster in use: rows as they come, and roll-outs on its own predictions (S9, S17, S22)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data.frame import Frame
from unrolled.data.series import Numbers
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.models.forecaster import Forecaster, Stepping


class RowStream:
    """A model that is fed rows as they come, one or several at a time; how they are cut changes no bit.

    What it keeps, the state of the layers and the last rows, does not grow. Each row is a step of its own.
    """

    def __init__(self, model: Model) -> None:
        assert isinstance(model.network, Forecaster)
        self._network: Forecaster = model.network.eval()
        self._frame: Frame = model.assets
        self._step = Stepping(self._network)
        self.restart()

    def __enter__(self) -> RowStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def restart(self) -> None:
        """A new sequence begins."""
        self._state: Any = None
        self._last: Numbers | None = None
        self._features: NDArray[np.float32] | None = None
        self.estimate: Tensor | None = None  # after the last row, (horizons, K, P)
        self.details: dict[str, Numbers] = {}  # of the last feed, shaped as what it returned: deviation, quantiles
        if self._frame.start_row:
            self._advance(self._frame.start_features())

    def another(self) -> RowStream:
        """A stream of the same model for another sequence; the copied weights are shared."""
        stream = copy(self)
        stream.restart()
        return stream

    def feed(self, rows: Any) -> Numbers:
        """Input rows (n, D), or one (D,) → forecasts (n, K), or one (K,); with several horizons (n, horizons, K)."""
        values, single = as_rows(rows, self._frame)
        features, self._last = self._frame.inputs(values, self._last)
        estimates = [self._advance(features[i : i + 1]) for i in range(len(features))]
        if not estimates:
            return np.zeros((0, len(self._frame.roles.targets)))
        return self._read(torch.stack(estimates), single)

    def roll_out(self, steps: int, *, sample: bool = False, seed: int | None = None) -> Numbers:
        """The next rows of the targets (steps, K), each read as if it had come; the stream goes on from there."""
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise UserError(f"steps={steps!r} is no number of steps.", "Expected a whole number from 1 on.")
        check_roll_out(self._frame)
        if self.estimate is None:
            raise UserError("There is nothing to continue yet.", "Feed at least one row.")
        output, following = self._network.output, self._network.layout.next
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        assert self._features is not None
        features, result = torch.from_numpy(self._features), []
        for step in range(1, steps + 1):
            estimate = self.estimate[following]
            guess = output.draw(estimate, generator) if sample else output.guess(estimate)  # (K,)
            if guess is None:
                raise UserError("There is no distribution to draw from.", "Train with model.loss=gaussian.")
            if not bool(guess.isfinite().all()):
                raise UserError(f"Step {step} of the continuation is no finite number.", "Ask for fewer steps.")
            result.append(guess.cpu().numpy())
            features = self._network.with_guess(features, guess[None].cpu())
            self._advance(features.numpy())
        return self._frame.unscaled(np.stack(result))

    def _advance(self, features: NDArray[np.float32]) -> Tensor:
        """One row of features (1, F)."""
        self.estimate, self._state = self._step(features, self._state)
        self._features = features
        return self.estimate

    def _read(self, estimates: Tensor, single: bool) -> Numbers:
        """Estimates (n, horizons, K, P) in the data's own units."""
        output, frame = self._network.output, self._frame

        def shaped(values: NDArray[Any]) -> Numbers:
            values = values[:, 0] if len(frame.roles.horizons) == 1 else values
            return values[0] if single else values

        self.details = {}
        for name, values in output.details(estimates).items():
            numbers = values.cpu().numpy()
            own = numbers * frame.target_scale() if name == "deviation" else frame.unscaled(numbers)
            self.details[name] = shaped(own)
        return shaped(frame.unscaled(output.point(estimates).cpu().numpy()))


def as_rows(rows: Any, frame: Frame) -> tuple[Numbers, bool]:
    """What a user gave as rows (n, D), and whether it was a single one."""
    width = len(frame.roles.inputs)
    try:
        values = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"Rows must be numbers, got {str(rows)[:60]!r}.", f"Expected shape (steps, {width}).") from None
    single = values.ndim == 0 or (values.ndim == 1 and width > 1)
    if values.ndim <= 1:
        values = values.reshape(1, -1) if single else values.reshape(-1, 1)
    if values.ndim != 2 or values.shape[1] != width:
        raise UserError(
            f"Rows have shape {np.shape(rows)}.",
            f"Expected (steps, {width}): {', '.join(frame.roles.inputs[:10])}{', …' if width > 10 else ''}.",
        )
    check_rows(values, frame, lambda row: f"Row {row + 1}")
    return values, single


def check_rows(values: Numbers, frame: Frame, place: Callable[[int], str]) -> None:
    """Refuses what the model cannot read in input rows (n, D)."""
    wrong = np.isinf(values) if frame.missing else ~np.isfinite(values)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        value = values[row, column]
        fix = "The model was not trained with data.missing=mask." if np.isnan(value) else "Expected finite numbers."
        raise UserError(f"{place(row)}, column {frame.roles.inputs[column]!r} is {value}.", fix)
    frame.check_size(values, place)


def can_roll_out(frame: Frame) -> bool:
    """Whether the next step is predicted, and something of it is read."""
    return 1 in frame.roles.horizons and any(position >= 0 for position in frame.positions)


def check_roll_out(frame: Frame) -> None:
    """Refuses what cannot be continued on its own predictions."""
    if frame.roles.aligned:
        raise UserError(
            "A model of aligned targets predicts no input: it cannot go on by itself.", "Feed it rows, without steps."
        )
    if 1 not in frame.roles.horizons:
        raise UserError(
            f"The model predicts {', '.join(map(str, frame.roles.horizons))} steps ahead, not the next one.",
            "Train with 1 among data.horizon.",
        )
    if all(position < 0 for position in frame.positions):
        raise UserError("No target is an input: predictions cannot be read back.", "Put the target among the inputs.")
    held = [name for name in frame.roles.inputs if name not in frame.roles.targets]
    if held:
        note(f"Not predicted, and held at the last value: {', '.join(map(repr, held[:10]))}.")
