"""Search spaces: the values that a sweep may give a key."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unrolled.config.describe import Key, show
from unrolled.errors import UserError

FORMS = (
    "Forms: log(1e-4, 1e-2), uniform(0, 0.5), int(1, 4), logint(16, 512), choice(lstm, gru); ranges of whole numbers "
    "and uniform also take step=8."
)
CALL = re.compile(r"\s*(log|uniform|int|integer|logint|choice)\s*\((.*)\)\s*", re.DOTALL)
CLOSING = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True)
class NumberRange:
    """Numbers between two bounds, which belong to it."""

    low: float
    high: float
    log: bool = False  # uniform in the logarithm
    whole: bool = False
    step: float | None = None

    def __str__(self) -> str:
        name = ("logint" if self.log else "int") if self.whole else "log" if self.log else "uniform"
        step = "" if self.step is None else f", step={_number(self.step)}"
        return f"{name}({_number(self.low)}, {_number(self.high)}{step})"

    def of(self, key: Key) -> NumberRange:
        """The interval for a key: whole numbers, where it has no others."""
        whole = self.whole or (int in key.kinds and float not in key.kinds)
        found = replace(self, whole=whole)
        bounds = [found.low, found.high, *([] if found.step is None else [found.step])]
        if not {int, float} & key.kinds:
            fix = f"choice({', '.join(map(str, key.choice_texts[:4]))})" if key.choice_texts else "choice(…)"
            raise UserError(f"it takes {key.type_text}, not a range of numbers.", f"Write {fix}.")
        if not all(map(math.isfinite, bounds)):
            raise UserError("a bound is not a finite number.", "Give two numbers.")
        if self.low >= self.high:
            raise UserError(f"the range is empty: {_number(self.low)} is not below {_number(self.high)}.", "Swap them.")
        if self.log and self.low <= 0:
            raise UserError(f"a logarithmic range cannot begin at {_number(self.low)}.", "Begin it above 0.")
        if self.log and self.step is not None:
            raise UserError("a logarithmic range has no step.", "Leave the step out.")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise UserError(f"the step {_number(self.step)} does not fit into the range.", "Use a smaller one.")
        if whole and any(bound != int(bound) for bound in bounds):
            raise UserError("its values are whole numbers, and a bound is not.", "Give whole numbers.")
        return found

    @property
    def ends(self) -> tuple[float, ...]:
        """The values to check: if the key takes them, it takes those between them."""
        return (self._value(self.low), self._value(self.high))

    @property
    def size(self) -> float:
        """The number of values; infinite for decimal numbers."""
        if self.step is None and not self.whole:
            return math.inf
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    @property
    def all(self) -> list[float]:
        """Every value, where they can be counted."""
        return [self._value(self.low + index * (self.step or 1)) for index in range(int(self.size))]

    def _value(self, value: float) -> float:
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class Alternatives:
    """A few values of any kind."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"choice({', '.join(map(_quoted, self.values))})"

    def of(self, key: Key) -> Alternatives:
        """The same; an error if there is nothing to choose from."""
        if len(self.values) < 2 or len({json.dumps(value) for value in self.values}) < len(self.values):
            raise UserError("a choice is between different values, two or more.", "Such as choice(1, 2).")
        return self

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    @property
    def size(self) -> float:
        return len(self.values)

    @property
    def all(self) -> list[Any]:
        return list(self.values)


Space = NumberRange | Alternatives


def log(low: float, high: float) -> NumberRange:
    """For `unrolled.sweep`: numbers from `low` to `high`, uniform in their logarithm.

    >>> print(log(1e-4, 1e-2))
    log(0.0001, 0.01)
    """
    return NumberRange(low, high, log=True)


def uniform(low: float, high: float, step: float | None = None) -> NumberRange:
    """For `unrolled.sweep`: numbers from `low` to `high`, `step` apart if it is given."""
    return NumberRange(low, high, step=step)


def integer(low: int, high: int, step: int | None = None, log: bool = False) -> NumberRange:
    """For `unrolled.sweep`: whole numbers from `low` to `high`, both included."""
    return NumberRange(low, high, log=log, whole=True, step=step)


def choice(*values: Any) -> Alternatives:
    """For `unrolled.sweep`: one of some values.

    >>> print(choice("lstm", "gru"))
    choice(lstm, gru)
    """
    return Alternatives(values)


def is_space(value: object) -> bool:
    """True for a space, and for a text that has the form of one."""
    return isinstance(value, (NumberRange, Alternatives)) or (
        isinstance(value, str) and CALL.fullmatch(value) is not None
    )


def parse_space(text: str, parse: Callable[[str], Any]) -> Space:
    """The space of a text; `parse` reads a value of a choice.

    >>> parse_space("int(1, 4)", str), parse_space("choice(a, [1, 2])", str)
    (NumberRange(low=1.0, high=4.0, log=False, whole=True, step=None), Alternatives(values=('a', '[1, 2]')))
    """
    match = CALL.fullmatch(text)
    if match is None:
        raise UserError("this is not a search space.", FORMS)
    name, parts = match[1], _split(match[2])
    if name == "choice":
        return Alternatives(tuple(parse(part) for part in parts))
    plain = [part for part in parts if "=" not in part and part != "log"]
    step: float | None = None
    for part in parts:
        key, equals, value = part.partition("=")
        if equals:
            if key.strip() != "step" or name in ("log", "logint"):
                raise UserError(f"{part!r} has no meaning here.", FORMS)
            step = _parsed(value)
    if len(plain) != 2 or ("log" in parts and name not in ("int", "integer")):
        raise UserError(f"{name} takes two numbers.", FORMS)
    low, high = map(_parsed, plain)
    logarithmic = name in ("log", "logint") or "log" in parts
    return NumberRange(low, high, log=logarithmic, whole=name in ("int", "integer", "logint"), step=step)


def _parsed(text: str) -> float:
    try:
        return float(text.strip().replace("_", ""))
    except ValueError:
        raise UserError(f"{text.strip()!r} is not a number.", FORMS) from None


def _split(text: str) -> list[str]:
    """The arguments of a call, which commas separate outside quotes and brackets.

    >>> _split("a, 'b, c', [1, 2]")
    ['a', "'b, c'", '[1, 2]']
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _number(value: float) -> str:
    return f"{int(value)}" if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(float(value))


def _quoted(value: Any) -> str:
    """A value as `--set` takes it; text with a special character in quotes."""
    if isinstance(value, str):
        return value if re.fullmatch(r"[\w.+/-]+", value) else json.dumps(value, ensure_ascii=False)
    return show(value) if value is None or isinstance(value, bool) else json.dumps(value)


def label_of(value: Any) -> str | int | float | bool | None:
    """A value as Optuna stores it: a list is its text."""
    return json.dumps(value) if isinstance(value, (list, tuple)) else value


def from_label(space: Space, label: Any) -> Any:
    """The value of a label."""
    if isinstance(space, NumberRange):
        return int(label) if space.whole else float(label)
    return next(value for value in space.values if label_of(value) == label and type(label_of(value)) is type(label))


def labels(space: Alternatives) -> Sequence[str | int | float | bool | None]:
    return [label_of(value) for value in space.values]
