"""All streams of the service: how many there are, who is idle, what is kept, and their end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket

from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.metrics import Metrics
from unrolled.serve.service.settings import ServeSettings
from unrolled.serve.service.streams.kept import KeptStreams
from unrolled.serve.service.streams.session import DRAINING, StreamSession, close_code
from unrolled.serve.service.streams.steps import make_works, too_many
from unrolled.serve.service.streams.tokens import StateTokens

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service

LOOK = 1.0  # seconds between looks at idle sockets
LAST = 10.0  # seconds in which sockets are told that the service ends
PROTOCOL = "unrolled"  # that browsers name beside their key


class OpenStreams:
    """The open sockets. Used in the event loop."""

    def __init__(self, settings: ServeSettings, metrics: Metrics) -> None:
        self.settings = settings
        self.tokens, self.kept = StateTokens(settings.state_key_file), KeptStreams(settings.max_kept)
        self.works = make_works(settings)
        self._open: set[StreamSession] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.received = metrics.counter("unrolled_stream_bytes_total", "Bytes of messages to streams.", ("model",))
        self.resumed = metrics.counter("unrolled_streams_resumed_total", "Streams gone on with.", ("model",))
        self._ended = metrics.counter("unrolled_streams_total", "Streams ended.", ("model", "end"))
        metrics.gauge("unrolled_streams", "Open streams.", ("model",)).read = self._counts
        metrics.gauge("unrolled_streams_kept", "Streams that wait for their client.").read = lambda: {
            (): float(len(self.kept))
        }

    def _counts(self) -> dict[tuple[str, ...], float]:
        return {(name,): float(count) for name, count in Counter(one.name for one in self._open).items()}

    def attached(self, number: str) -> StreamSession | None:
        """The socket of a stream that has a number, if it has one still."""
        return next((one for one in self._open if one.number == number), None)

    async def serve(self, service: Service, socket: WebSocket, name: str) -> None:
        """Answer a socket until it ends."""
        session = StreamSession(service, socket, name)  # an unknown model is an answer of HTTP
        await socket.accept(subprotocol=PROTOCOL if PROTOCOL in socket.scope.get("subprotocols", ()) else None)
        if service.draining:
            await refuse(socket, ServiceError(503, "The service ends. Connect again.", "restarting"))
            return
        if len(self._open) >= self.settings.max_streams:
            self._ended.add(name, "refused")
            await refuse(socket, too_many(self.settings.max_streams))
            return
        self._open.add(session)
        self._watch()
        await session.run()

    def left(self, session: StreamSession) -> None:
        """A session has ended."""
        self._open.discard(session)
        self._ended.add(session.name, session.end_reason)

    async def drain(self) -> None:
        """End all sockets, each with a token to go on with."""
        for session in list(self._open):
            session.end(DRAINING)
        waiting = [asyncio.ensure_future(one.over.wait()) for one in self._open]
        if waiting:
            await asyncio.wait(waiting, timeout=LAST)

    def close(self) -> None:
        """The event loop ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open.clear()
        self.kept.clear()

    def _watch(self) -> None:
        if self._timer is None:
            every = min(LOOK, self.settings.stream_idle / 4)
            self._timer = asyncio.get_running_loop().call_later(every, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for session in list(self._open):
            session.look(now)
        self.kept.sweep()
        if self._open or len(self.kept):
            self._watch()


async def refuse(socket: WebSocket, error: ServiceError) -> None:
    """Tell a client why its socket closes at once."""
    await socket.send_json({"type": "error", **error.body})
    await socket.close(close_code(error.status))
