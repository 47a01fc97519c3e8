"""The places in a text where a unit is most and least active."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unrolled.errors import UserError
from unrolled.see.figures.labels import plain
from unrolled.see.trace import ModelTrace

BEFORE, AFTER = 30, 10  # tokens of context
APART = 5  # least steps between two places


@dataclass(frozen=True)
class Place:
    """A step, the unit's value there, and the text around it; spaces and line ends are visible."""

    step: int
    value: float
    before: str
    token: str
    after: str


@dataclass(frozen=True)
class Places:
    """The steps where a state or gate of a unit is largest and smallest; `print` it."""

    layer: str
    quantity: str
    unit: int
    steps: int
    most: list[Place]
    least: list[Place]

    def __str__(self) -> str:
        head = f"layer {self.layer}, {self.quantity} of unit {self.unit}, {self.steps:,} steps"
        width = max(len(place.before) for place in (*self.most, *self.least))
        names = f"{'value':>9}  {'step':>7}  {'just read «here»':>{width}}"
        most, least = (
            [f"{p.value:>9.4f}  {p.step:>7}  {p.before:>{width}}«{p.token}»{p.after}" for p in places]
            for places in (self.most, self.least)
        )
        return "\n".join([head, "", f"most\n{names}", *most, "", f"least\n{names}", *least])


def places(trace: ModelTrace, unit: int, layer: str | None = None, quantity: str = "h", count: int = 20) -> Places:
    """Find at most `count` places of each kind, more than five steps apart.

    >>> import torch, unrolled
    >>> from unrolled.see import Part
    >>> inside = unrolled.RNN(2, 3, batch_first=True).trace(torch.randn(1, 9, 2))
    >>> trace = ModelTrace("none", "", ["a"], inside.output.sum()[None], (Part("", list("the green"), inside),))
    >>> places(trace, unit=1, count=1).most[0].step == int(trace.values("l0", "h")[:, 1].argmax())
    True
    """
    layer = trace.first_layer() if layer is None else layer
    values = trace.values(layer, quantity)
    if not 0 <= unit < values.shape[1]:
        raise UserError(f"There is no unit {unit}.", f"Expected 0 to {values.shape[1] - 1}.")
    tokens, column = trace.part_of(layer).tokens, values[:, unit].cpu()
    space = "" if sum(map(len, tokens)) < 1.5 * len(tokens) else " "  # words are joined with spaces, letters without

    def place(t: int) -> Place:
        before = "".join(f"{plain(token)}{space}" for token in tokens[max(0, t - BEFORE) : t])
        after = "".join(f"{space}{plain(token)}" for token in tokens[t + 1 : t + 1 + AFTER])
        return Place(t, float(column[t]), before, plain(tokens[t]), after)

    most, least = ([place(t) for t in _peaks(values, count)] for values in (column, -column))
    return Places(layer, quantity, unit, len(column), most, least)


def _peaks(column: Tensor, count: int) -> list[int]:
    """Steps of the `count` largest values, more than `APART` steps apart.

    >>> import torch
    >>> _peaks(torch.tensor([0.0, 8.0, 9.0, 7.0, 0.0, 0.0, 0.0, 0.0, 5.0]), count=2)
    [2, 8]
    """
    found: list[int] = []
    for t in column.argsort(descending=True, stable=True).tolist():
        if len(found) == count:
            break
        if all(abs(t - other) > APART for other in found):
            found.append(t)
    return found
