"""Routes with one path each, found without FastAPI's search and its layers: most requests are for them."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.routing import APIRoute
from starlette._utils import get_route_path

from unrolled.serve.service.guards import App, Receive, Scope, Send


class DirectRoutes:
    """Calls the function of a POST route itself; what is no such route goes on to the app.

    The functions take a request and return a response. Their errors go to the guard around this.
    """

    def __init__(self, app: App, routes: Mapping[str, APIRoute]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = None
        if scope["type"] == "http" and scope["method"] == "POST":
            path = scope["path"]
            route = self._routes.get(get_route_path(scope) if scope.get("root_path") else path)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)
