"""The `train` section of every task's config."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from unrolled.config import Section, but, only

FALLING = only(schedule=("cosine", "geometric"))
PLATEAU = only(schedule="plateau")
TrackerName = Literal["tensorboard", "mlflow", "wandb"]
AVERAGE = only(average_last=0, average_stalled=0)


class TrainSettings(Section):
    """Training settings: the same keys for every task."""

    usual_epochs: ClassVar[int] = 8
    usual_updates: ClassVar[int] = 1000  # the minimum without a number of epochs

    seed: int = Field(0, ge=0, description="Random seed; the same seed on the same machine gives the same model.")
    device: str = Field("auto", description="auto (a GPU if there is one), cpu, cuda, cuda:1.")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="Of matrix products: auto (bf16 on a GPU that computes it, fp32 otherwise), fp32, bf16, fp16.",
    )
    graph: Literal["auto", "on", "off"] = Field(
        "auto", description="Updates on a GPU in CUDA graphs: auto (where possible), on (an error where not), off."
    )
    deterministic: bool = Field(False, description="Reject operations that are not deterministic on a GPU.")
    epochs: int | None = Field(
        None,
        ge=1,
        description="Passes over the training data; none: max_steps, or a default, larger for small data.",
    )
    max_steps: int | None = Field(None, ge=1, description="Largest number of updates.")
    batch_size: int = Field(32, ge=1, description="Sequences in a batch.")
    accumulate: int = Field(1, ge=1, description="Batches per update (gradient accumulation).")
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"] = Field("adamw", description="Optimiser.")
    lr: float = Field(4e-3, gt=0, description="Highest learning rate; use lr / 3 if the loss jumps.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay.")
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        json_schema_extra=only(optimizer=("sgd", "rmsprop")),
        description="Momentum of sgd and rmsprop.",
    )
    weight_noise: float = Field(
        0.0, ge=0, description="Standard deviation of Gaussian weight noise, new for each training batch."
    )
    warmup_steps: int = Field(20, ge=0, description="Warm-up: updates until the learning rate reaches lr.")
    schedule: Literal["constant", "cosine", "geometric", "plateau"] = Field(
        "cosine",
        description="cosine and geometric fall to lr · decay_to by the last update; plateau divides when evaluations "
        "stall.",
    )
    hold: float = Field(
        0.0,
        ge=0,
        lt=1,
        json_schema_extra=FALLING,
        description="Share of the run before cosine or geometric decay begins.",
    )
    decay_to: float = Field(
        0.01,
        gt=0,
        le=1,
        json_schema_extra=FALLING,
        description="Final learning rate of cosine and geometric, relative to lr.",
    )
    plateau_factor: float = Field(
        0.5, gt=0, lt=1, json_schema_extra=PLATEAU, description="Factor of plateau on the learning rate."
    )
    plateau_patience: int = Field(
        1, ge=0, json_schema_extra=PLATEAU, description="Evaluations without improvement before plateau acts."
    )
    clip_norm: float | None = Field(1.0, gt=0, description="Largest norm of the gradients (clipping).")
    clip_value: float | None = Field(None, gt=0, description="Largest absolute value of each gradient (clipping).")
    average: float = Field(
        0.0,
        ge=0,
        lt=1,
        json_schema_extra=AVERAGE,
        description="Decay of a running average of the weights, which is evaluated and saved; 0: none.",
    )
    average_last: int = Field(
        0,
        ge=0,
        json_schema_extra=only(average_stalled=0),
        description="Instead of average: mean of the weights at this number of last evaluations; 0: none.",
    )
    average_stalled: int = Field(
        0,
        ge=0,
        description="Instead of average: mean of all weights after this number of evaluations without improvement "
        "(NT-ASGD, with optimizer=sgd; 5 is usual); 0: none.",
    )
    eval_every: int | None = Field(None, ge=1, description="Updates between evaluations; none: ten in a run.")
    patience: int | None = Field(
        None,
        ge=0,
        description="Early stopping after this many evaluations without a better score (or an equal one, lower loss); "
        "0: never; none: two fifths of a run's evaluations, at least 4.",
    )
    threads: int | None = Field(None, ge=1, description="CPU threads; none: torch's choice.")
    log: TrackerName | list[TrackerName] = Field(
        [], description="Trackers that get the run's numbers too: tensorboard, mlflow, wandb (extra [log])."
    )
    backend: Literal["auto", "gloo", "nccl"] = Field(
        "auto",
        description="Of several processes (torchrun): auto (nccl on GPUs, gloo on CPUs), gloo (several may share a "
        "GPU), nccl.",
    )
    timeout: float = Field(300.0, gt=0, description="Seconds that one of several processes waits for the others.")

    @property
    def trackers(self) -> list[TrackerName]:
        """The names in `log`."""
        return self.log if isinstance(self.log, list) else [self.log]


class ExampleTraining(TrainSettings):
    """Training on separate examples."""

    consistency: float = Field(
        0.0,
        ge=0,
        json_schema_extra=only({"data.kind": but("number")}),
        description="Weight of the difference between two passes over an example with different dropout (R-Drop; 2.5 "
        "is usual, 0.2 for recognize); takes twice the time; 0: none.",
    )
