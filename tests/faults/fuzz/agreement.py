"""Two readers of one file must agree: both answer the same, or both refuse it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unrolled.errors import UserError


def agree(act: Callable[[Any], object]) -> object:
    """Both engines must say the same: the same facts, or the same refusal."""
    said: list[object] = []
    for backend in ("native", "reference"):
        try:
            said.append(repr(act(backend)))
        except UserError as error:
            said.append(error)
    first, second = said
    assert type(first) is type(second), f"native: {first!s:.300}; reference: {second!s:.300}"
    assert str(first) == str(second), f"native: {first!s:.300}; reference: {second!s:.300}"
    if isinstance(first, UserError):
        raise first
    return first


def both(*acts: Callable[[], object]) -> object:
    """All of them; the first refusal at the end."""
    refused: list[UserError] = []
    for act in acts:
        try:
            act()
        except UserError as error:
            refused.append(error)
    if refused:
        raise refused[0]
    return None
