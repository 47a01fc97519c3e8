"""`forecast`: vectors in, a vector for each step out: the next ones, or a signal for each input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch
from unrolled.data.batching.lanes import Lanes, Steps
from unrolled.data.readers.series.series import Numbers
from unrolled.data.signals.scaling import Frame, Part, fit_frame
from unrolled.data.signals.season import find_period
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.forecaster import Forecaster, ForecasterSettings, Layout
from unrolled.models.outputs import Output, make_output
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.contract import Data, Example, Request, Task, nth, table_of
from unrolled.tasks.forecast.describe import ADDS_NOTHING, adds_nothing, facts, roles_in_words
from unrolled.tasks.forecast.initialize import start_from
from unrolled.tasks.forecast.options import OPTIONS
from unrolled.tasks.forecast.predict import answers, keys_of, rows_of
from unrolled.tasks.forecast.read import ForecastData, Table, arrange, read_data, read_like, usable
from unrolled.tasks.forecast.rollout import free_run
from unrolled.tasks.forecast.scores import Tally
from unrolled.tasks.forecast.stream import Interval, RowStream, as_rows, can_roll_out, check_level, check_roll_out
from unrolled.tasks.forecast.trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.forecast.trace import trace_rows
from unrolled.tasks.options import TaskOptions
from unrolled.training import Batches, Forcing, Goal, Loss, TrainSettings, own_share

MOST_LOOKED_AT = 200  # rows of an example
EVALUATED_AT_ONCE = 64  # series side by side
NAIVE = ("last_mse", "mean_mse", "seasonal_mse")


class ForecastTraining(TrainSettings):
    """Training on windows of long series: truncated backpropagation."""

    lr: float = Field(2e-3, gt=0, description="Learning rate at its highest; lr / 3 if the loss jumps about.")
    eval_every: int | None = Field(50, ge=1, description="Updates between evaluations; none: ten in a run.")
    window: int = Field(100, ge=1, description="Steps of a series between updates, and that gradients go back.")
    stateful: bool = Field(True, description="Carry the state from one window to the next; false: windows stand alone.")
    teacher_forcing: Forcing = Field(
        "always", description="Read the true past always, never, or less and less over the run (scheduled sampling)."
    )
    free_running: bool = Field(
        False, description="Choose the best model by roll-outs on its own predictions, not by its next step."
    )
    tune_linear: bool = Field(
        False,
        description="Train the linear path too, after it was fitted; false: the recurrent layers learn what it leaves.",
    )
    rollout_steps: int = Field(24, ge=1, description="Steps of the roll-outs that evaluations make.")


class ForecastConfig(Section):
    """A config of `forecast`."""

    task: Literal["forecast"] = Field("forecast", description="What the config is for.")
    data: ForecastData = ForecastData()
    model: ForecasterSettings = ForecasterSettings()
    train: ForecastTraining = ForecastTraining()


class Forecast(Task):
    """Numbers to come, or a signal for each input."""

    name: ClassVar[str] = "forecast"
    config_class: ClassVar[type[Section]] = ForecastConfig
    unit: ClassVar[str] = "steps"
    keeps: ClassVar[bool] = True
    keeps_lines: ClassVar[bool] = True
    inherited: ClassVar[tuple[str, ...]] = ("horizon", "input_columns", "target_columns", "missing", "start_row")
    options: ClassVar[TaskOptions] = OPTIONS
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS

    def goal(self, config: ForecastConfig, assets: Frame) -> Goal:
        return Goal("free_running_mse" if config.train.free_running else "loss")

    def read(self, config: ForecastConfig) -> Data:
        return read_data(config.data)

    def make_assets(self, config: ForecastConfig, data: Data, init: Frame | None = None) -> Frame:
        table: Table = data.train
        if init is not None:
            if init.roles != table.roles:
                raise UserError(
                    f"The model reads {', '.join(init.roles.inputs[:10])} and predicts "
                    f"{', '.join(init.roles.targets[:10])}; the data gives {', '.join(table.roles.names[:10])}.",
                    "Give data with the same columns, or say which they are: data.input_columns, data.target_columns; "
                    "data.time_column=none and data.sequence_column=none take nothing out of them.",
                )
            return init
        settings = config.data
        frame = fit_frame(
            table.roles,
            table.parts,
            settings.scaling,
            missing=settings.missing == "mask",
            start_row=settings.start_row,
            time=table.keys.time,
            series=table.keys.series,
            step=table.timeline.step if table.timeline is not None else None,
            period=_period(settings.period, table),
        )
        if config.train.free_running or config.train.teacher_forcing != "always":
            check_roll_out(frame)
        return frame

    def assets_to_json(self, assets: Frame) -> Any:
        return assets.to_json()

    def assets_from_json(self, stored: Any) -> Frame:
        return Frame.from_json(stored)

    def build(self, config: ForecastConfig, assets: Frame) -> nn.Module:
        output = output_of(config.model, assets)
        tune = config.train.tune_linear or output.per_step  # a linear path of probabilities is not fitted
        return Forecaster(config.model, layout_of(config.model, assets), output, tune_linear=tune)

    def initialize(self, network: nn.Module, config: ForecastConfig, assets: Frame, data: Data) -> None:
        """The scales of changes, and the linear path by least squares: training starts from a linear forecast."""
        assert isinstance(network, Forecaster)
        start_from(network, [assets.steps(part) for part in data.train.parts], assets)

    def roles(self, assets: Frame) -> dict[str, str]:
        return roles_in_words(assets)

    def remarks(self, model: Model) -> list[str]:
        return [ADDS_NOTHING] if adds_nothing(model.network) else []

    def batches(self, config: ForecastConfig, assets: Frame, examples: Table, *, training: bool) -> Lanes:
        sequences = steps_of(config.model, assets, examples.parts, compared=not training)
        if not training:
            return Lanes(sequences, lanes=EVALUATED_AT_ONCE, window=1000)
        settings = config.train
        least = 4 * settings.window  # shorter pieces would be mostly warming up
        return Lanes(sequences, lanes=settings.batch_size, window=settings.window, seed=settings.seed, least=least)

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        assert isinstance(network, Forecaster)
        estimate, state = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
        output, scale = network.output, network.scale
        scored = ~batch.targets.isnan()  # (B, T, horizons, K)
        losses = output.loss(estimate.float(), batch.targets.nan_to_num(), scale)
        count = scored.any(-1).sum() if output.per_step else scored.sum()
        return Loss(torch.where(scored, losses, 0.0).sum(), count, state)

    def prepare(self, network: nn.Module, config: ForecastConfig, batch: Batch, state: Any, done: float) -> Batch:
        """Puts the model's own predictions in place of some true inputs, as `train.teacher_forcing` says.

        All steps are drawn at once from one run on the true inputs, as for text.
        """
        share = own_share(config.train.teacher_forcing, done)
        if share == 0 or batch.inputs.shape[1] < 2:
            return batch
        assert isinstance(network, Forecaster)
        with torch.no_grad():
            estimate, _ = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
        guess = network.output.guess(estimate[:, :-1, network.layout.next])  # of the inputs from the second on
        own = torch.rand(batch.inputs.shape[0], batch.inputs.shape[1] - 1, 1, device=batch.inputs.device) < share
        rest = torch.where(own, network.with_guess(batch.inputs[:, 1:], guess), batch.inputs[:, 1:])
        return replace(batch, inputs=torch.cat([batch.inputs[:, :1], rest], dim=1))

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        assert isinstance(batches, Lanes)
        tally = tallied(model, batches)
        scores = {k: v for k, v in tally.scores().items() if k not in (*NAIVE, "steps")}
        if isinstance(model.config, ForecastConfig) and model.config.train.free_running:
            scores |= free_run(model, batches.pieces, model.config.train.rollout_steps).scores()
        return scores

    @torch.no_grad()
    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, Any]:
        """Every step scored once with all of its past; then roll-outs, where the model can go on by itself."""
        if not isinstance(path, (str, Path)):
            raise UserError(
                f"A forecast is scored on a file, got {type(path).__name__}.", "Give the path of a table or .npz."
            )
        model.network.eval()
        frame, config = frame_of(model), model.config
        assert isinstance(config, ForecastConfig)
        sheet = read_like(path, frame.roles, keys_of(model), missing=frame.missing)
        series = usable(arrange(sheet, frame.roles), frame.roles, frame.start_row)
        examples = steps_of(config.model, frame, [Part(one) for one in series])
        tally = tallied(model, Lanes(examples, lanes=EVALUATED_AT_ONCE, window=1000))
        scores: dict[str, Any] = {**tally.scores(), "series": len(series)}
        del scores["loss"]
        free = free_run(model, examples, config.train.rollout_steps) if can_roll_out(frame) else None
        if free is not None and free.origins:
            scores |= free.scores()
        scores["columns"] = tally.table()
        return scores

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """What follows a series (T, D), or each of a list of arrays.

        Without `steps` the horizons' forecasts, (horizons, K); for aligned targets one for each row, (T, K). With
        `steps` the model goes on from its own predictions: (steps, K), `sample`d from its distribution if asked for;
        `hold_inputs` keeps inputs that it does not predict at their last values. With `interval`, a probability, it is
        an `Interval` of the point and its bounds.
        """
        _check(options)
        if isinstance(inputs, (list, tuple)) and inputs and all(isinstance(one, np.ndarray) for one in inputs):
            return [self._continue(model, one, **options) for one in inputs]
        return self._continue(model, inputs, **options)

    def _continue(
        self,
        model: Model,
        rows: Any,
        steps: int | None = None,
        interval: float | None = None,
        **options: Any,
    ) -> Numbers | Interval:
        frame = frame_of(model)
        values, single = as_rows(rows, frame)
        stream = RowStream(model)
        answer = stream.feed(values)
        if steps is not None:
            if interval is None:
                return stream.roll_out(steps, **options)
            lower, upper = stream.spread(steps, interval, **{k: v for k, v in options.items() if k != "sample"})
            held = bool(options.get("hold_inputs"))
            return Interval(stream.roll_out(steps, hold_inputs=held), lower, upper)
        if not len(values) and not frame.roles.aligned:
            raise UserError("There is no row to go on from.", "Give at least one.")

        def chosen(numbers: Numbers) -> Numbers:
            if frame.roles.aligned:
                return numbers[0] if single else numbers
            return numbers[-1:] if len(frame.roles.horizons) == 1 else numbers[-1]

        return chosen(answer) if interval is None else Interval(*map(chosen, (answer, *stream.interval(interval))))

    def run(self, model: Model, request: Request, **options: Any) -> Iterator[str]:
        """A line out for each row in, at once; with `steps` the continuation of each series."""
        _check(options)
        return answers(model, request, keep=request.keep, **options)

    def report(self, scores: dict[str, Any]) -> str:  # type: ignore[override]
        rows = {name: " ".join(f"{k} {v:.4g}" for k, v in row.items()) for name, row in scores["columns"].items()}
        plain = {name: value for name, value in scores.items() if not isinstance(value, dict)}
        return table_of(plain) + "\n\n" + table_of(rows)

    def stream(self, model: Model, **options: Any) -> RowStream:
        return RowStream(model)

    def trace(self, model: Model, inputs: Any, **options: Any) -> ModelTrace:
        """Every gate and state of the recurrent layers on a series (T, D), and the loss of each forecast."""
        chosen = read_options(self.trace_options, options)
        frame = frame_of(model)
        assert isinstance(model.network, Forecaster)
        return trace_rows(model.network, frame, as_rows(inputs, frame)[0], **chosen)

    def trace_input(self, model: Model, request: Request) -> Numbers:
        """The first series of a file, or rows of numbers with commas between, on lines."""
        rows = list(rows_of(model, request))
        if not rows:
            names = ", ".join(frame_of(model).roles.inputs[:10])
            raise UserError("There are no rows.", f"Give a file, or rows of {names} with commas between.")
        first = (rows[0].source, rows[0].series)
        return np.stack([row.values for row in rows if (row.source, row.series) == first])

    def example(self, examples: Table, number: int) -> Example:
        """The first rows of a series that is validated on, and the targets of these and of those that come after."""
        part, roles = nth(examples.parts, number), examples.roles
        read, wanted = ([roles.names.index(name) for name in names] for names in (roles.inputs, roles.targets))
        values, farthest = part.series.values, max(roles.horizons)
        last = max(part.first + 1, min(part.first + MOST_LOOKED_AT, len(values) - farthest))
        return Example(values[part.first : last, read], values[part.first : last + farthest, wanted])

    def stateful(self, config: ForecastConfig) -> bool:
        return config.train.stateful

    def judge_start(self, config: ForecastConfig) -> bool:
        return config.model.lags != 0

    def statistics(self, config: ForecastConfig, data: Data, assets: Frame) -> dict[str, Any]:
        return facts(data, assets, output_name(config.model, assets), own_valid=config.data.valid is not None)


def frame_of(model: Model) -> Frame:
    assert isinstance(model.assets, Frame)
    return model.assets


def output_name(settings: ForecasterSettings, frame: Frame) -> Any:
    """The loss of the config, or the one that the data asks for."""
    binary = all(frame.binary[column] for column in frame.target_columns)
    return settings.loss or ("bernoulli" if binary else "mse")


def steps_of(
    settings: ForecasterSettings, frame: Frame, parts: Sequence[Part], *, compared: bool = True
) -> list[Steps]:
    """Series as the network reads them, to be `compared` with the seasonal forecast or not.

    Targets of a Bernoulli output must be what it can say.
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


