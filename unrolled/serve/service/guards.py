"""The guard before every route: host and origin, keys, rates, sizes and times. It is plain ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.websockets import WebSocketDisconnect

from unrolled.serve.service.errors import LOG, ServiceError, as_service_error
from unrolled.serve.service.limits import ApiKeys, Rates, key_of
from unrolled.serve.service.metrics import Metrics
from unrolled.serve.service.settings import LOOPBACK, ServeSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/healthz", "/readyz", "/docs", "/openapi.json")  # without a key
OPEN_BELOW = ("/page/",)
POLICY = b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' blob:; "
SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", POLICY + b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
]


class Guard:
    """Refuses what is not allowed, counts what is, and answers every error in the one shape.

    `begin` is awaited before the first request in an event loop. `draining` is true from SIGTERM on: connections end.
    """

    def __init__(
        self,
        app: App,
        settings: ServeSettings,
        metrics: Metrics,
        keys: ApiKeys | None,
        begin: Callable[[], Awaitable[None]],
        draining: Callable[[], bool],
    ) -> None:
        self._app, self._settings, self._metrics, self._begin = app, settings, metrics, begin
        self._keys, self._draining = keys, draining
        self._rates = Rates(settings.rate, settings.burst) if settings.rate is not None else None
        self._open = 0
        self._hosts = {*LOOPBACK, *(host.lower() for host in settings.hosts)}
        self._any_host = "*" in settings.hosts or (keys is not None and not settings.hosts)
        metrics.gauge("unrolled_open_requests", "Requests being answered.").read = lambda: {(): self._open}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        await self._begin()
        origin = cross_origin(scope, self._settings.origins)
        if origin is not None:
            send = readable_from(origin, send)
        try:
            if origin is not None and is_preflight(scope):
                self._check_site(host_of(scope["headers"]), origin)
                await answer_preflight(send)
                return
            self._check(scope)
        except ServiceError as error:
            self._metrics.refused.add(error.code or "")
            await refuse(scope, receive, send, error)
            return
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.perf_counter(), 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                last = [(b"connection", b"close")] if self._draining() else []
                message = {**message, "headers": [*message.get("headers", ()), *SECURITY, *last]}
            await send(message)

        self._open += 1
        try:
            await self._app(scope, Body(self._settings, receive), send_on)
        except Exception as error:
            if status:  # the answer has begun: it can only break off
                as_service_error(error)
                raise
            await refuse(scope, receive, send_on, as_service_error(error))
        finally:
            self._open -= 1
            route = getattr(scope.get("route"), "path", "unknown")
            seconds = time.perf_counter() - began
            self._metrics.requests.add(route, str(status or 499))
            self._metrics.seconds.observe(seconds, route)
            if self._settings.access_log:
                LOG.info("%s %s %s %.1f ms", scope["method"], route, status or 499, seconds * 1000)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A socket until its end: a client that leaves is no error, and any other error is logged and closes it."""
        try:
            await self._app(scope, receive, send)
        except WebSocketDisconnect:
            return
        except Exception as error:
            found = as_service_error(error)
            code = 1011 if found.status >= 500 else 1008
            with contextlib.suppress(RuntimeError, OSError):  # it may be closed already
                await send({"type": "websocket.close", "code": code, "reason": found.message[:120]})

    def _check(self, scope: Scope) -> None:
        """Raise for a request that is not to be answered."""
        settings, headers = self._settings, scope["headers"]
        size = (
            len(scope.get("raw_path") or b"")
            + len(scope["query_string"])
            + sum(len(n) + len(v) + 4 for n, v in headers)
        )
        if size > settings.max_header:
            raise ServiceError(
                431,
                f"The headers and URL have {size:,} bytes; the limit is {settings.max_header:,}.",
                "headers_too_large",
            )
        given = {name: value for name, value in headers if name in (b"origin", b"content-length")}
        self._check_site(host_of(headers), given.get(b"origin"))
        declared = given.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > settings.max_body:
            raise too_large(settings)
        client = (scope.get("client") or ("",))[0]
        if self._keys is not None and not is_open(scope["path"]):
            client = self._owner(headers)
        if self._rates is not None and scope["path"] not in ("/healthz", "/readyz"):
            wait = self._rates.wait(client)
            if wait:
                raise ServiceError(
                    429,
                    f"There are more than {settings.rate:g} requests a second. Wait {wait:.1f} seconds.",
                    "rate_limit",
                    headers={"Retry-After": str(math.ceil(wait))},
                )
        if self._open >= settings.max_concurrency:
            raise ServiceError(
                429,
                f"{self._open:,} requests are being answered. Try again later.",
                "too_many_requests",
                headers={"Retry-After": "1"},
            )

    def _check_site(self, host: str, origin: bytes | None) -> None:
        """Host and Origin: other sites, and names that point here, are refused."""
        name = urlsplit(f"//{host}").hostname if host else None
        if not self._any_host and name not in self._hosts:
            raise ServiceError(
                403,
                "The service does not answer by this host name. Start it with --allow-host NAME.",
                "host_not_allowed",
            )
        if origin is None:
            return
        text = origin.decode("latin-1").lower()
        if text in (f"http://{host}", f"https://{host}") or text in self._settings.origins:
            return
        raise ServiceError(
            403,
            "Pages of this origin may not call the service. Start it with --allow-origin ORIGIN.",
            "origin_not_allowed",
        )

    def _owner(self, headers: Any) -> str:
        assert self._keys is not None
        key = key_of(headers)
        owner = None if key is None else self._keys.owner(key)
        if owner is None:
            what = "There is no API key" if key is None else "The API key is not known"
            raise ServiceError(
                401,
                f"{what}. Send one as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return owner


class Body:
    """The body of a request as it streams in: not too much, not too slow."""

    def __init__(self, settings: ServeSettings, receive: Receive) -> None:
        self._settings, self._receive = settings, receive
        self._size, self._end, self._whole = 0, 0.0, False

    async def __call__(self) -> Message:
        if self._whole:  # what comes now is the end of the connection
            return await self._receive()
        loop = asyncio.get_running_loop()
        self._end = self._end or loop.time() + self._settings.read_timeout
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            raise ServiceError(
                408,
                f"The body was not there after {self._settings.read_timeout:g} seconds.",
                "read_timeout",
                headers={"Connection": "close"},
            ) from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > self._settings.max_body:
                raise too_large(self._settings)
        return message


def host_of(headers: Any) -> str:
    return next((value.decode("latin-1").lower() for name, value in headers if name == b"host"), "")


def cross_origin(scope: Scope, allowed: tuple[str, ...]) -> bytes | None:
    """The origin of a page of another site that may call the service; None for all other requests."""
    if not allowed or scope["type"] != "http":
        return None
    origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
    return origin if origin is not None and origin.decode("latin-1").lower() in allowed else None


def is_preflight(scope: Scope) -> bool:
    """True if a browser asks whether a page may send a request."""
    return scope["method"] == "OPTIONS" and any(n == b"access-control-request-method" for n, _ in scope["headers"])


def readable_from(origin: bytes, send: Send) -> Send:
    """A `send` whose answers, errors too, a page of this origin may read."""

    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return send_on


async def answer_preflight(send: Send) -> None:
    headers = [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", b"authorization, content-type, x-api-key"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": [*headers, *SECURITY]})
    await send({"type": "http.response.body", "body": b""})


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_BELOW)


def too_large(settings: ServeSettings) -> ServiceError:
    return ServiceError(
        413,
        f"The body is larger than {settings.max_body:,} bytes.",
        "body_too_large",
        headers={"Connection": "close"},
    )


async def refuse(scope: Scope, receive: Receive, send: Send, error: ServiceError) -> None:
    """Answer a request, or the handshake of a socket, with an error."""
    response = error.response()
    headers = [*response.raw_headers, *SECURITY]
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": error.message[:120]})
            return
        await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": response.body})
        return
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
