"""One step of one unit by hand: every equation of the cell with its actual numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unrolled.cells import Activation, GRUCell, LSTMCell, RNNCell
from unrolled.cells.base import AnyCell, BuiltIn
from unrolled.errors import UserError
from unrolled.nn.attention_trace import FedCell
from unrolled.see.figures.labels import plain
from unrolled.see.trace import ModelTrace


@dataclass(frozen=True)
class Line:
    """An equation, its numbers and its result."""

    name: str  # f, c_t, …
    formula: str
    numbers: str
    value: float

    @property
    def shown(self) -> str:
        """The value, formatted as in the other lines."""
        return _sum(self.value)


@dataclass(frozen=True)
class ByHand:
    """All equations of one step of one unit, in the order of computation."""

    layer: str
    step: int
    unit: int
    token: str
    lines: list[Line]

    def __str__(self) -> str:
        width = max(len(f"{line.name} = {line.formula}") for line in self.lines)
        rows = [f"{f'{line.name} = {line.formula}':<{width}}  = {line.numbers} = {line.shown}" for line in self.lines]
        return f"layer {self.layer}, step {self.step} ({plain(self.token)!r}), unit {self.unit}\n" + "\n".join(rows)


def by_hand(trace: ModelTrace, step: int, unit: int, layer: str | None = None) -> ByHand:
    """Compute the numbers of every equation at one step and unit.

    >>> import unrolled
    >>> from unrolled.see import Part
    >>> inside = unrolled.RNN(2, 3, batch_first=True).trace(torch.zeros(1, 4, 2))
    >>> trace = ModelTrace("none", "", ["a"], inside.output.sum()[None], (Part("", list("abcd"), inside),))
    >>> print(by_hand(trace, 2, 0))
    layer l0, step 2 ('c'), unit 0
    h_t = tanh(W x + U h_{t−1} + b)  = tanh(...) = ...
    """
    layer = trace.first_layer() if layer is None else layer
    part, scan = trace.part_of(layer), trace.scans[layer]
    if not 0 <= step < len(part.tokens):
        raise UserError(f"There is no step {step}.", f"Expected 0 to {len(part.tokens) - 1}.")
    build, parameters = part.trace.cells[layer.rpartition(".")[2]]
    cell = build({name: value.detach() for name, value in parameters.items()})
    hidden = next(iter((scan.gates or scan.states).values())).shape[-1]
    if not 0 <= unit < hidden:
        raise UserError(f"There is no unit {unit}.", f"Expected 0 to {hidden - 1}.")
    entering = {name: value[0, step].detach() for name, value in scan.entering.items()}
    source = "[x ; fed]" if isinstance(cell, FedCell) else "x"
    inner = cell.cell if isinstance(cell, FedCell) else cell
    sums = Sums(inner, scan.gates_x[0, step].detach(), source)
    writer = WRITERS.get(type(inner))
    lines = writer(sums, entering, unit) if writer is not None else _values(trace, layer, step, unit)
    if layer.endswith("_reverse"):  # it reads backwards: the state comes from the next step
        lines = [replace(line, formula=line.formula.replace("t−1", "t+1")) for line in lines]
    return ByHand(layer, step, unit, part.tokens[step], lines)


class Sums:
    """The pre-activations of the gates, split into W x, U h and b."""

    def __init__(self, cell: AnyCell, gates_x: Tensor, source: str) -> None:
        self.cell, self.gates_x, self.source = cell, gates_x, source
        self.normed = isinstance(cell, BuiltIn) and cell.norm_ih is not None

    def parts(self, row: int, recurrent: Tensor) -> tuple[float, float, float]:
        """W x, U h and b of one row; `recurrent` has all rows of U h + b."""
        assert isinstance(self.cell, BuiltIn)
        here, there = (0.0 if bias is None else float(bias[row]) for bias in (self.cell.bias_ih, self.cell.bias_hh))
        return float(self.gates_x[row]) - here, float(recurrent[row]) - there, here + there

    def formula(self, gate: str) -> str:
        """W_f x + U_f h_{t−1} + b_f, with layer norm around the products if the cell has it."""
        mark = f"_{gate}" if gate else ""
        x, h = f"W{mark} {self.source}", f"U{mark} h_{{t−1}}"
        return f"LN({x}) + LN({h}) + b{mark}" if self.normed else f"{x} + {h} + b{mark}"


def _rnn(sums: Sums, entering: dict[str, Tensor], unit: int) -> list[Line]:
    cell = sums.cell
    assert isinstance(cell, RNNCell)
    parts = sums.parts(unit, cell.recurrent(entering["h"]))
    name = _sign(cell.activation)
    value = float(cell.activation(torch.tensor(sum(parts))))
    return [Line("h_t", f"{name}({sums.formula('')})", f"{name}({_sum(*parts)})", value)]


def _lstm(sums: Sums, entering: dict[str, Tensor], unit: int) -> list[Line]:
    cell = sums.cell
    assert isinstance(cell, LSTMCell)
    hidden, recurrent = cell.hidden_size, cell.recurrent(entering["h"])
    before = float(entering["c"][unit])
    holes: list[float | None] = [None] * 3  # of i, f, o
    if cell.weight_peephole is not None:
        holes = cell.weight_peephole[:, unit].tolist()
    lines: list[Line] = []
    found: dict[str, float] = {}

    def gate(place: int, name: str, hole: float | None = None, seen: float = 0.0, which: str = "t−1") -> None:
        parts = [*sums.parts(place * hidden + unit, recurrent), *([] if hole is None else [hole * seen])]
        squash = cell.activation if name == "g" else cell.gate_activation
        sign = _sign(squash)
        found[name] = float(squash(torch.tensor(sum(parts))))
        peeped = "" if hole is None else f" + p_{name} c_{{{which}}}"
        lines.append(Line(name, f"{sign}({sums.formula(name)}{peeped})", f"{sign}({_sum(*parts)})", found[name]))

    gate(0, "i", holes[0], before)
    gate(1, "f", holes[1], before)
    gate(2, "g")
    memory = found["f"] * before + found["i"] * found["g"]
    products = f"{found['f']:.4f}·{_number(before)} + {found['i']:.4f}·{_number(found['g'])}"
    lines.append(Line("c_t", "f∘c_{t−1} + i∘g", products, memory))
    current = cell.peephole_output == "current"
    gate(3, "o", holes[2], memory if current else before, "t" if current else "t−1")
    if cell.norm_c is None and cell.weight_hr is None:
        shown, sign = float(cell.output_activation(torch.tensor(memory))), _sign(cell.output_activation)
        numbers = f"{found['o']:.4f}·{sign}({_sum(memory)})"
        lines.append(Line("h_t", f"o∘{sign}(c_t)", numbers, found["o"] * shown))
    return lines


def _gru(sums: Sums, entering: dict[str, Tensor], unit: int) -> list[Line]:
    cell = sums.cell
    assert isinstance(cell, GRUCell)
    hidden, state = cell.hidden_size, entering["h"]
    before, recurrent = float(state[unit]), cell.recurrent(state)
    lines: list[Line] = []
    found: dict[str, float] = {}
    squash = _sign(cell.gate_activation)
    for place, name in enumerate(("r", "z")):
        parts = sums.parts(place * hidden + unit, recurrent)
        found[name] = float(cell.gate_activation(torch.tensor(sum(parts))))
        lines.append(Line(name, f"{squash}({sums.formula(name)})", f"{squash}({_sum(*parts)})", found[name]))
    read = float(sums.gates_x[2 * hidden + unit])
    if cell.reset_after:
        product = float(recurrent[2 * hidden + unit])
        formula, inner = f"W_n {sums.source} + b_in + r∘(U_n h_{{t−1}} + b_hn)", read + found["r"] * product
        numbers = f"{_number(read)} + {found['r']:.4f}·{_number(product)}"
    else:
        reset = cell.gate_activation(sums.gates_x[:hidden] + cell.recurrent(state)[:hidden])
        product = float(cell._rows(reset * state, slice(2 * hidden, None))[unit])
        formula, inner = f"W_n {sums.source} + b_in + U_n (r∘h_{{t−1}}) + b_hn", read + product
        numbers = _sum(read, product)
    found["n"] = float(cell.activation(torch.tensor(inner)))
    sign = _sign(cell.activation)
    lines.append(Line("n", f"{sign}({formula})", f"{sign}({numbers})", found["n"]))
    value = (1 - found["z"]) * found["n"] + found["z"] * before
    numbers = f"{1 - found['z']:.4f}·{_number(found['n'])} + {found['z']:.4f}·{_number(before)}"
    lines.append(Line("h_t", "(1 − z)∘n + z∘h_{t−1}", numbers, value))
    return lines


def _values(trace: ModelTrace, layer: str, step: int, unit: int) -> list[Line]:
    """The gates and states of a custom cell, without equations."""
    scan = trace.scans[layer]
    rows = {**scan.gates, **scan.states}
    return [
        Line(name, "see its step method", f"{float(v[0, step, unit]):.4f}", float(v[0, step, unit]))
        for name, v in rows.items()
    ]


WRITERS: dict[type, Callable[[Sums, dict[str, Tensor], int], list[Line]]] = {
    RNNCell: _rnn,
    LSTMCell: _lstm,
    GRUCell: _gru,
}


def _sign(activation: Activation) -> str:
    """The name of an activation in a formula."""
    return "σ" if activation is torch.sigmoid else getattr(activation, "__name__", "φ")


def _number(value: float) -> str:
    """A factor, in brackets if it is negative."""
    return f"{value:.4f}" if value >= 0 else f"(−{-value:.4f})"


def _sum(*terms: float) -> str:
    """Terms as a sum: 0.5 − 0.25 + 1."""
    first, *rest = terms
    text = f"{first:.4f}" if first >= 0 else f"−{-first:.4f}"
    return text + "".join(f" {'+' if term >= 0 else '−'} {abs(term):.4f}" for term in rest)
