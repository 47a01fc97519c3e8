"""Streams that wait for their client to come back, in a bounded number and for a bounded time."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from unrolled.serve.service.registry import ModelLease
from unrolled.serve.service.streams.kinds import LiveStream


@dataclass(frozen=True)
class KeptStream:
    """A stream without a socket. It holds its model."""

    live: LiveStream
    lease: ModelLease
    start: dict[str, Any]
    until: float  # seconds since 1970


class KeptStreams:
    """Kept streams by number; the oldest one makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, KeptStream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, number: str, kept: KeptStream) -> None:
        self._kept[number] = kept
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)[1].lease.release()

    def take(self, number: str) -> KeptStream | None:
        self.sweep()
        return self._kept.pop(number, None)

    def sweep(self) -> None:
        """Forget those whose time is over."""
        now = time.time()
        for number in [number for number, kept in self._kept.items() if kept.until < now]:
            self._kept.pop(number).lease.release()

    def clear(self) -> None:
        for kept in self._kept.values():
            kept.lease.release()
        self._kept.clear()
