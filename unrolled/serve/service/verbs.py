"""The sorts of work that the service does: predict, embed, score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.serve.service.inputs import size_of
from unrolled.serve.service.lanes import Work
from unrolled.serve.service.media import decoded
from unrolled.serve.service.schemas import FILES
from unrolled.serve.service.settings import ServeSettings


@dataclass(frozen=True)
class Verbs:
    """The work of the service's verbs under its settings."""

    predict: Work
    embed: Work
    score: Work


def make_verbs(settings: ServeSettings) -> Verbs:
    def read(model: Model, inputs: Sequence[Any]) -> list[Any]:
        return [decoded(model, one, settings) for one in inputs]

    def predict(model: Model, inputs: list[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        answers: Sequence[Any] = model.predict(read(model, inputs), **options)
        return answers

    def embed(model: Model, inputs: list[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        vectors: Sequence[Any] = model.embed(read(model, inputs), pooling=options.get("pooling"))
        return vectors

    def score(model: Model, inputs: list[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        return model.log_prob(inputs)

    return Verbs(Work("predict", predict, size_of), Work("embed", embed, size_of), Work("score", score, size_of))


def chosen(options: BaseModel, settings: ServeSettings) -> dict[str, Any]:
    """The options that a request gives, as `model.predict` takes them."""
    found: dict[str, Any] = {}
    for key in options.model_fields_set:
        value = getattr(options, key)
        if value is None:
            continue
        if key in FILES:
            value = own_file(key, value, settings)
        found[key] = tuple(value) if isinstance(value, list) else value
    return found


def own_file(key: str, name: str, settings: ServeSettings) -> str:
    """The path of a file in the service's folder; nothing outside is ever opened."""
    if settings.files is None:
        raise UserError(f"{key} names a file, and this service has none.", "Start it with --files FOLDER.")
    folder = Path(settings.files).resolve()
    try:
        path = (folder / name).resolve()
        there = path.is_relative_to(folder) and path.is_file()
    except (OSError, ValueError):
        there = False
    if not there:
        raise UserError(f"{key}={name!r} is no file of this service.", "Ask who runs it for the names.")
    return str(path)
