"""Requests to values and back: bodies, waiting for an answer while the client is there, JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from unrolled.serve.service.errors import ErrorBody, ServiceError, checked

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "The request is wrong.",
        401: "There is no valid API key.",
        403: "The host or the origin is not allowed.",
        404: "There is no such model.",
        408: "The body came too slowly.",
        413: "The request is too large.",
        415: "The body is of another type.",
        429: "Too many requests, or too many wait.",
        431: "The headers are too large.",
        500: "The service failed.",
        503: "The model is not there.",
        504: "The answer took too long.",
    }.items()
}


def json_response(found: Any, status: int = 200) -> Response:
    """A value as JSON; every float keeps its bits."""
    return Response(ENCODE(found).encode(), status, media_type="application/json")


def event(value: Any) -> str:
    """A value as a server-sent event."""
    return f"data: {ENCODE(value)}\n\n"


def event_stream(events: AsyncIterator[str]) -> Response:
    """An answer of server-sent events, which no proxy should gather."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def read_json(request: Request, model: type[M]) -> M:
    """The body of a request, checked."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ServiceError(415, f"The body is {kind}. Send application/json.", "unsupported_media_type")
    try:
        body = await request.body()
    except ClientDisconnect:
        raise ServiceError(400, "The body is not whole.", "incomplete_body") from None
    return checked(model, body)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work, which is cancelled when the client leaves.

    The body of the request must have been read.
    """
    asking = asyncio.current_task()
    assert asking is not None
    working, stopped = True, False

    def stop(ended: asyncio.Future[None]) -> None:
        nonlocal stopped
        if working and not ended.cancelled():
            stopped = True
            asking.cancel()

    gone = asyncio.ensure_future(left(request))
    gone.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        if stopped and not asking.uncancel():
            raise ServiceError(499, "The client left.", "client_left") from None
        raise
    finally:
        working = False
        gone.cancel()


async def left(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def documented(request_model: type[BaseModel], *, upload: bool = False) -> dict[str, Any]:
    """The body of a raw route for OpenAPI. The schemas themselves are added by `openapi`."""
    content: dict[str, Any] = {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{request_model.__name__}"}}
    }
    if upload:
        parts = {
            "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "options": {"type": "string", "description": "The options as a JSON object."},
            "timeout": {"type": "number"},
        }
        schema = {"type": "object", "properties": parts, "required": ["file"]}
        content["multipart/form-data"] = {"schema": schema}
    return {"requestBody": {"content": content, "required": True}}
