"""Connections to the service: headers within a time and a size, and no memory for a client that does not read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from unrolled.serve.service.errors import LOG


class ServiceConnection(HttpToolsProtocol):
    """uvicorn's connection, dropped where its next headers are not whole after `read_timeout` seconds or `most` bytes,
    and where the client takes nothing of an answer for as long.
    """

    read_timeout = 10.0
    most = 2**16

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._slow: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._unread = 0
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_headers()
        self._is_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._slow is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._slow is not None and self._header_bytes > self.most:
            self._drop("headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._slow is None:
            self._await_headers()

    def on_headers_complete(self) -> None:
        self._have_headers()
        super().on_headers_complete()

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._slow = self.loop.call_later(self.read_timeout, self._drop, "headers are too slow")

    def _have_headers(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _drop(self, why: str) -> None:
        LOG.info("connection dropped: %s", why)
        self._have_headers()
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self._await_reader()
        super().timeout_keep_alive_handler()

    def _await_reader(self) -> None:
        """Look again after a while whether the client takes what is written."""
        self._is_read()
        self._unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.read_timeout, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self.transport.get_write_buffer_size() >= self._unread > 0:
            self._drop("the answer is not read")
        elif self._unread:
            self._await_reader()

    def _is_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


def connections_of(read_timeout: float, most: int) -> type[ServiceConnection]:
    """The class of connections with these bounds, as uvicorn takes it."""
    return type("BoundConnection", (ServiceConnection,), {"read_timeout": read_timeout, "most": most})
