"""Values from the JSON of a file, each checked against its type before use."""

from __future__ import annotations

import functools
import json
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from unrolled.config.describe import show
from unrolled.errors import UserError

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
DAMAGED = "The file is damaged, or was not written by unrolled: use another copy of it, or train again."


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text. Every mistake in it is a ValueError, deep nesting too."""
    try:
        text = text if isinstance(text, str) else text.decode()
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:  # the escape of half a character
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it holds half a character, a lone surrogate") from None
    return value


def stored_as(kind: Any, value: Any, what: str) -> Any:
    """A value of parsed JSON as its type: a plain type, a list or dictionary of them, a dataclass.

    >>> stored_as(list[int], [1, 2], "list of counts")
    [1, 2]
    >>> stored_as(list[int], [1, "2"], "list of counts")
    Traceback (most recent call last):
    unrolled.errors.UserError: The stored list of counts is damaged: 1 is '2': input should be a valid integer. The file
    is damaged, or was not written by unrolled: use another copy of it, or train again.
    """
    try:
        return _adapter(kind).validate_json(json.dumps(value), strict=True)  # JSON has lists where Python has tuples
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        got = "missing" if first["type"] == "missing" else f"{show(first['input'])}: {_lowered(first['msg'])}"
        raise UserError(f"The stored {what} is damaged: {place} is {got}.", DAMAGED) from None


def stored_entry(data: Any, key: str, kind: Any, what: str) -> Any:
    """One entry of a stored object, checked."""
    if not isinstance(data, dict):
        raise UserError(f"The stored {what} is damaged: {type(data).__name__} in place of an object.", DAMAGED)
    if key not in data:
        raise UserError(f"The stored {what} is damaged: {key!r} is missing.", DAMAGED)
    return stored_as(kind, data[key], f"{what} ({key})")


@functools.lru_cache(maxsize=64)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
