"""A stop that is asked for from outside: between two updates, so that the run can be saved first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class Stop:
    """Which signal asked for a stop, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def leave(self) -> NoReturn:
        """Ends as the signal would have: KeyboardInterrupt after Ctrl-C, exit code 143 after SIGTERM."""
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Ctrl-C or SIGTERM asks for a stop; a second one stops at once.

    A program's own handler of SIGTERM stays in place. Signals reach the main thread only: elsewhere nothing is caught.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def asked(number: int, frame: Any) -> None:
        again = stop.signal is not None
        stop.signal = number
        if again:
            stop.leave()

    before = {signal.SIGINT: signal.signal(signal.SIGINT, asked)}
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, asked)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
