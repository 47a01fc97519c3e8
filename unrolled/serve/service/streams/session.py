"""One socket: its messages are read into an inbox, and answered one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from unrolled.serve.service.errors import ServiceError, as_service_error
from unrolled.serve.service.inputs import native
from unrolled.serve.service.lanes import Work
from unrolled.serve.service.limits import key_of
from unrolled.serve.service.registry import ModelLease
from unrolled.serve.service.streams.inbox import Inbox
from unrolled.serve.service.streams.kept import KeptStream
from unrolled.serve.service.streams.kinds import HearingStream, LiveStream, Message, ReadingStream
from unrolled.serve.service.streams.messages import EndMessage, StateMessage, read_message, read_start, start_model
from unrolled.serve.service.streams.steps import Opening, StreamStep, Writing, result_of
from unrolled.serve.service.streams.tokens import TokenFacts
from unrolled.serve.service.verbs import chosen

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service

CARRIED = 2**16  # bytes of a state that its token carries; of a larger one the service keeps the stream
TAKING = 5.0  # seconds in which an old connection leaves a stream that another one takes
DONE, LEFT, IDLE, SLOW, TAKEN, DRAINING, FAILED = "done", "left", "idle", "slow", "taken", "draining", "failed"
# what ends a stream from outside → (status, code, message, close code)
ENDS = {
    IDLE: (408, "idle", "Nothing came for {idle:g} seconds.", 3008),
    TAKEN: (409, "taken", "Another connection goes on with this stream.", 1008),
    DRAINING: (503, "restarting", "The service ends. Connect again, and go on with the token.", 1012),
}


def close_code(status: int) -> int:
    """The code that a socket closes with after an error."""
    if status == 413:
        return 1009
    if status in (429, 503):
        return 1013
    return 1011 if status >= 500 else 1008


def is_stop(text: str) -> bool:
    """True for the message that ends what is being written.

    >>> is_stop('{"type": "stop"}'), is_stop('{"type": "feed", "input": "stop"}')
    (True, False)
    """
    try:
        return bool(json.loads(text) == {"type": "stop"})
    except ValueError:
        return False


class StreamSession:
    """A socket and its stream. `run` returns when it has ended; `end` makes it end from outside."""

    def __init__(self, service: Service, socket: WebSocket, name: str) -> None:
        self.service, self.name = service, name
        self.task = service.registry.served(name).task
        self.number: str | None = None  # under which the stream is kept when the connection is lost
        self.over = asyncio.Event()
        self.end_reason = FAILED
        self._socket, self._inbox = socket, Inbox()
        self._owner = service.streams.tokens.owner(None if service.keys is None else key_of(socket.scope["headers"]))
        self._live: LiveStream | None = None
        self._lease: ModelLease | None = None
        self._start: dict[str, Any] = {}
        self._at_once = 2**30
        self._held = b""  # sound that does not fill a block yet
        self._stop = False  # what is being written
        self._waits: float | None = None  # since when, for the client
        self._sends: float | None = None
        self._main: asyncio.Task[None] | None = None

    async def run(self) -> None:
        reading = asyncio.create_task(self._read())
        self._main = asyncio.create_task(self._talk())
        try:
            await asyncio.wait((self._main,))
        finally:
            reading.cancel()
            self._inbox.end(
                LEFT, now=True
            )  # if this was cancelled: a step under way is waited for, and the stream kept
        if not self._main.cancelled():
            self._main.result()

    def end(self, why: str) -> None:
        self._inbox.end(why, now=True)

    def look(self, now: float) -> None:
        """End a socket whose client sends nothing, or reads nothing, for too long."""
        settings = self.service.settings
        most = settings.read_timeout if self._live is None else settings.stream_idle
        if self._waits is not None and now - self._waits > most:
            self.end(IDLE)
        if self._sends is not None and now - self._sends > settings.stream_idle and self._main is not None:
            self.end_reason = SLOW
            self._main.cancel()

    async def _read(self) -> None:
        most = self.service.settings.max_message
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self._inbox.end(LEFT, now=True)
                return
            item = message.get("bytes")
            if item is None:
                item = message["text"]
                if len(item) < 100 and '"stop"' in item and is_stop(item):  # not behind what waits
                    self._stop = True
                    continue
            self.service.streams.received.add(self.name, by=len(item))
            if len(item) > most:
                self._inbox.end(ServiceError(413, f"A message has more than {most:,} bytes.", "message_too_large"))
                return
            await self._inbox.put(item)

    async def _talk(self) -> None:
        try:
            await self._begin()
            while self.end_reason != DONE and (item := await self._next()) is not None:
                await self._answer(item)
            if self.end_reason != DONE:
                await self._ended(self._inbox.ended)
            await self._close(1000)
        except WebSocketDisconnect:
            self.end_reason = LEFT if self.end_reason == FAILED else self.end_reason
        except Exception as error:
            found = as_service_error(error)
            await self._fail(found, close_code(found.status))
        finally:
            self._leave()

    async def _next(self) -> Any:
        self._waits = asyncio.get_running_loop().time()
        item = await self._inbox.get(self._at_once)
        self._waits = None
        return item

    async def _begin(self) -> None:
        """The first message opens a stream, or goes on with one."""
        item = await self._next()
        if item is None:
            await self._ended(self._inbox.ended)
            return
        start = read_start(self.task, item)
        if start.resume is None:
            await self._open(start)
        elif start.model_fields_set - {"type", "resume"}:
            raise ServiceError(400, "A token says how its stream was begun. Leave the rest out.", "invalid_value")
        else:
            await self._resume(start.resume)
        assert self._live is not None
        if isinstance(self._live, HearingStream):
            self._at_once = self._live.at_once
        first = {"type": "ready", "model": self.name, "task": self.task, "resumed": start.resume is not None}
        await self._send({**first, **self._live.about()})

    async def _open(self, start: Any, state: bytes = b"", position: int = 0) -> None:
        settings = self.service.settings
        self._start = start.model_dump(mode="json", exclude={"type", "resume"}, exclude_none=True)
        given = {**self._start, "options": chosen(start.options, settings)}
        self._lease = await self.service.registry.acquire(self.name)
        opening = Opening(self._lease.version, json.dumps(self._start, sort_keys=True), given, state, position)
        self._live = await self._step(self.service.streams.works.open, opening)

    async def _resume(self, token: str) -> None:
        streams = self.service.streams
        facts, state = streams.tokens.read(token, self.name, self._owner)
        if facts.kept is None:
            start = start_model(self.task).model_validate({**facts.start, "type": "start"})
            await self._open(start, state, facts.position)
        else:
            old = streams.attached(facts.kept)
            if old is not None:
                old.end(TAKEN)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(old.over.wait(), TAKING)
            kept = streams.kept.take(facts.kept)
            if kept is None:
                raise ServiceError(
                    410, "The stream of this token is not kept any more. Begin a new one.", "state_gone", "resume"
                )
            self._live, self._lease, self._start, self.number = kept.live, kept.lease, kept.start, facts.kept
        streams.resumed.add(self.name)

    async def _answer(self, item: str | bytes) -> None:
        live, works = self._live, self.service.streams.works
        assert live is not None
        if isinstance(item, bytes):
            if not isinstance(live, HearingStream):
                raise ServiceError(400, "Binary messages are sound or frames of recognize.", "invalid_value", "type")
            self._held = self._held + item if self._held else item
            if len(self._held) >= live.wanted:
                await self._feed_held()
            return
        await self._feed_held()
        message = read_message(self.task, item)
        if isinstance(message, StateMessage):
            await self._send(await self._token())
        elif isinstance(message, EndMessage):
            await self._send(await self._step(works.end, StreamStep(live, again=message.again)))
            self.end_reason = self.end_reason if message.again else DONE
        elif message.type == "write":
            assert isinstance(live, ReadingStream)
            await self._write(live, chosen(message.options, self.service.settings))
        elif message.type == "feed":
            piece = native(message.input, self.service.settings)
            await self._send(await self._step(works.feed, StreamStep(live, piece)))

    async def _feed_held(self) -> None:
        """Feed what has come of a block."""
        if self._held:
            assert self._live is not None
            step, self._held = StreamStep(self._live, self._held), b""
            await self._send(await self._step(self.service.streams.works.feed, step))

    async def _write(self, live: ReadingStream, options: dict[str, Any]) -> None:
        given: dict[str, Any] | None = options
        self._stop, why = False, "done"
        while True:
            piece = await self._step(self.service.streams.works.write, Writing(live, given))
            if piece is None:
                break
            given = None
            await self._send(piece)
            if self._stop or self._inbox.ended is not None:
                live.writing, why = None, "stopped"
                break
        await self._send({"type": "written", "why": why})

    async def _step(self, work: Work, one: Any) -> Any:
        """One step of this stream, beside those of others. It is never cancelled: a stream stays whole."""
        asked = self.service.batcher.submit(self.name, work, [one], lease=self._lease)
        (answer,) = await asked
        return result_of(answer)

    async def _token(self) -> Message:
        """The message with a token; the token is null where the stream can neither be stored nor kept."""
        assert self._live is not None
        streams, settings = self.service.streams, self.service.settings
        state: bytes | None = await self._step(streams.works.store, StreamStep(self._live))
        carried = state is not None and len(state) <= CARRIED
        expires, position = time.time() + settings.stream_keep, self._live.position
        message = {"type": "state", "token": None, "position": position, "expires": expires, "carried": carried}
        if not carried:
            state = b""
            if self._inbox.ended == DRAINING:
                return message
            self.number = self.number or secrets.token_hex(16)
        assert state is not None
        facts = TokenFacts(self.name, self._owner, self._start, position, expires, None if carried else self.number)
        return {**message, "token": streams.tokens.make(facts, state)}

    async def _ended(self, why: Any) -> None:
        """Say why the stream ends without its client's asking, and how to go on."""
        if isinstance(why, Exception):
            raise why
        self.end_reason = why
        if why == LEFT:
            raise WebSocketDisconnect(1006)
        if self._live is not None and why != TAKEN:
            await self._feed_held()
            await self._send(await self._token())
        status, code, text, close = ENDS[why]
        await self._fail(ServiceError(status, text.format(idle=self.service.settings.stream_idle), code), close, why)
        raise WebSocketDisconnect(close)

    async def _fail(self, error: ServiceError, code: int, why: str = FAILED) -> None:
        self.end_reason = why
        with contextlib.suppress(WebSocketDisconnect):
            await self._send({"type": "error", **error.body})
            await self._close(code)

    async def _send(self, message: Message | None) -> None:
        if message is None:
            return
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        await self._written(self._socket.send_text(text))

    async def _close(self, code: int) -> None:
        await self._written(self._socket.close(code))

    async def _written(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send something; it waits while the client does not read."""
        self._sends = asyncio.get_running_loop().time()
        try:
            await sending
        except (RuntimeError, OSError):  # the client left
            raise WebSocketDisconnect(1006) from None
        self._sends = None

    def _leave(self) -> None:
        """Keep the stream for its client, or let the model go."""
        streams, settings = self.service.streams, self.service.settings
        if self._lease is not None:
            if self._live is not None and self.number is not None and self.end_reason in (LEFT, IDLE, SLOW, TAKEN):
                self._live.park()
                until = time.time() + settings.stream_keep
                streams.kept.put(self.number, KeptStream(self._live, self._lease, self._start, until))
            else:
                self._lease.release()
        streams.left(self)
        self.over.set()
