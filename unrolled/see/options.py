"""What can be changed about a trace, to see what happens then."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unrolled.errors import UserError, unknown_name


@dataclass(frozen=True)
class TraceOption:
    """One thing to change: its name, the value it has if nothing is said, and what it does."""

    name: str
    default: float | int | str | tuple[int, ...] | None
    help: str
    kind: type = float  # what a given value becomes: float, int, str, or tuple for places of tokens

    def read(self, given: Any) -> Any:
        """A value as a user wrote it; places as numbers with commas between."""
        if given is None or given == "":
            return self.default
        try:
            if self.kind is tuple:
                parts = given.split(",") if isinstance(given, str) else given
                return tuple(int(part) for part in parts)
            value = self.kind(given)
            if self.kind is float and not math.isfinite(value):
                raise ValueError
            return value
        except (TypeError, ValueError):
            wanted = {float: "a number", int: "a whole number", str: "a text", tuple: "places such as 0,3"}[self.kind]
            raise UserError(f"{self.name}={given!r} is not {wanted}.") from None


HIDE = TraceOption("hide", (), "Tokens to hide, by their places from 0: their vectors become zeros.", tuple)


def read_options(known: Iterable[TraceOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a trace, checked; those not given have their defaults."""
    named = {option.name: option for option in known}
    for name in given:
        if name not in named:
            raise unknown_name("option of a trace", name, named)
    return {name: option.read(given.get(name)) for name, option in named.items()}
