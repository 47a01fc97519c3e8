"""`/v1/completions`: texts of generate and translate, in the shape of OpenAI's clients."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import Response

from unrolled.serve.service.completing import (
    COMPLETE,
    TASKS_THAT_WRITE,
    Completion,
    CompletionPart,
    TokenText,
    written_parts,
)
from unrolled.serve.service.completion_bodies import CompletionAnswer, CompletionRequest
from unrolled.serve.service.errors import ServiceError, as_service_error
from unrolled.serve.service.http import (
    ERRORS,
    documented,
    event,
    event_stream,
    json_response,
    read_json,
    while_connected,
)
from unrolled.serve.service.inputs import check_text

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["completions"])

    async def completions(request: Request) -> Response:
        body = await read_json(request, CompletionRequest)
        task = service.registry.served(body.model).task
        if task not in TASKS_THAT_WRITE:
            raise ServiceError(
                400, f"{body.model} is a model of {task}, which writes no texts.", "unsupported_model", "model"
            )
        body.check(task)
        prompts = checked_prompts(body, task, service)
        if body.stream:
            return await streamed(request, service, body, prompts)
        work = service.batcher.submit(
            body.model, COMPLETE, prompts, body.options(task), timeout=body.timeout, priority=body.priority
        )
        found: list[list[Completion]] = await while_connected(request, work)
        texts = [one for some in found for one in some]
        read = sum(some[0].read for some in found) // (body.choices if task == "generate" else 1)
        choices = [choice(i, one.text, one.tokens, one.finished, body.logprobs) for i, one in enumerate(texts)]
        usage = counted(read, sum(one.written for one in texts))
        return json_response({**head(body.model), "choices": choices, "usage": usage})

    routes.add_api_route(
        "/completions",
        completions,
        methods=["POST"],
        response_model=CompletionAnswer,
        responses={**ERRORS, 200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        openapi_extra=documented(CompletionRequest),
        summary="Texts, as OpenAI's clients ask for them",
        operation_id="completions",
    )
    return routes


def checked_prompts(body: CompletionRequest, task: str, service: Service) -> list[str]:
    """The prompts; of generate one for each text that is drawn."""
    settings = service.settings
    count = len(body.prompts) * body.choices
    if count > settings.max_inputs:
        raise ServiceError(
            413,
            f"{count:,} texts are asked for; the limit is {settings.max_inputs:,}. Send several requests.",
            "too_many_inputs",
            "prompt",
        )
    prompts = [check_text(prompt, settings, "prompt") for prompt in body.prompts]
    return [prompt for prompt in prompts for _ in range(body.choices)] if task == "generate" else prompts


async def streamed(request: Request, service: Service, body: CompletionRequest, prompts: list[str]) -> Response:
    """The parts of the texts as server-sent events; an error before the first of them is still a status."""
    task = service.registry.served(body.model).task
    options = body.options(task)
    parts = service.batcher.iterate(
        body.model, lambda model: written_parts(model, prompts, options), timeout=body.timeout
    )
    first: CompletionPart = await while_connected(request, anext(parts))
    return event_stream(events(body, task, first, parts))


async def events(
    body: CompletionRequest, task: str, first: CompletionPart, parts: AsyncIterator[CompletionPart]
) -> AsyncIterator[str]:
    about = head(body.model)
    wanted = body.stream_options is not None and body.stream_options.include_usage
    more: dict[str, Any] = {"usage": None} if wanted else {}
    numbers: dict[int, int] = {}  # a search may find fewer than n
    read: dict[int, int] = {}
    written = 0
    try:
        async with aclosing(parts):  # type: ignore[type-var]
            part: CompletionPart | None = first
            while part is not None:
                index = numbers.setdefault(part.row, part.row if task == "generate" else len(numbers))
                if part.finished:
                    read[part.row // body.choices] = part.read
                    written += part.written
                if part.text or part.tokens or part.finished:
                    one = choice(index, part.text, part.tokens, part.finished, body.logprobs)
                    yield event({**about, "choices": [one], **more})
                part = await anext(parts, None)
    except Exception as error:
        yield event(as_service_error(error).body)
        return
    if wanted:
        yield event({**about, "choices": [], "usage": counted(sum(read.values()), written)})
    yield "data: [DONE]\n\n"


def head(model: str) -> dict[str, Any]:
    return {"id": f"cmpl-{uuid4().hex}", "object": "text_completion", "created": int(time.time()), "model": model}


def choice(
    index: int, text: str, tokens: Sequence[TokenText], finished: str | None, logprobs: int | None
) -> dict[str, Any]:
    scores = None
    if logprobs is not None:
        scores = {
            "tokens": [one.text for one in tokens],
            "token_logprobs": [one.log_prob for one in tokens],
            "top_logprobs": [one.top for one in tokens],
            "text_offset": [one.offset for one in tokens],
        }
    return {"index": index, "text": text, "logprobs": scores, "finish_reason": finished}


def counted(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
