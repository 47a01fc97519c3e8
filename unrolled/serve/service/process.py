"""The process of `unrolled serve`: uvicorn around the app, and an end that answers every accepted request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from unrolled.errors import Note, UserError
from unrolled.serve.service.app import Service, make_app
from unrolled.serve.service.connection import connections_of
from unrolled.serve.service.settings import ServeSettings

BACKLOG = 2048
LAST_LOOK = 0.2  # seconds in which clients learn that the service ends


class Server(uvicorn.Server):
    """A server that says where it listens, and drains on SIGTERM and Ctrl-C."""

    def __init__(self, config: uvicorn.Config, service: Service, say: Callable[[str], None]) -> None:
        super().__init__(config)
        self._service, self._say = service, say
        self._late: list[asyncio.Task[Any]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            settings = self._service.settings
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            names = ", ".join(self._service.registry.names)
            self._say(f"http://{host}:{settings.port}/  serves {names} (press Ctrl-C to stop)")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain. A second signal ends at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Every answer says `Connection: close` from now on; then no new connections; then all are waited for.

        Load balancers see at /readyz that the service ends while it still takes what they have sent.
        """
        self._service.draining = True
        await asyncio.sleep(LAST_LOOK)
        for one in sockets or ():
            self._accept_all(one)
        for server in self.servers:
            server.close()
        for one in sockets or ():
            one.close()
        await self._service.streams.drain()
        await asyncio.sleep(LAST_LOOK)
        await super().shutdown([])

    def _accept_all(self, listening: socket.socket) -> None:
        """Take the connections that are complete and wait to be accepted: closing the socket would reset them."""
        config, loop = self.config, asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        listening.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted, _ = listening.accept()
                accepted.setblocking(False)
                self._late.append(loop.create_task(loop.connect_accepted_socket(connection, accepted)))


def run(models: Any, settings: ServeSettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    if not settings.local and settings.api_key_file is None:
        raise UserError(
            f"Other machines reach {settings.host}, and there are no API keys.",
            "Give a file of keys, --api-key-file FILE; or --host 127.0.0.1, for this machine only.",
        )
    warnings.simplefilter("ignore", Note)  # notes are about inputs, and may quote them
    logging.getLogger("unrolled.serve").setLevel(logging.INFO)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    listening = bound(settings)
    app = make_app(models, settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=math.ceil(settings.drain),
        http=connections_of(settings.read_timeout, 4 * settings.max_header),
        ws_max_size=settings.max_message,
        ws_per_message_deflate=False,  # sound hardly shrinks, and each socket would need memory for it
        proxy_headers=settings.proxy is not None,
        forwarded_allow_ips=settings.proxy or "",
    )
    Server(config, app.state.service, say).run([listening])


def bound(settings: ServeSettings) -> socket.socket:
    """A socket that listens at the address of the settings."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends small answers at once (TCP_NODELAY) on sockets that name their protocol
    listening = socket.socket(family, proto=socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"The service cannot listen at {settings.host}:{settings.port}: {reason}.", "Give another --port or --host."
        ) from None
    listening.set_inheritable(True)
    return listening
