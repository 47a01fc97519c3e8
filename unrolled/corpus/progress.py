"""The progress of a run on standard error: one line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

ON_A_TERMINAL, ELSEWHERE = 0.5, 30.0  # seconds between two lines


@dataclass
class Progress:
    """The inputs that have their answers, of how many, and how fast they get them. `before` were there at the start."""

    total: int | None
    before: int = 0
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    _shown: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._begin = self._last = self.clock()
        self._terminal = sys.stderr.isatty()

    def update(self, done: int) -> None:
        """Tell the number of answers so far."""
        now = self.clock()
        wait = ON_A_TERMINAL if self._terminal else ELSEWHERE
        if self.quiet or (now - self._last < wait and not (self._terminal and done == self.total)):
            return
        self._last = now
        if self._terminal:
            print(f"\r\x1b[K{self.line(done, now)}", end="", file=sys.stderr, flush=True)
            self._shown = True
        else:
            print(self.line(done, now), file=sys.stderr, flush=True)

    def line(self, done: int, now: float) -> str:
        """
        >>> progress = Progress(10_000, before=1_000, clock=lambda: 0.0)
        >>> progress.line(4_000, now=60.0)
        '4,000 of 10,000 answers (40 %), 50 a second, 2:00 left'
        """
        seconds = max(now - self._begin, 1e-9)
        rate = (done - self.before) / seconds
        shown = f"{rate:,.0f} a second" if rate >= 10 or not rate else f"{rate:.2g} a second"
        if self.total is None:
            return f"{done:,} answers, {shown}"
        left = f", {clock_time((self.total - done) / rate)} left" if rate else ""
        return f"{done:,} of {self.total:,} answers ({100 * done // max(1, self.total)} %), {shown}{left}"

    def end(self) -> None:
        """Leave the line that changes, so that others may follow."""
        if self._shown:
            print(file=sys.stderr, flush=True)
            self._shown = False


def clock_time(seconds: float) -> str:
    """
    >>> clock_time(59.4), clock_time(3_725)
    ('0:59', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
