"""A log of updates, a row each: loss, learning rate, and gradient norms."""

from __future__ import annotations

import csv
import time
from pathlib import Path

from torch import Tensor

from unrolled.training.clipping import Clipping
from unrolled.training.loop import StepInfo

UPDATES = "updates.csv"
COLUMNS = ("step", "loss", "lr", "grad_norm", "clipped")  # then a column for each layer
SECONDS = 2.0  # between two writes; norms stay on their device until then


class UpdateLog:
    """Writes updates in groups, every few seconds."""

    def __init__(self, folder: Path, clipping: Clipping) -> None:
        self.path, self.clipping = folder / UPDATES, clipping
        self._rows: list[list[str]] = []
        self._norms: list[Tensor] = []
        self._written = time.monotonic()

    def add(self, info: StepInfo) -> None:
        """Add an update; the evaluation before the first one is skipped."""
        if info.norms is None:
            return
        self._rows.append(
            [str(info.step), _short(info.loss), _short(info.lr), _short(info.grad_norm), str(int(info.clipped))]
        )
        self._norms.append(info.norms)

    @property
    def is_due(self) -> bool:
        """True if updates wait for some seconds."""
        return time.monotonic() - self._written > SECONDS

    def write(self) -> None:
        """Write all pending updates."""
        self._written = time.monotonic()
        if not self._rows:
            return
        norms = self.clipping.by_layer(self._norms)
        rows = [[*row, *map(_short, layers)] for row, layers in zip(self._rows, norms, strict=True)]
        self._rows, self._norms = [], []
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if file.tell() == 0:
                writer.writerow([*COLUMNS, *self.clipping.layers])
            writer.writerows(rows)


def _short(value: float) -> str:
    return f"{value:.6g}"
