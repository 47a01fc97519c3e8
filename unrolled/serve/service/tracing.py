"""Traces over HTTP: the views of `unrolled inspect`, of bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unrolled.errors import unknown_name
from unrolled.serve.inspector import Asked, Inspection
from unrolled.serve.inspector.inspection import VIEWS
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.lanes import Work
from unrolled.serve.service.media import decoded
from unrolled.serve.service.registry import Version
from unrolled.serve.service.settings import ServeSettings

SHOWN = tuple(view for view in VIEWS if view not in ("runs", "words", "map"))


def trace_work(version: Version, name: str, settings: ServeSettings) -> Work:
    """The work of a trace: on a copy of the model, since a trace hooks and differentiates it."""

    def run(_: Any, inputs: list[Any], options: Mapping[str, Any]) -> list[Any]:
        with version.copying:
            model = version.private()
            one = decoded(model, inputs[0], settings)
            inspection = Inspection(Asked({name: model}, given=one, options=options["options"]))
            changes = {f"o.{key}": value for key, value in options["options"].items()}
            found = inspection.view(options["view"], {**options["query"], **changes, "model": name})
        return [found]

    return Work("trace", run, lambda one, options: 100.0, joins=False)


def check_trace(view: str, one: Any, settings: ServeSettings) -> None:
    if view not in SHOWN:
        raise ServiceError(400, str(unknown_name("view", view, SHOWN)), "unknown_view", "view")
    if (isinstance(one, str) or hasattr(one, "shape")) and len(one) > settings.max_trace:
        raise ServiceError(
            413,
            f"The input has a length of {len(one):,}; the limit of a trace is {settings.max_trace:,}.",
            "too_long",
            "input",
        )
