"""The calibration of a classifier: the temperature of its scores, and a threshold for each label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import DAMAGED, Positive, stored_as, stored_entry
from unrolled.errors import UserError
from unrolled.metrics.calibration import calibration_error
from unrolled.search.arrays import NUMPY

Table = NDArray[np.float32]
USUAL = 0.5  # threshold of a label


@dataclass(frozen=True)
class Calibration:
    """Fitted on the validation part. Stored in the model file."""

    temperature: float = 1.0  # that scores are divided by
    thresholds: tuple[float, ...] = ()  # of each label where there may be several; (): 0.5

    def to_json(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "thresholds": list(self.thresholds)}

    @classmethod
    def from_json(cls, stored: Any, labels: int) -> Calibration:
        temperature = stored_entry(stored, "temperature", Positive, "calibration")
        thresholds = stored_as(tuple[float, ...], stored.get("thresholds", []), "thresholds")
        if len(thresholds) not in (0, labels) or not all(0 <= one <= 1 for one in thresholds):
            raise UserError("The stored thresholds are damaged: expected one from 0 to 1 for each label.", DAMAGED)
        return cls(temperature, thresholds)


def probabilities(scores: Table, several: bool, calibration: Calibration | None) -> Table:
    """Scores (N, C) as probabilities, calibrated."""
    if calibration is not None and calibration.temperature != 1:
        scores = scores / np.float32(calibration.temperature)
    found: Table = NUMPY.sigmoid(scores) if several else NUMPY.shares(scores)
    return found


def applying(chances: Table, calibration: Calibration | None) -> NDArray[np.bool_]:
    """The labels that apply, (N, C), where there may be several."""
    if calibration is None or not calibration.thresholds:
        return chances >= USUAL
    return chances >= np.array(calibration.thresholds, dtype=np.float32)


def error_of(chances: Table, targets: NDArray[Any], several: bool) -> float:
    """The expected calibration error: of the answers; or of all labels, each of which applies or not."""
    if several:
        return calibration_error(chances.ravel().astype(np.float64), targets.ravel() > 0.5)
    right = chances.argmax(axis=1) == targets
    return calibration_error(chances.max(axis=1, initial=0).astype(np.float64), right)
