"""A run that is killed at an update."""

from __future__ import annotations

from unrolled.training import StepInfo
from unrolled.training.watching import Callback, WatchedRun


class KilledAt(Callback):
    """Ctrl-C after an update, before anything of it is saved."""

    def __init__(self, step: int) -> None:
        self.step = step

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        if info.step == self.step:
            raise KeyboardInterrupt
