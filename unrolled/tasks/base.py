"""What a task is: all that tells one kind of job from another. The loop, the files and the commands know only this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from unrolled.config import Section
from unrolled.data import Batch
from unrolled.model import Model
from unrolled.training import Batches, Goal, Loss


@dataclass(frozen=True)
class Data:
    """What was read: training and validation examples in the task's own form, and where they came from."""

    train: Any
    valid: Any
    source: str  # in words, for the report
    fingerprint: str  # changes when the data does


class Task(ABC):
    """One kind of job. A config has the sections data, model and train; `assets` is what is learnt from the data
    before training, such as a vocabulary, and is kept in the model file."""

    name: ClassVar[str]
    config_class: ClassVar[type[Section]]
    goal: ClassVar[Goal]

    @abstractmethod
    def read(self, config: Any) -> Data:
        """Reads the files a config names, or the embedded data."""

    @abstractmethod
    def make_assets(self, config: Any, data: Data, init: Any = None) -> Any:
        """Vocabularies and the like; `init` are those of a model that training starts from."""

    @abstractmethod
    def assets_to_json(self, assets: Any) -> Any: ...

    @abstractmethod
    def assets_from_json(self, stored: Any) -> Any: ...

    @abstractmethod
    def build(self, config: Any, assets: Any) -> nn.Module:
        """The untrained network."""

    @abstractmethod
    def batches(self, config: Any, assets: Any, examples: Any, *, training: bool) -> Batches: ...

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss: ...

    def prepare(self, network: nn.Module, config: Any, batch: Batch, state: Any, done: float) -> Batch:
        """What a training batch becomes before its loss is taken, when `done` of the run is over."""
        return batch

    @abstractmethod
    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        """Scores on batches of the validation examples."""

    @abstractmethod
    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, float]:
        """Scores on a file of the user's."""

    @abstractmethod
    def predict(self, model: Model, inputs: Any, **options: Any) -> Any: ...

    def stream(self, model: Model, **options: Any) -> Any:
        """For input in pieces, where the task allows it."""
        raise TypeError(f"{self.name} does not stream")

    def trace(self, model: Model, inputs: Any) -> Any:
        raise TypeError(f"{self.name} does not trace")

    def samples(self, model: Model) -> list[str]:
        """A few fixed examples of what the model does, shown while it learns."""
        return []

    def stateful(self, config: Any) -> bool:
        """Whether the state of a batch is carried to the next."""
        return False

    def window(self, config: Any) -> int | None:
        """How many steps gradients go back; None: the batch's."""
        return None

    def warnings(self, config: Any, batches: Batches) -> list[str]:
        """What a user should know before a long run."""
        return []

    def statistics(self, config: Any, data: Data, assets: Any) -> Mapping[str, Any]:
        """Facts about the data, for `unrolled check`."""
        return {}
