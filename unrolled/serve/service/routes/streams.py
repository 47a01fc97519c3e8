"""Streams over WebSockets: `/v1/models/NAME/stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    async def stream(socket: WebSocket) -> None:
        await service.streams.serve(service, socket, socket.path_params["name"])

    routes.routes.append(WebSocketRoute("/v1/models/{name}/stream", stream))
    return routes
