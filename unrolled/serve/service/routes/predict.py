"""Predictions, vectors, log-probabilities and traces: the routes of each model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import UploadFile

from unrolled.serve.service.answers import prediction, predictions_model
from unrolled.serve.service.errors import ServiceError, checked
from unrolled.serve.service.http import ERRORS, documented, json_response, read_json, while_connected
from unrolled.serve.service.inputs import Upload, check_count, check_text, listed, native
from unrolled.serve.service.schemas import (
    EmbedAnswer,
    ScoreAnswer,
    ScoreRequest,
    TraceAnswer,
    embed_model,
    options_model,
    predict_model,
    trace_model,
)
from unrolled.serve.service.tracing import check_trace, trace_work
from unrolled.serve.service.verbs import chosen

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service

UPLOADS = ("recognize", "caption")
VERBS = ("predict", "embed", "score", "trace")


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/models")
    for entry in service.registry.all():
        add_predict(routes, service, entry.name, entry.task)
        add_embed(routes, service, entry.name, entry.task)
        add_score(routes, service, entry.name)
        add_trace(routes, service, entry.name, entry.task)
    service.direct |= {route.path: route for route in routes.routes if isinstance(route, APIRoute)}

    @routes.post("/{name}/{verb}", include_in_schema=False)
    async def unknown(name: str, verb: str) -> Response:
        service.registry.served(name)  # an error names the models
        raise ServiceError(404, f"There is no {verb!r} of a model. Choices: {', '.join(VERBS)}.", "not_found")

    return routes


def add_predict(routes: APIRouter, service: Service, name: str, task: str) -> None:
    body_model, settings = predict_model(task), service.settings

    async def predict(request: Request) -> Response:
        if task in UPLOADS and request.headers.get("content-type", "").startswith("multipart/form-data"):
            inputs, options, timeout, priority = await read_upload(request, task, service)
        else:
            body: Any = await read_json(request, body_model)
            given = listed(body.inputs)
            check_count(given, settings)
            inputs = [native(one, settings) for one in given]
            options, timeout, priority = chosen(body.options, settings), body.timeout, body.priority
        work = service.batcher.submit(name, service.verbs.predict, inputs, options, timeout=timeout, priority=priority)
        answers = await while_connected(request, work)
        return json_response({"model": name, "predictions": [prediction(task, one) for one in answers]})

    routes.add_api_route(
        f"/{name}/predict",
        predict,
        methods=["POST"],
        response_model=predictions_model(task),
        responses=ERRORS,
        openapi_extra=documented(body_model, upload=task in UPLOADS),
        summary=f"Predictions of {name}",
        operation_id=f"{name}-predict",
        tags=[name],
    )


def add_embed(routes: APIRouter, service: Service, name: str, task: str) -> None:
    body_model, settings = embed_model(task), service.settings

    async def embed(request: Request) -> Response:
        body: Any = await read_json(request, body_model)
        given = listed(body.inputs)
        check_count(given, settings)
        inputs = [native(one, settings) for one in given]
        options = {} if body.pooling is None else {"pooling": body.pooling}
        work = service.batcher.submit(
            name, service.verbs.embed, inputs, options, timeout=body.timeout, priority=body.priority
        )
        vectors = await while_connected(request, work)
        return json_response({"model": name, "vectors": [[float(x) for x in one] for one in vectors]})

    routes.add_api_route(
        f"/{name}/embed",
        embed,
        methods=["POST"],
        response_model=EmbedAnswer,
        responses=ERRORS,
        openapi_extra=documented(body_model),
        summary=f"Vectors of {name}",
        operation_id=f"{name}-embed",
        tags=[name],
    )


def add_score(routes: APIRouter, service: Service, name: str) -> None:
    async def score(request: Request) -> Response:
        body = await read_json(request, ScoreRequest)
        texts = listed(body.inputs)
        check_count(texts, service.settings)
        texts = [check_text(text, service.settings) for text in texts]
        work = service.batcher.submit(name, service.verbs.score, texts, timeout=body.timeout, priority=body.priority)
        found = await while_connected(request, work)
        return json_response({"model": name, "log_probs": [float(value) for value in found]})

    routes.add_api_route(
        f"/{name}/score",
        score,
        methods=["POST"],
        response_model=ScoreAnswer,
        responses=ERRORS,
        openapi_extra=documented(ScoreRequest),
        summary=f"Log-probabilities by {name}",
        operation_id=f"{name}-score",
        tags=[name],
    )


def add_trace(routes: APIRouter, service: Service, name: str, task: str) -> None:
    body_model = trace_model(task)

    async def trace(request: Request) -> Response:
        body: Any = await read_json(request, body_model)
        one = native(body.input, service.settings)
        check_trace(body.view, one, service.settings)
        options = {"view": body.view, "query": body.query, "options": body.options}
        with await service.registry.acquire(name) as lease:
            work = trace_work(lease.version, name, service.settings)
            asked = service.batcher.submit(name, work, [one], options, timeout=body.timeout, lease=lease)
            (found,) = await while_connected(request, asked)
        return json_response({"model": name, "view": body.view, "found": found})

    routes.add_api_route(
        f"/{name}/trace",
        trace,
        methods=["POST"],
        response_model=TraceAnswer,
        responses=ERRORS,
        openapi_extra=documented(body_model),
        summary=f"A look inside {name}",
        operation_id=f"{name}-trace",
        tags=[name],
    )


async def read_upload(
    request: Request, task: str, service: Service
) -> tuple[list[Any], dict[str, Any], float | None, int]:
    """The files of a form, and its options as JSON."""
    settings = service.settings
    async with request.form(max_files=settings.max_inputs, max_fields=8, max_part_size=2**20) as form:
        files = [Upload(await one.read()) for one in form.getlist("file") if isinstance(one, UploadFile)]
        given = form.get("options")
        timeout = form.get("timeout")
    check_count(files, settings)
    options: BaseModel = checked(options_model(task), given if isinstance(given, str) and given else "{}")
    try:
        seconds = float(timeout) if isinstance(timeout, str) and timeout else None
        seconds = json.loads(json.dumps(seconds, allow_nan=False))
    except ValueError:
        raise ServiceError(400, "timeout is not a number of seconds.", "invalid_value", "timeout") from None
    return list(files), chosen(options, settings), seconds, 0
