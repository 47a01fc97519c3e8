"""Task: everything that distinguishes one kind of job from another. The loop, files and commands use only this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from unrolled.config import Section, apply
from unrolled.data import Batch, RowBuckets
from unrolled.data.batching.sharing import added_up, own_lanes, own_part
from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.models.weights import copy_weights
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.tracer import Tracer
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits


@dataclass(frozen=True)
class Data:
    """Training and validation examples in the task's own form, and their origin."""

    train: Any
    valid: Any
    source: str  # in words, for the report
    fingerprint: str  # changes with the data
    contents: str = ""  # changes with recordings and the like, of which the fingerprint has name and size alone


@dataclass(frozen=True)
class Training:
    """The settings of a loss in training, the config's section `train`, and what is done of the run."""

    settings: Any
    done: float = 0.0  # share of the run
    step: int = 0  # updates
    epoch: int = 0  # whole epochs

    @property
    def own_share(self) -> float:
        """The probability that a step reads the model's own output, as `ForcingSettings` say."""
        share: float = self.settings.own_share(self.done, self.step, self.epoch)
        return share


class Description:
    """Texts about a task's data and models. Every method is optional."""

    def warnings(self, config: Any, batches: Batches) -> list[str]:
        """Notes for the user before a long run."""
        return []

    def roles(self, assets: Any) -> Mapping[str, str]:
        """The role of each column of the data, for the beginning of a run and `unrolled info`."""
        return {}

    def remarks(self, model: Model) -> list[str]:
        """Notes about a trained model, for the end of a run and `unrolled info`."""
        return []

    def usage(self, model: Model) -> Usage:
        """The task's part of a model card: what the model does, how to use it, and its limits."""
        return Usage(f"A model of the task `{model.task.name}`, which is not one of unrolled's own.")

    def statistics(self, config: Any, data: Data, assets: Any) -> Mapping[str, Any]:
        """Facts about the data, for `unrolled check`."""
        return {}


class Task(ABC):
    """One kind of job: how its data is read, its network is built and trained, and its answers are made.

    A config has the sections data, model and train. `assets` are learnt from the data before training, such as a
    vocabulary, and are stored in the model file. docs/tasks.md shows a whole task.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[Section]]
    options: ClassVar[TaskOptions] = TaskOptions()  # of train, run, eval, predict and stream
    assets_class: ClassVar[Any] = None  # with to_json() and from_json(stored); None: assets are plain JSON
    runner: ClassVar[type[Runner]] = Runner
    tracer: ClassVar[type[Tracer]] = Tracer
    description: ClassVar[Description] = Description()
    unit: ClassVar[str] = "tokens"  # what a loss counts
    inherited: ClassVar[tuple[str, ...]] = ()  # keys of the data section that a model to start from decides
    file_keys: ClassVar[tuple[str, ...]] = ()  # keys of the data section that `run` and `eval` may set for their file
    parallel: ClassVar[bool] = False  # `evaluate_file` also takes two files

    @abstractmethod
    def read(self, config: Any) -> Data:
        """Read the files of a config, or the embedded data."""

    def make_assets(self, config: Any, data: Data, init: Any = None) -> Any:
        """Vocabularies and the like; `init` are those of a model to start from."""
        return None

    def assets_to_json(self, assets: Any) -> Any:
        return assets if self.assets_class is None else assets.to_json()

    def assets_from_json(self, stored: Any) -> Any:
        return stored if self.assets_class is None else self.assets_class.from_json(stored)

    @abstractmethod
    def build(self, config: Any, assets: Any) -> nn.Module:
        """The untrained network."""

    def architecture(self, config: Any) -> dict[str, Any]:
        """The keys that a model to start from decides: its shape, and its tokens."""
        keys = {f"model.{name}": value for name, value in config.model.model_dump().items()}
        return keys | {f"data.{name}": getattr(config.data, name) for name in self.inherited}

    def facts(self, config: Any, assets: Any) -> dict[str, Any]:
        """Decisions of the data, by name: conditions of keys ask for it (`unrolled.config.applies`)."""
        return {}

    def initialize(self, network: nn.Module, config: Any, assets: Any, data: Data) -> None:  # noqa: B027
        """Set the weights of a new network that are not random: pretrained vectors, the scale of the data."""

    def transfer(self, old: Model, network: nn.Module, assets: Any) -> None:
        """Copy the weights of a model to start from; `assets` may need more rows than it had."""
        copy_weights(old.network, network)

    def traits(self, config: Any, assets: Any) -> Traits:
        """The score that decides which model is best, and how the loop carries state."""
        return Traits(Goal("loss"))

    @abstractmethod
    def batches(self, config: Any, assets: Any, examples: Any, *, training: bool) -> Batches: ...

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        """The loss of a batch. In training also with smoothing, penalties and scheduled sampling, as set there."""

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        """Scores, and samples to show, on batches of the validation examples: the mean loss, unless overridden."""
        return Evaluation({"loss": mean_loss(self, model, batches)[0]})

    def evaluate_file(self, model: Model, path: Any, **options: Any) -> dict[str, Any]:
        """Scores on a file; tables of them are dictionaries. By default those of `evaluate`."""
        config = apply(model.config, {"data.train": str(Path(path)), "data.valid": str(Path(path))})
        model.network.eval()
        batches = self.batches(config, model.assets, self.read(config).valid, training=False)
        return dict(self.evaluate(model, batches).scores)

    @abstractmethod
    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """The answer to one input, or to a list of them in order."""


def mean_loss(task: Task, model: Model, batches: Batches) -> tuple[float, int]:
    """The loss per token over all batches, the state carried from one to the next, and the number of tokens."""
    total, count, state = 0.0, 0, None
    separate = isinstance(batches, RowBuckets)  # without a state
    with own_lanes(batches) as shared:
        for index in own_part(len(batches)) if separate else range(len(batches)):
            loss = task.loss(model.network, batches[index].to(model.device), state)
            total, count, state = total + float(loss.sum), count + int(loss.count), loss.state
    if separate or shared:
        total, count = (
            kind(number) for kind, number in zip((float, int), added_up(np.array([total, count])), strict=True)
        )
    return total / count, count
