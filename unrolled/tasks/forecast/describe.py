"""Facts about a forecaster and its data: the roles of columns, and a remark on a trained model."""

from __future__ import annotations

from typing import Any

import numpy as np

from unrolled.data.signals.scaling import ColumnScaling
from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.models.forecaster import Forecaster
from unrolled.models.windowed_transformer import WindowedTransformer
from unrolled.tasks.contract import Data, Description
from unrolled.tasks.forecast.config import ForecastConfig
from unrolled.tasks.forecast.layout import output_name
from unrolled.tasks.forecast.read import Table

SHOWN = 20
RECURRENT = "recurrent part", "Its gates and states are untrained, and gradients through them are exactly 0."
TRANSFORMER = "Transformer", "Its attention is untrained, and gradients through it are exactly 0."


class ForecastDescription(Description):
    def usage(self, model: Model) -> Usage:
        roles = roles_in_words(model.assets)
        return Usage(
            f"It forecasts {roles['targets']} from {roles['inputs']}.",
            "time-series-forecasting",
            "rows.csv",
            "model.predict(rows)  # an array (steps, columns)",
            (
                "It continues the past of its series: an event that never occurred there is not foreseen.",
                *self.remarks(model),
            ),
        )

    def roles(self, assets: ColumnScaling) -> dict[str, str]:
        return roles_in_words(assets)

    def remarks(self, model: Model) -> list[str]:
        return adds_nothing(model.network)

    def statistics(self, config: ForecastConfig, data: Data, assets: ColumnScaling) -> dict[str, Any]:
        return facts(data, assets, output_name(config.model, assets), own_valid=config.data.valid is not None)


def adds_nothing(network: Any) -> list[str]:
    """A remark if the layers do not change the forecast, as before the first update; else none."""
    if not isinstance(network, Forecaster) or bool(network.head.weight.any()):
        return []
    part, untrained = TRANSFORMER if isinstance(network.layer, WindowedTransformer) else RECURRENT
    return [
        f"The {part} adds nothing: on the validation part no update was better than the linear path that training "
        f"starts from. The model is that linear forecast. {untrained}"
    ]


def roles_in_words(frame: ColumnScaling) -> dict[str, str]:
    """The role of each column."""
    roles = frame.roles
    steps = "step" if roles.horizons == (1,) else "steps"
    ahead = "the same step" if roles.aligned else f"{', '.join(map(str, roles.horizons))} {steps} ahead"
    step = f" ({frame.step})" if frame.step is not None else ""
    found = {
        "inputs": listed(roles.inputs),
        **({"categories": categories_in_words(frame)} if frame.levels else {}),
        "targets": f"{listed(roles.targets)} ({ahead})",
        "time": f"{','.join(frame.time)}{step}" if frame.time else "none: rows in the order of the file",
        "series": ",".join(frame.series) if frame.series else "none: a file is one series",
    }
    if frame.period is not None:
        long = f" ({frame.step.words(frame.period)})" if frame.step is not None and frame.time else ""
        found["period"] = f"{frame.period} rows{long}"
    return found


def categories_in_words(frame: ColumnScaling) -> str:
    """The columns of categories with their values."""
    pairs = zip(frame.roles.categories, frame.levels, strict=True)
    shown = ((name, len(known), ", ".join([*known[:7], *(["…"] if len(known) > 7 else [])])) for name, known in pairs)
    return "; ".join(f"{name} ({number}: {values})" for name, number, values in shown)


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)})" if len(names) > SHOWN else "")


def facts(data: Data, frame: ColumnScaling, loss: str, *, own_valid: bool) -> dict[str, Any]:
    """For `unrolled check`; with `own_valid` there is a file to validate on."""
    table: Table = data.train
    lengths = [len(part.series.values) for part in table.parts]
    missing = sum(int(np.isnan(part.series.values).sum()) for part in table.parts)
    found: dict[str, Any] = dict(roles_in_words(frame))
    if table.timeline is not None:
        found["step of the times"] = str(table.timeline)
    return found | {
        "steps ahead": ", ".join(map(str, frame.roles.horizons)) + (" (the same step)" if frame.roles.aligned else ""),
        "loss": loss,
        "train series / rows": f"{len(lengths)} / {sum(lengths)}",
        "series length, mean / longest": f"{sum(lengths) / len(lengths):.0f} / {max(lengths)}",
        "valid rows": data.valid.rows,
        "valid series also in train": _shared(table, data.valid) if own_valid else _ends(table, data.valid),
        "missing values in train": missing,
    }


def _ends(train: Table, valid: Table) -> str:
    return f"{len(valid.parts)} of {len(valid.parts)}: the ends of {len(train.parts)} series are held out"


def _shared(train: Table, valid: Table) -> str:
    """The validation series that are in the training file too, by name or else by values."""
    if train.keys.series:
        known = {part.series.key for part in train.parts}
        names = sum(part.series.key in known for part in valid.parts)
        text = f"{names} of {len(valid.parts)}, by {','.join(train.keys.series)}"
        return text + (f"; {n:,} valid rows at times of training" if (n := _same_times(train, valid)) else "")
    rows = {part.series.values.tobytes() for part in train.parts}
    return f"{sum(part.series.values.tobytes() in rows for part in valid.parts)} of {len(valid.parts)}"


def _same_times(train: Table, valid: Table) -> int:
    """The number of validation rows that are training rows too: same series, same time."""
    times = {part.series.key: part.series.times for part in train.parts}
    found = 0
    for part in valid.parts:
        known = times.get(part.series.key)
        if known is not None and part.series.times is not None:
            found += int(np.isin(part.series.times, known).sum())
    return found
