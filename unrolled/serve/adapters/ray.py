"""A model behind Ray Serve: `serve.run(deployment("runs/mood", num_replicas=2))`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray import serve

from unrolled.jobs import load_model
from unrolled.model import find_file
from unrolled.serve.service.answers import prediction

MOST = 64  # inputs in a batch


class RayModel:
    """Answers {"inputs": one} with {"predictions": [answer]}; Ray joins the requests of a replica into batches."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.model, self.options = load_model(find_file(path), device="cpu"), options

    @serve.batch(max_batch_size=MOST, batch_wait_timeout_s=0.005)  # type: ignore[untyped-decorator]
    async def answers(self, inputs: list[Any]) -> list[Any]:
        return [prediction(self.model.task.name, one) for one in self.model.predict(inputs, **self.options)]

    async def __call__(self, request: Any) -> dict[str, Any]:
        body = await request.json()
        return {"predictions": [await self.answers(body["inputs"])]}


def deployment(path: str | Path, options: dict[str, Any] | None = None, **settings: Any) -> Any:
    """The model as an application of Ray Serve. `settings` are those of `serve.deployment`: num_replicas, ….

    Ray gives a replica 5 requests at a time if nothing is said, too few to fill a batch: here it is two batches.
    """
    settings = {"max_ongoing_requests": 2 * MOST, **settings}
    return serve.deployment(RayModel, **settings).bind(str(path), options or {})
