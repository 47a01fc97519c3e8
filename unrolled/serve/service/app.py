"""The ASGI app: the parts of the service, and its routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from unrolled import __version__
from unrolled.serve.service.batcher import Batcher
from unrolled.serve.service.completion_bodies import CompletionRequest
from unrolled.serve.service.direct import DirectRoutes
from unrolled.serve.service.errors import add_handlers
from unrolled.serve.service.guards import Guard
from unrolled.serve.service.limits import ApiKeys
from unrolled.serve.service.metrics import Metrics
from unrolled.serve.service.openapi import describe
from unrolled.serve.service.registry import Registry, named_models
from unrolled.serve.service.routes import completions, health, models, page, predict, streams, transcriptions
from unrolled.serve.service.schemas import ScoreRequest, embed_model, predict_model, trace_model
from unrolled.serve.service.settings import ServeSettings
from unrolled.serve.service.streams.manager import OpenStreams
from unrolled.serve.service.verbs import make_verbs


class Service:
    """The parts that routes share: settings, models, the batcher, numbers."""

    def __init__(self, given: Any, settings: ServeSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.registry = Registry(named_models(given), settings, self.metrics)
        self.batcher = Batcher(self.registry, settings, self.metrics)
        self.verbs = make_verbs(settings)
        self.streams = OpenStreams(settings, self.metrics)
        self.keys = ApiKeys(settings.api_key_file) if settings.api_key_file is not None else None
        self.draining = False
        self.direct: dict[str, APIRoute] = {}  # POST routes that are found by their whole path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start in this event loop, at the first request or before: apps that are mounted in others have no start."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._loop = loop
        self.registry.start()
        self.batcher.start()
        if self.settings.reload_every:
            self._watch = loop.create_task(self.registry.watch())

    async def end(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self.streams.close()
        for served in self.registry.all():
            if served.version is not None:
                served.version.streams.clear()
        self.batcher.close()
        self._loop = None

    @property
    def bodies(self) -> Iterable[type[BaseModel]]:
        """The bodies of requests that raw routes read, for OpenAPI."""
        yield ScoreRequest
        yield CompletionRequest
        for entry in self.registry.all():
            yield from (predict_model(entry.task), embed_model(entry.task), trace_model(entry.task))


# A module for each subject; the order is that of the documentation, and of matching.
ROUTERS = (
    health.router,
    page.router,
    models.router,
    completions.router,
    transcriptions.router,
    streams.router,
    predict.router,
)


def make_app(given: Any, settings: ServeSettings) -> FastAPI:
    """The app for models by name, a list of NAME=PATH and paths, or one model."""
    service = Service(given, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.begin()
        yield
        await service.end()

    app = FastAPI(
        title="unrolled",
        version=__version__,
        description="Models of unrolled over HTTP.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router(service))
    add_handlers(app)
    describe(app, service.bodies)
    app.add_middleware(DirectRoutes, routes=service.direct)
    app.add_middleware(
        Guard,
        settings=settings,
        metrics=service.metrics,
        keys=service.keys,
        begin=service.begin,
        draining=lambda: service.draining,
    )
    return app
