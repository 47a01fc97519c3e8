"""The settings of a sweep: its end, its search, its processes."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Literal

from pydantic import Field

from unrolled.config import Section
from unrolled.errors import UserError

SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
USUAL_TRIALS = 20  # of a sweep without an end


class SweepSettings(Section):
    """Settings of a sweep, in the table `sweep` of a config file beside the search spaces."""

    of_a_process: ClassVar[tuple[str, ...]] = ("trials", "time", "workers", "keep")  # may differ when a sweep goes on

    trials: int | None = Field(None, ge=1, description="Trials in all; none: 20, or no limit where time is one.")
    time: str | None = Field(None, description="Time that trials may take, such as 90s, 30m, 2h, 1h30m.")
    workers: int = Field(1, ge=1, description="Processes on this machine, which divide its threads.")
    sampler: Literal["tpe", "random"] = Field("tpe", description="tpe learns from earlier trials; random does not.")
    pruner: Literal["median", "hyperband", "none"] = Field(
        "median", description="Ends trials with poor scores early: median, hyperband, none."
    )
    seed: int = Field(0, ge=0, description="Seed of the search; train.seed is that of the trials.")
    keep: bool = Field(False, description="Keep models and checkpoints of all trials.")

    @property
    def seconds(self) -> float | None:
        """The time limit."""
        return None if self.time is None else seconds_of(self.time)

    @property
    def most_trials(self) -> int | None:
        """The number of trials; None: time ends the sweep."""
        return USUAL_TRIALS if self.trials is None and self.time is None else self.trials


def seconds_of(given: Any) -> float:
    """The seconds of a time: 90s, 30m, 2h, 1h30m, or a number of seconds.

    >>> seconds_of("1h30m"), seconds_of(45)
    (5400.0, 45.0)
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given) and given > 0:
        return float(given)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([hms])", str(given).lower())
    written = "".join(f"{number}{unit}" for number, unit in parts)
    total = sum(float(number) * SECONDS[unit] for number, unit in parts)
    if written != re.sub(r"\s", "", str(given).lower()) or total <= 0:
        raise UserError(f"time={given!r} is not a time.", "Write it as 90s, 30m, 2h or 1h30m.")
    return total
