"""`forecast`: vectors in, a vector for each step out: the next ones, or a signal for each input."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unrolled.config import Section
from unrolled.data import Batch
from unrolled.data.batching.ragged_windows import RaggedWindows
from unrolled.data.signals.categories import levels_of
from unrolled.data.signals.scaling import ColumnScaling, fit_scaling
from unrolled.data.signals.season import find_period
from unrolled.errors import UserError
from unrolled.kernels.vocabulary.reference import wide
from unrolled.model import Model
from unrolled.models.forecaster import Forecaster
from unrolled.tasks.contract import Data, Description, Task, Training
from unrolled.tasks.forecast.config import ForecastConfig
from unrolled.tasks.forecast.describe import ForecastDescription
from unrolled.tasks.forecast.initialize import start_from
from unrolled.tasks.forecast.layout import layout_of, output_name, output_of, steps_of
from unrolled.tasks.forecast.options import OPTIONS
from unrolled.tasks.forecast.own_rows import check_own_rows, estimated
from unrolled.tasks.forecast.predict import predict
from unrolled.tasks.forecast.read import Table, read_data
from unrolled.tasks.forecast.rollout import free_run
from unrolled.tasks.forecast.run import ForecastRunner
from unrolled.tasks.forecast.scores import evaluate_file, evaluated, tallied
from unrolled.tasks.forecast.stream import check_roll_out
from unrolled.tasks.forecast.trace import ForecastTracer
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.tracer import Tracer
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits

NAIVE = ("last_mse", "mean_mse", "seasonal_mse")


class Forecast(Task):
    """Numbers to come, or a signal for each input."""

    name: ClassVar[str] = "forecast"
    config_class: ClassVar[type[Section]] = ForecastConfig
    options: ClassVar[TaskOptions] = OPTIONS
    assets_class: ClassVar[Any] = ColumnScaling
    runner: ClassVar[type[Runner]] = ForecastRunner
    tracer: ClassVar[type[Tracer]] = ForecastTracer
    description: ClassVar[Description] = ForecastDescription()
    unit: ClassVar[str] = "steps"
    inherited: ClassVar[tuple[str, ...]] = (
        *("horizon", "input_columns", "target_columns", "category_columns", "missing", "start_row"),
    )

    def traits(self, config: ForecastConfig, assets: ColumnScaling) -> Traits:
        goal = Goal("free_running_mse" if config.train.free_running else "loss")
        eager = config.train.eager_reason
        return Traits(goal, stateful=config.train.stateful, judge_start=config.model.lags != 0, eager=eager)

    def read(self, config: ForecastConfig) -> Data:
        return read_data(config.data)

    def make_assets(self, config: ForecastConfig, data: Data, init: ColumnScaling | None = None) -> ColumnScaling:
        table: Table = data.train
        if init is not None:
            if init.roles != table.roles:
                raise UserError(
                    f"The model reads {', '.join(init.roles.inputs[:10])} and predicts "
                    f"{', '.join(init.roles.targets[:10])}; the data gives {', '.join(table.roles.names[:10])}.",
                    "Give data with the same columns, or say which they are: data.input_columns, data.target_columns; "
                    "data.time_column=none and data.sequence_column=none take nothing out of them.",
                )
            check_own_rows(config, init)
            return init
        settings = config.data
        frame = fit_scaling(
            table.roles,
            table.parts,
            settings.scaling,
            missing=settings.missing == "mask",
            start_row=settings.start_row,
            time=table.keys.time,
            series=table.keys.series,
            step=table.timeline.step if table.timeline is not None else None,
            period=_period(settings.period, table),
            levels=levels_of([part.series for part in table.parts], table.roles.categories),
        )
        check_directions(config, frame)
        if config.train.free_running:
            check_roll_out(frame)
        check_own_rows(config, frame)
        return frame

    def build(self, config: ForecastConfig, assets: ColumnScaling) -> nn.Module:
        output = output_of(config.model, assets)
        tune = config.train.tune_linear or output.per_step  # a linear path of probabilities is not fitted
        return Forecaster(config.model, layout_of(config.model, assets), output, tune_linear=tune)

    def facts(self, config: ForecastConfig, assets: ColumnScaling) -> dict[str, Any]:
        return {"model.loss": output_name(config.model, assets), "model.lags": layout_of(config.model, assets).lags}

    def initialize(self, network: nn.Module, config: ForecastConfig, assets: ColumnScaling, data: Data) -> None:
        """Set the scales of changes, and fit the linear path: training starts from a linear forecast."""
        assert isinstance(network, Forecaster)
        start_from(network, [assets.steps(part) for part in data.train.parts], assets)

    def batches(
        self, config: ForecastConfig, assets: ColumnScaling, examples: Table, *, training: bool
    ) -> RaggedWindows:
        sequences = steps_of(config.model, assets, examples.parts, compared=not training)
        if not training:
            return evaluated(config.model, sequences)
        settings = config.train
        least = 4 * settings.window  # shorter pieces would be mostly warming up
        return RaggedWindows(
            sequences, rows=settings.batch_size, window=settings.window, seed=settings.seed, least=least
        )

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        assert isinstance(network, Forecaster)
        estimate, state = estimated(network, batch, state, training)
        output, scale = network.output, network.scale
        scored = ~batch.targets.isnan()  # (B, T, horizons, K)
        losses = output.loss(wide(estimate), batch.targets.nan_to_num(), scale)
        count = scored.any(-1).sum() if output.per_step else scored.sum()
        return Loss(torch.where(scored, losses, 0.0).sum(), count, state)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        assert isinstance(batches, RaggedWindows)
        network: Any = model.network

        def losses(estimate: Tensor, targets: Tensor) -> Tensor:
            found: Tensor = network.output.loss(estimate, targets.nan_to_num(), network.scale)
            return found

        tally = tallied(model, batches, losses)
        scores = {k: v for k, v in tally.scores().items() if k not in (*NAIVE, "steps")}
        if isinstance(model.config, ForecastConfig) and model.config.train.free_running:
            scores |= free_run(model, batches.pieces, model.config.train.rollout_steps).scores()
        return Evaluation(scores)

    def evaluate_file(self, model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
        return evaluate_file(model, path)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """The continuation of a series (T, D), or of each of a list of arrays, or of a table's series by their names.

        Without `steps`, the forecasts of the horizons, (horizons, K); for aligned targets one for each row, (T, K).
        With `steps`, a roll-out on its own predictions: (steps, K), with `sample` from its distribution; `hold_inputs`
        keeps inputs that it does not predict at their last values. With `interval`, a probability, an `Interval` of
        the point and its bounds.
        """
        return predict(model, inputs, **options)


def check_directions(config: ForecastConfig, frame: ColumnScaling) -> None:
    """An error for a model of both directions that would read what it predicts."""
    if config.model.bidirectional and not frame.roles.aligned:
        ahead = ", ".join(map(str, frame.roles.horizons))
        raise UserError(
            f"model.bidirectional=true reads a series from both ends, and data.horizon={ahead} asks for rows of it: "
            "the future would be read, not predicted.",
            "Use model.bidirectional=false; or data.horizon=0, with targets that are not inputs.",
        )


def _period(said: int | str, table: Table) -> int | None:
    """The period of the config, or that of the training targets."""
    if said == "none":
        return None
    if isinstance(said, int):
        return said
    columns = [table.roles.names.index(name) for name in table.roles.targets]
    step = table.timeline.step if table.timeline is not None else None
    return find_period([part.series.values[:, columns] for part in table.parts], step)
