"""Health, readiness, metrics, and the description of all routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from pydantic import BaseModel

from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.http import ERRORS, json_response
from unrolled.serve.service.openapi import page

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service


class Health(BaseModel):
    """The state of the process."""

    status: str


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz", response_model=Health, summary="Whether the process answers")
    async def healthz() -> Response:
        return json_response({"status": "ok"})

    @routes.get("/readyz", response_model=Health, responses={503: ERRORS[503]}, summary="Whether it takes requests")
    async def readyz() -> Response:
        if service.draining:
            raise ServiceError(503, "The service is stopping.", "stopping")
        return json_response({"status": "ready"})

    @routes.get("/metrics", response_class=PlainTextResponse, summary="Numbers for Prometheus")
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/openapi.json", include_in_schema=False)
    async def document(request: Request) -> Response:
        return json_response(request.app.openapi())

    @routes.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(page(request.app.openapi()))

    return routes
