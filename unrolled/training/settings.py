"""The `train` section of every task's config."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from unrolled.config import Section


class TrainSettings(Section):
    """How to train: the same keys for every task."""

    usual_epochs: ClassVar[int] = 8
    usual_updates: ClassVar[int] = 1000  # at least, where no number of epochs is given

    seed: int = Field(0, ge=0, description="Seed of every random draw; one seed on one machine gives one model.")
    device: str = Field("auto", description="auto takes a GPU where there is one; or cpu, cuda, cuda:1.")
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="bf16 and fp16 run products under autocast.")
    deterministic: bool = Field(
        False, description="Refuse operations whose result may differ from run to run on a GPU."
    )
    epochs: int | None = Field(
        None,
        ge=1,
        description="Passes over the training data; none: as max_steps says; or some, more where the data is small.",
    )
    max_steps: int | None = Field(None, ge=1, description="Stop after this many updates, if that comes first.")
    batch_size: int = Field(32, ge=1, description="Sequences side by side.")
    accumulate: int = Field(1, ge=1, description="Batches whose gradients are added up for one update.")
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"] = Field("adamw", description="How gradients become updates.")
    lr: float = Field(4e-3, gt=0, description="Learning rate at its highest; lr / 3 if the loss jumps about.")
    weight_decay: float = Field(0.0, ge=0, description="Pull of the weights towards zero.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Of sgd and rmsprop.")
    weight_noise: float = Field(
        0.0, ge=0, description="Deviation of Gaussian noise that every weight gets anew for each batch of training."
    )
    warmup_steps: int = Field(20, ge=0, description="Updates over which the learning rate rises to lr.")
    schedule: Literal["constant", "cosine", "geometric", "plateau"] = Field(
        "cosine",
        description="cosine and geometric fall to lr · decay_to by the last update; plateau divides when evaluations "
        "stall.",
    )
    hold: float = Field(0.0, ge=0, lt=1, description="Share of the run before cosine or geometric begin to fall.")
    decay_to: float = Field(0.01, gt=0, le=1, description="What cosine and geometric fall to, times lr.")
    plateau_factor: float = Field(0.5, gt=0, lt=1, description="What plateau multiplies the learning rate by.")
    plateau_patience: int = Field(1, ge=0, description="Evaluations without a better score that plateau waits for.")
    clip_norm: float | None = Field(1.0, gt=0, description="Gradients longer than this are scaled back to it.")
    clip_value: float | None = Field(None, gt=0, description="Each gradient is cut off at plus or minus this.")
    average: float = Field(
        0.0, ge=0, lt=1, description="Decay of a running mean of the weights, which is evaluated and kept; 0: none."
    )
    average_last: int = Field(
        0, ge=0, description="In place of average: the mean of the weights at the last so many evaluations; 0: none."
    )
    average_stalled: int = Field(
        0,
        ge=0,
        description="In place of average: the mean of all weights since no score was better for so many evaluations "
        "(NT-ASGD, with optimizer=sgd; 5 is usual); 0: none.",
    )
    eval_every: int | None = Field(None, ge=1, description="Updates between evaluations; none: ten in a run.")
    patience: int | None = Field(
        None,
        ge=0,
        description="Stop after this many evaluations without a better score, or an equal one with a lower loss; "
        "0: never; none: after two fifths of a run's evaluations, 4 at the least.",
    )
    threads: int | None = Field(None, ge=1, description="CPU threads; none: torch's choice.")


class ExampleTraining(TrainSettings):
    """Training on separate examples."""

    consistency: float = Field(
        0.0,
        ge=0,
        description="Weight of what two passes over the same example, dropped out otherwise, differ by (R-Drop; 2.5 is "
        "usual, 0.2 for recognize); takes twice the time; 0: none.",
    )
