"""The page at `/`, where every model can be tried in a browser."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from unrolled.serve.service.errors import ServiceError

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service

MODULES = ("main", "elements", "service", "options", "inputs", "sound", "answers")
KINDS = {**{f"{name}.js": "text/javascript" for name in MODULES}, "style.css": "text/css"}


def router(service: Service) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def page() -> Response:
        return HTMLResponse(page_file("index.html"))

    @routes.get("/page/{name}")
    async def file(name: str) -> Response:
        if name not in KINDS:
            raise ServiceError(404, "There is no such file.", "not_found")
        return Response(page_file(name), media_type=KINDS[name])

    return routes


def page_file(name: str) -> str:
    return (files("unrolled.serve.service") / "page" / name).read_text("utf-8")
