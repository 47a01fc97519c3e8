"""Signals that stop a run between two updates, so that it can be saved first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class Stop:
    """The signal that requested a stop, or None."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def leave(self) -> NoReturn:
        """Exit as the signal would: KeyboardInterrupt after Ctrl-C, exit code 143 otherwise."""
        if self.signal in (signal.SIGTERM, None):  # None: another process was asked
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Catch Ctrl-C and SIGTERM as a request to stop; a second signal stops immediately.

    A program's own SIGTERM handler stays in place. Signals reach the main thread only; other threads catch nothing.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, frame: Any) -> None:
        again = stop.signal is not None
        stop.signal = number
        if again:
            stop.leave()

    before = {signal.SIGINT: signal.signal(signal.SIGINT, request)}
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
