"""Mistakes that pydantic finds in a body, in words for who sent it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from unrolled.errors import unknown_name

Mistake = dict[str, Any]
INPUTS = ("inputs", "input")


def mistake_in(error: ValidationError, model: type[BaseModel] | None = None) -> tuple[str, str, str | None]:
    """The message, the code and the key of the first mistake. `model` is what the body was checked against."""
    given = error.errors(include_url=False, include_input=False, include_context=False)
    found: list[Mistake] = [{**one} for one in given]
    if len(found) > 1 and all(one["loc"][:1] and one["loc"][0] in INPUTS for one in found):
        # an input may have several forms: the mistakes in the one that was meant lie deepest
        most = max(len(one["loc"]) for one in found)
        found = [one for one in found if len(one["loc"]) == most]
        if model is not None and any(misses_all_forms(one) for one in found):
            name, *path = found[0]["loc"]
            place = ".".join([str(name), *(str(part) for part in path if isinstance(part, int))])
            *forms, last = dict.fromkeys(forms_of(model.model_fields[str(name)].annotation))
            wanted = f"{', '.join(forms)} or {last}" if forms else last
            return f"{place} is no input of this model. Give {wanted}.", "invalid_value", place
    first = found[0]
    param = ".".join(str(part) for part in first["loc"] if not is_form(part)) or None
    more = "" if len(found) == 1 else f" There are {len(found)} mistakes in all."
    return described(first, param, model) + more, first["type"], param


def described(mistake: Mistake, param: str | None, model: type[BaseModel] | None) -> str:
    *path, last = mistake["loc"] or ("",)
    if mistake["type"] == "missing":
        return f"{param} is missing."
    if mistake["type"] == "extra_forbidden" and model is not None:
        where = "".join(f"{part}: " for part in path if not is_form(part))
        return where + str(unknown_name("key", last, keys_at(model, path)))
    return f"{param or 'The body'}: {mistake['msg']}."


def misses_all_forms(mistake: Mistake) -> bool:
    """True if the mistake is that of a whole input, or of one without its key: not of what is in it."""
    path = mistake["loc"][1:-1] if mistake["type"] == "missing" else mistake["loc"][1:]
    return (mistake["type"] == "missing" or is_form(path[-1])) and all(isinstance(x, int) or is_form(x) for x in path)


def is_form(part: object) -> bool:
    """True for the part of a mistake's place that is no key, but one of the types that a value may have."""
    return isinstance(part, str) and (part in ("str", "float", "int") or part.endswith(("Body", "]")) or "-" in part)


def forms_of(annotation: Any) -> Iterator[str]:
    """The forms of an input, as JSON looks."""
    if annotation is str:
        yield "a text"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        shapes: dict[Any, str] = {list: "[…]", dict: "{…}"}
        for name, field in annotation.model_fields.items():
            yield f'{{"{name}": {shapes.get(get_origin(field.annotation), chr(34) + "…" + chr(34))}}}'
    elif get_origin(annotation) is list:
        yield "a list of them"
    else:
        for one in get_args(annotation):
            yield from forms_of(one)


def keys_at(model: type[BaseModel], path: Sequence[object]) -> list[str]:
    """The keys of the object at a place of a body."""
    here = [model]
    for part in path:
        named = [one for one in here if one.__name__ == part]
        below = [
            kind for one in here if part in one.model_fields for kind in models_in(one.model_fields[part].annotation)
        ]
        here = named or below or here
    return [*here[0].model_fields]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for one in get_args(annotation) for model in models_in(one)]
