"""The config of `forecast`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unrolled.config import Section, but, only
from unrolled.models.forecaster import ForecasterSettings
from unrolled.tasks.forecast.read import ForecastData
from unrolled.training import ForcingSettings, TrainSettings
from unrolled.training.forcing import OWN_OUTPUTS


class ForecastTraining(ForcingSettings, TrainSettings):
    """Training on windows of long series: truncated backpropagation."""

    lr: float = Field(2e-3, gt=0, description="Learning rate at its highest; lr / 3 if the loss jumps about.")
    eval_every: int | None = Field(50, ge=1, description="Updates between evaluations; none: ten in a run.")
    window: int = Field(100, ge=1, description="Steps of a series between updates, and that gradients go back.")
    stateful: bool = Field(True, description="Carry the state from one window to the next; false: windows stand alone.")
    pick: Literal["point", "sample"] = Field(  # type: ignore[assignment]  # of numbers, not of tokens
        "point",
        json_schema_extra=OWN_OUTPUTS,
        description="Own outputs: the point forecast, or a sample of the distribution (gaussian, bernoulli).",
    )
    free_running: bool = Field(
        False, description="Choose the best model by roll-outs on its own predictions, not by its next step."
    )
    tune_linear: bool = Field(
        False,
        json_schema_extra=only({"model.lags": but(0), "model.loss": but("bernoulli")}),
        description="Train the linear path too, after it was fitted; false: the recurrent layers learn what it leaves.",
    )
    rollout_steps: int = Field(24, ge=1, description="Steps of the roll-outs that evaluations make.")


class ForecastConfig(Section):
    """A config of `forecast`."""

    task: Literal["forecast"] = Field("forecast", description="What the config is for.")
    data: ForecastData = ForecastData()
    model: ForecasterSettings = ForecasterSettings()
    train: ForecastTraining = ForecastTraining()