def output_of(settings: ForecasterSettings, frame: Frame) -> Output:
    return make_output(output_name(settings, frame), settings.quantiles)


def layout_of(settings: ForecasterSettings, frame: Frame) -> Layout:
    """Sizes, and the defaults that depend on the data."""
    bernoulli = output_name(settings, frame) == "bernoulli"
    inputs = len(frame.roles.inputs)
    residual = settings.residual if settings.residual is not None else not bernoulli
    changes = settings.changes if settings.changes is not None else not all(frame.binary[:inputs])
    lags = settings.lags if settings.lags is not None else 0 if bernoulli else min(24, max(1, 256 // inputs))
    positions = tuple(frame.positions)
    return Layout(inputs, frame.missing, frame.roles.horizons, positions, residual, changes, lags)


def tallied(model: Model, batches: Lanes) -> Tally:
    """Errors over all batches, the state carried from one to the next."""
    network = model.network
    assert isinstance(network, Forecaster)
    tally, state = Tally(frame_of(model), network), None
    for index in range(len(batches)):
        batch = batches[index].to(model.device)
        estimate, state = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
        tally.add(estimate.float(), batch.inputs, batch.targets, batch.more.get("naive"))
    return tally


def _period(said: int | str, table: Table) -> int | None:
    """The period of the config, or of the targets of the training part."""
    if said == "none":
        return None
    if isinstance(said, int):
        return said
    columns = [table.roles.names.index(name) for name in table.roles.targets]
    step = table.timeline.step if table.timeline is not None else None
    return find_period([part.series.values[:, columns] for part in table.parts], step)


def _check(options: Mapping[str, Any]) -> None:
    if options.get("sample") and options.get("steps") is None:
        raise UserError("What a model goes on with can be drawn, and it is not to go on.", "Say for how many steps.")
    drawn = options.get("sample") or (options.get("interval") is not None and options.get("steps") is not None)
    if options.get("seed") is not None and not drawn:
        raise UserError("A seed is for what is drawn, and nothing is.", "Ask for a sample, or leave it out.")
    if options.get("hold_inputs") and options.get("steps") is None:
        raise UserError("Inputs are held while a model goes on by itself, and it is not to.", "Say for how many steps.")
    if options.get("interval") is not None:
        check_level(options["interval"])
        if options.get("sample"):
            raise UserError("An interval is that of many samples, and one was asked for.", "Leave one of them out.")
