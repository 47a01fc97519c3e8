"""Labels and the reader of a classifier. Stored in the model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import DAMAGED, Finite, Positive, stored_as, stored_entry
from unrolled.data.readers.labelled import Labelled
from unrolled.errors import UserError, unknown_name
from unrolled.tasks.classify.calibration import Calibration
from unrolled.tasks.classify.regression import Scale, numbers_of
from unrolled.tasks.classify.wide import WideShape
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.shared.reader import Reader


class Encoded(NamedTuple):
    """An example, and the steps that the reader makes of its input."""

    example: Labelled
    steps: Any


def given_weights(text: str, labels: Sequence[str]) -> NDArray[np.float32]:
    """The weight of each label in a text such as "spam=5,ham=1"; 1 for those that it does not name.

    >>> given_weights("spam=5", ["ham", "spam"]).tolist()
    [1.0, 5.0]
    """
    found = np.ones(len(labels), dtype=np.float32)
    for part in text.split(","):
        label, _, value = (one.strip() for one in part.rpartition("="))
        if label not in labels:
            raise unknown_name("label in train.class_weights", label or part, labels)
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < np.inf:
            raise UserError(f"train.class_weights: {label}={value} is not a weight above 0.", f"Such as {label}=5.")
        found[list(labels).index(label)] = number
    return found


@dataclass(frozen=True)
class ClassifyAssets:
    """The labels of the training examples, and how a sequence is read. Stored in the model file."""

    labels: tuple[str, ...]
    counts: tuple[int, ...]  # of each label in the training examples
    reader: Reader
    scale: Scale | None = None  # of numbers, where these stand in place of labels
    wide: WideShape | None = None
    calibration: Calibration | None = None

    def targets(self, examples: Sequence[Labelled], multi_label: bool) -> NDArray[Any]:
        """(B,) class numbers, −1 for a label that training never saw; or (B, C) of 0 and 1; or (B,) scaled numbers."""
        if self.scale is not None:
            mean, deviation = self.scale
            return ((numbers_of(examples) - mean) / deviation).astype(np.float32)
        numbers = self._numbers
        if not multi_label:
            return np.array([numbers.get(example.labels[0], -1) for example in examples], dtype=np.int64)
        table = np.zeros((len(examples), len(self.labels)), dtype=np.float32)
        places = [(r, numbers[one]) for r, example in enumerate(examples) for one in example.labels if one in numbers]
        if places:
            table[tuple(zip(*places, strict=True))] = 1
        return table

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def weights(self, targets: NDArray[Any], settings: str) -> NDArray[np.float32]:
        """The weights of examples (B,) for one label each, of labels (B, C) for several, by train.class_weights.

        balanced: every class counts as much as any other.
        """
        if settings != "balanced":
            given = given_weights(settings, self.labels)
            found: NDArray[np.float32] = given[targets]
            return found if targets.ndim == 1 else np.where(targets > 0, given, np.float32(1))
        counts = self._at_least_one
        if targets.ndim == 1:
            found = (counts.sum() / np.float32(len(counts)) / counts)[targets]
            return found
        return np.where(targets > 0, counts.mean() / counts, np.float32(1))

    @cached_property
    def _at_least_one(self) -> NDArray[np.float32]:
        return np.maximum(np.array(self.counts, dtype=np.float32), np.float32(1))

    def encoded(self, examples: Sequence[Labelled]) -> list[Encoded]:
        """The examples with their steps; those of a corpus are computed once."""
        if isinstance(examples, Corpus):
            return examples.once("encoded", self.reader, lambda: self._encoded(examples))
        return self._encoded(examples)

    def _encoded(self, examples: Sequence[Labelled]) -> list[Encoded]:
        return [Encoded(example, self.reader.steps(example.input)) for example in examples]

    def to_json(self) -> dict[str, Any]:
        stored = {"labels": list(self.labels), "counts": list(self.counts), "reader": self.reader.to_json()}
        stored |= {} if self.scale is None else {"scale": list(self.scale)}
        stored |= {} if self.wide is None else {"wide": self.wide.to_json()}
        return stored | ({} if self.calibration is None else {"calibration": self.calibration.to_json()})

    @classmethod
    def from_json(cls, stored: Any) -> ClassifyAssets:
        labels = stored_entry(stored, "labels", tuple[str, ...], "labels")
        counts = stored_entry(stored, "counts", tuple[int, ...], "counts of labels")
        scale = None
        if stored.get("scale") is not None:
            scale = stored_as(tuple[Finite, Positive], stored["scale"], "scale of numbers")
        if bool(labels) == (scale is not None) or len(counts) != len(labels) or len(set(labels)) < len(labels):
            raise UserError("The stored labels are damaged: expected each once, with a count.", DAMAGED)
        reader = Reader.from_json(stored_entry(stored, "reader", dict[str, Any], "model"))
        wide = None if stored.get("wide") is None else WideShape.from_json(stored["wide"])
        calibration = None
        if stored.get("calibration") is not None:
            calibration = Calibration.from_json(stored["calibration"], len(labels))
        return cls(labels, counts, reader, scale, wide, calibration)
