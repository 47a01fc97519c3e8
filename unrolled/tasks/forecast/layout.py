"""Series as a network reads them, and the sizes and output that depend on the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unrolled.data.batching.ragged_windows import FrameSequence
from unrolled.data.signals.scaling import ColumnScaling, SeriesPart
from unrolled.errors import UserError
from unrolled.models.forecaster_sizes import ForecasterSizes
from unrolled.models.outputs import Output, make_output

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.models.forecaster import ForecasterSettings


def frame_of(model: Model) -> ColumnScaling:
    assert isinstance(model.assets, ColumnScaling)
    return model.assets


def output_name(settings: ForecasterSettings, frame: ColumnScaling) -> Any:
    """The loss of the config, or the one that suits the data."""
    binary = all(frame.binary[column] for column in frame.target_columns)
    return settings.loss or ("bernoulli" if binary else "mse")


def steps_of(
    settings: ForecasterSettings, frame: ColumnScaling, parts: Sequence[SeriesPart], *, compared: bool = True
) -> list[FrameSequence]:
    """Series as the network reads them; `compared` adds the seasonal forecast.

    Targets of a Bernoulli output must be 0 or 1.
    """
    steps = [replace(frame.steps(part), naive=frame.seasonal(part) if compared else None) for part in parts]
    if output_name(settings, frame) == "bernoulli":
        for part, one in zip(parts, steps, strict=True):
            wrong = ~np.isin(one.targets, (0.0, 1.0)) & ~np.isnan(one.targets)
            if wrong.any():
                target = frame.roles.targets[int(np.argwhere(wrong)[0][-1])]
                raise UserError(
                    f"{part.series.name}: column {target!r} holds other numbers than 0 and 1.",
                    "Correct it, or train with model.loss=mse or gaussian.",
                )
    return steps


def output_of(settings: ForecasterSettings, frame: ColumnScaling) -> Output:
    return make_output(output_name(settings, frame), settings.quantiles)


def layout_of(settings: ForecasterSettings, frame: ColumnScaling) -> ForecasterSizes:
    """Sizes, and the defaults that depend on the data."""
    bernoulli = output_name(settings, frame) == "bernoulli"
    inputs = len(frame.roles.inputs)
    residual = settings.residual if settings.residual is not None else not bernoulli
    changes = settings.changes if settings.changes is not None else not all(frame.binary[:inputs])
    lags = settings.lags if settings.lags is not None else 0 if bernoulli else min(24, max(1, 256 // inputs))
    positions = tuple(frame.positions)
    values = tuple(1 + len(known) for known in frame.levels)
    return ForecasterSizes(inputs, frame.missing, frame.roles.horizons, positions, residual, changes, lags, values)
