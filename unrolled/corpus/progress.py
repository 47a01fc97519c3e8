"""The progress of a run on standard error: one line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from unrolled.durations import clock

ON_A_TERMINAL, ELSEWHERE = 0.5, 30.0  # seconds between two lines


@dataclass
class CorpusProgress:
    """The inputs that have their answers, of how many, and how fast they get them since the first did."""

    total: int | None
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    _shown: bool = field(default=False, init=False)
    _first: tuple[int, float] | None = field(default=None, init=False)  # answers, time: workers take a while to start

    def __post_init__(self) -> None:
        self._last = self.clock()
        self._terminal = sys.stderr.isatty()

    def update(self, done: int) -> None:
        """Tell the number of answers so far."""
        now = self.clock()
        self._first = self._first or (done, now)
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
        >>> progress = CorpusProgress(10_000, quiet=True, clock=lambda: 5.0)
        >>> progress.update(1_000)
        >>> progress.line(1_000, now=5.0), progress.line(4_000, now=65.0)
        ('1,000 of 10,000 answers (10 %)', '4,000 of 10,000 answers (40 %), 50 a second, 2:00 left')
        """
        count, begin = self._first or (done, now)
        of = "" if self.total is None else f" of {self.total:,}"
        share = "" if not self.total else f" ({100 * done // self.total} %)"
        if done == count or now <= begin:
            return f"{done:,}{of} answers{share}"
        rate = (done - count) / (now - begin)
        left = "" if self.total is None else f", {clock((self.total - done) / rate)} left"
        return f"{done:,}{of} answers{share}, {rate:,.{0 if rate >= 10 else 1}f} a second{left}"

    def end(self) -> None:
        """Leave the line that changes, so that others may follow."""
        if self._shown:
            print(file=sys.stderr, flush=True)
            self._shown = False
