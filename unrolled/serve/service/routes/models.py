"""The models of the service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.responses import Response

from unrolled.see.views.trace import finite
from unrolled.serve.service.http import ERRORS, json_response
from unrolled.serve.service.registry import Served
from unrolled.serve.service.schemas import ModelFacts, ModelList

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service

STARTED = int(time.time())


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["models"])

    @routes.get("/models", response_model=ModelList, summary="All models")
    async def models() -> Response:
        return json_response({"object": "list", "data": [about(one) for one in service.registry.all()]})

    @routes.get("/models/{name}", response_model=ModelFacts, responses={404: ERRORS[404]}, summary="One model")
    async def model(name: str) -> Response:
        return json_response(about(service.registry.served(name)))

    return routes


def about(entry: Served) -> dict[str, Any]:
    """The facts about a model, as JSON."""
    version = entry.version
    found: dict[str, Any] = {
        "id": entry.name,
        "object": "model",
        "created": STARTED if entry.stamp is None else entry.stamp[3] // 10**9,
        "owned_by": "unrolled",
        "task": entry.task,
        "loaded": version is not None,
        "loads": entry.loads,
        "error": entry.error,
    }
    if version is not None:
        scores = {name: value for name, value in finite(version.model.scores)[0].items() if value is not None}
        found |= {"parameters": version.model.num_parameters, "bytes": version.size, "scores": scores}
        found["reads"] = getattr(getattr(version.model.assets, "reader", None), "kind", None)
    return found
