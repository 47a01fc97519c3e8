"""Options that change a trace, for what-if questions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unrolled.errors import UserError, unknown_name


@dataclass(frozen=True)
class TraceOption:
    """One option of a trace: its name, default and help text."""

    name: str
    default: float | int | str | tuple[int, ...] | None
    help: str
    kind: type = float  # float, int, str, tuple (token positions), or object (unchanged)
    choices: tuple[str, ...] = ()  # allowed texts; empty: any

    def read(self, given: Any) -> Any:
        """Parse a value; token positions are numbers separated by commas."""
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
            wanted = {float: "a number", int: "a whole number", str: "text", tuple: "positions such as 0,3"}[self.kind]
            raise UserError(f"{self.name}={given!r} is not {wanted}.") from None


HIDE = TraceOption("hide", (), "Positions of tokens to hide, from 0: their vectors become zeros.", tuple)

TRUTH = TraceOption("truth", None, "The correct answer. Losses and gradients are computed for it.", object)
TARGET = TraceOption(
    "target",
    None,
    "Target of losses and gradients: truth or answer. Default: the truth if it is known, else the answer.",
    str,
    ("truth", "answer"),
)


def follows_truth(truth: Any, target: str | None) -> bool:
    """True if the losses are those of the truth: it is known and the target is not the answer."""
    if truth is None and target == "truth":
        raise UserError("The truth of this input is not known.", "Give it: truth=…, or inspect an example with one.")
    return truth is not None and target != "answer"


def read_options(known: Iterable[TraceOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a trace and fill in the defaults."""
    named = {option.name: option for option in known}
    for name in given:
        if name not in named:
            raise unknown_name("option of a trace", name, named)
    return {name: option.read(given.get(name)) for name, option in named.items()}
