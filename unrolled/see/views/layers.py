"""States, gates and gradients of a model's layers as plain data for the page, of bounded size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.see.figures.labels import SQUASHED, plain
from unrolled.see.flow import contributions, largest_singular_values
from unrolled.see.trace import ModelTrace, Part, by_distance, spread
from unrolled.see.units import most_active, norms_and_means
from unrolled.see.views.trace import MOST_COLUMNS, MOST_TOKENS, binned, matrix, means_of, named, numbers, rounded, width

MOST_UNITS = 48  # most active units that are sent
UNROLLED_STEPS = 8  # drawn side by side
FLOW_STEPS = 512  # steps with Jacobians and shares; longer inputs are sampled evenly


def values(
    trace: ModelTrace,
    layer: str,
    quantity: str,
    first: int = 0,
    last: int | None = None,
    order: str = "natural",
    mark: Sequence[float] = (),
    top: int = 0,
    bottom: int | None = None,
) -> dict[str, Any]:
    """A gate or state between two steps, (units, steps); many units or steps are averaged over neighbours.

    `order` is natural, lively (the most active units, the same for all gates and states of a layer) or mark (by
    correlation with it); `top` and `bottom` are positions in that order.
    """
    whole = trace.values(layer, quantity)
    tokens = trace.part_of(layer).tokens
    last = len(whole) if last is None else min(last, len(whole))
    if not 0 <= first < last:
        raise UserError(f"There are no steps from {first} to {last}.", f"Expected a range within 0 to {len(whole)}.")
    correlations: list[float] = []
    if order == "mark":
        pairs = trace.units_like(mark, layer, quantity)
        units, correlations = [unit for unit, _ in pairs], [rounded(value) for _, value in pairs]
    elif order == "lively":
        panels = {**trace.states[layer], **trace.gates[layer]}
        units = [unit for unit in most_active(panels, MOST_UNITS) if unit < whole.shape[1]]
    elif order == "natural":
        units = list(range(whole.shape[1]))
    else:
        raise UserError(f"Unknown order {order!r}.", "Choices: natural, lively, mark.")
    units = units[top:bottom]
    shown = whole[first:last, units].T  # (units, steps)
    table, rows, columns = binned(shown)
    return {
        "z": matrix(table),
        "units": [units[start] for start in rows],
        "units_each": width(len(units), rows),
        "steps": [first + start for start in columns],
        "steps_each": width(last - first, columns),
        "tokens": [plain(tokens[first + start]) for start in columns],
        "correlations": [correlations[top + start] for start in rows] if correlations else [],
        "signed": quantity not in SQUASHED,
        "largest": rounded(float(whole.abs().max())),
    }


def unit(trace: ModelTrace, layer: str, quantity: str, unit: int, first: int = 0) -> dict[str, Any]:
    """A gate or state of one unit at up to `MOST_TOKENS` tokens from `first` on, to colour the text with."""
    values = trace.values(layer, quantity)
    if not 0 <= unit < values.shape[1]:
        raise UserError(f"There is no unit {unit}.", f"Expected 0 to {values.shape[1] - 1}.")
    window = slice(max(0, first), max(0, first) + MOST_TOKENS)
    return {
        "tokens": named(trace.part_of(layer).tokens, window),
        "values": numbers(values[window, unit]),
        "first": window.start,
        "steps": len(values),
        "signed": quantity not in SQUASHED,
        "largest": rounded(float(values[:, unit].abs().max())),
    }


def unrolled(trace: ModelTrace, part: str, unit: int, first: int = 0) -> dict[str, Any]:
    """The layers of a part over a few steps, with one unit's values on every connection between them."""
    found = _part(trace, part)
    window = slice(max(0, first), max(0, first) + UNROLLED_STEPS)
    layers = []
    for name, scan in found.trace.scans.items():
        rows = {**scan.gates, **scan.states}
        layers.append(
            {
                "name": f"{part}.{name}" if part else name,
                "reverse": name.endswith("_reverse"),
                "values": {key: _column(values[0], unit, window) for key, values in rows.items()},
                "entering": {key: _column(values[0], unit, window) for key, values in scan.entering.items()},
                "states": list(scan.states),
                "read": numbers(scan.x[0, window].detach().norm(dim=-1)),
            }
        )
    return {
        "first": window.start,
        "steps": len(found.tokens),
        "each": UNROLLED_STEPS,
        "tokens": named(found.tokens, window),
        "layers": layers,
        "predicted": [plain(row[0][0]) for row in trace.guesses[window]] if trace.aligned == part else [],
    }


def _part(trace: ModelTrace, name: str) -> Part:
    parts = {part.name: part for part in trace.parts}
    if name not in parts:
        raise unknown_name("part", name, parts)
    return parts[name]


def _column(values: Tensor, unit: int, window: slice) -> list[float] | None:
    """One unit's values, or None if the layer has no such unit."""
    return numbers(values[window, unit].detach()) if unit < values.shape[1] else None


def norms(trace: ModelTrace, part: str) -> dict[str, Any]:
    """‖state‖ and the mean of every gate of a part's layers; many steps are averaged over neighbours."""
    found = _part(trace, part)
    states, gates = (
        {name: numbers(means_of(values, MOST_TOKENS)[0]) for name, values in some.items()}
        for some in norms_and_means(found)
    )
    starts = means_of(torch.zeros(len(found.tokens)), MOST_TOKENS)[1]
    return {
        "states": states,
        "gates": gates,
        "steps": starts,
        "tokens": [plain(found.tokens[start]) for start in starts],
        "steps_each": width(len(found.tokens), starts),
    }


def gradients(trace: ModelTrace, of: str, most: int | None = None) -> dict[str, Any]:
    """log10 ‖∂L_t/∂h_j‖ of at most `most` losses, null where the gradient is 0, and its mean by distance."""
    table, rows = trace.gradients(of, most), trace.gradient_rows(most)
    tokens = trace.tokens_of(of)
    size = math.ceil(table.shape[1] / MOST_COLUMNS)
    # the maximum, because a mean would hide rare large gradients
    largest = torch.stack([part.amax(1) for part in torch.split(table, size, dim=1)], dim=1)
    logarithms = torch.where(largest == 0, -torch.inf, largest.clamp(min=1e-30).log10())
    back = trace.counts_back(of)
    distances, starts = means_of(by_distance(table, rows, back), MOST_TOKENS)
    return {
        "z": [[None if value == -math.inf else value for value in row] for row in matrix(logarithms)],
        "zero": bool((table == 0).all()),
        "losses": [plain(trace.losses_of[t]) for t in rows],
        "rows": rows,
        "steps": list(range(0, table.shape[1], size)),
        "tokens": [plain(token) for token in tokens[::size]],
        "distance": numbers(distances),
        "distances": starts,
        "distance_of": "t − j" if back else "from the last step",
        "losses_in_all": len(trace.losses),
        "of": "input" if of in trace.probes else "state",
    }


def flow(trace: ModelTrace, layer: str, most: int = FLOW_STEPS) -> dict[str, Any]:
    """Largest singular values of the steps' Jacobians, and the steps' shares of the weights' gradients."""
    tokens = trace.part_of(layer).tokens
    steps = spread(len(tokens), most)
    shares = contributions(trace, layer, steps)
    return {
        "singular": numbers(largest_singular_values(trace, layer, steps)),
        "shares": {name: numbers(share) for name, share in shares.items()},
        "steps": steps,
        "steps_in_all": len(tokens),
        "tokens": [plain(tokens[step]) for step in steps],
    }
