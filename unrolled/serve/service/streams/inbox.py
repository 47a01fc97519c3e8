"""Messages that a client has sent and the stream has not read yet: a bounded queue, whose sound is joined."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

MOST = 64  # messages
MOST_BYTES = 2**20


class Inbox:
    """Messages in order. `put` waits while there are too many, so that the client's connection fills and it waits too.

    `end` tells the reader why there will be no more; what was put before is still read, unless it is `now`.
    """

    def __init__(self) -> None:
        self.ended: Any = None
        self._items: deque[Any] = deque()
        self._bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    async def put(self, item: Any) -> None:
        while len(self._items) >= MOST or self._bytes >= MOST_BYTES:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        self._items.append(item)
        self._bytes += size_of(item)
        _wake(self._reader)

    def end(self, why: Any, *, now: bool = False) -> None:
        """The first reason counts."""
        if self.ended is None:
            self.ended = why
        if now:
            self._items.clear()
            self._bytes = 0
        _wake(self._reader)
        _wake(self._writer)

    async def get(self, at_once: int) -> Any:
        """The next message; of bytes all that are there, up to `at_once`. None: it ended."""
        while not self._items:
            if self.ended is not None:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item = self._items.popleft()
        if isinstance(item, bytes):
            parts, size = [item], len(item)
            while size < at_once and self._items and isinstance(self._items[0], bytes):
                parts.append(self._items.popleft())
                size += len(parts[-1])
            item = parts[0] if len(parts) == 1 else b"".join(parts)
            if size > at_once:
                self._items.appendleft(item[at_once:])
                item = item[:at_once]
        self._bytes -= size_of(item)
        _wake(self._writer)
        return item


def size_of(item: Any) -> int:
    return len(item) if isinstance(item, (bytes, str)) else 0


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
