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
    kind: type = float  # what a given value becomes: float, int, str, tuple for places of tokens, or object: itself
    choices: tuple[str, ...] = ()  # all that a text may be; none: any

    def read(self, given: Any) -> Any:
        """A value as a user wrote it; places as numbers with commas between."""
        if given is None or (isinstance(given, str) and given == ""):
            return self.default
        if self.kind is object:
            return given
        if self.choices and given not in self.choices:
            raise unknown_name(self.name, str(given), self.choices)
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

TRUTH = TraceOption("truth", None, "What the answer should be. Its loss is followed back.", object)
TARGET = TraceOption(
    "target",
    None,
    "Whose loss is followed back, truth or answer. Without it: the truth where it is known, else the answer.",
    str,
    ("truth", "answer"),
)


def follows_truth(truth: Any, target: str | None) -> bool:
    """Whether losses are the truth's, given what is known and what was asked for."""
    if truth is None and target == "truth":
        raise UserError("The truth of this input is not known.", "Give it: truth=…, or look at an example with one.")
    return truth is not None and target != "answer"


def read_options(known: Iterable[TraceOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a trace, checked; those not given have their defaults."""
    named = {option.name: option for option in known}
    for name in given:
        if name not in named:
            raise unknown_name("option of a trace", name, named)
    return {name: option.read(given.get(name)) for name, option in named.items()}
