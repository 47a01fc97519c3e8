"""Traces as plain data for the page and the HTML report: small enough to send, however long the input is."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.see.attention import without_specials
from unrolled.see.flow import contributions, largest_singular_values
from unrolled.see.frames import BLANK, Frames
from unrolled.see.labels import GATES, SQUASHED, plain
from unrolled.see.trace import Forecasts, ModelTrace, by_distance, spread
from unrolled.see.units import liveliest

MOST_COLUMNS = 400  # steps that are sent at once; of more, means over neighbours
MOST_ROWS = 256  # units
MOST_TOKENS = 2000  # named at once
MOST_FORECASTS = 24  # targets and horizons
MOST_UNITS = 48  # of the liveliest
UNROLLED_STEPS = 8  # drawn side by side
FLOW_STEPS = 512  # steps whose Jacobians and shares are shown; of more, evenly spread ones


def overview(trace: ModelTrace, first: int = 0) -> dict[str, Any]:
    """What the input became, what it should have become, the loss of each step, and what there is to see.

    Tokens are named from `first` on, at most `MOST_TOKENS`; the curve of the losses is of all.
    """
    window = slice(max(0, first), max(0, first) + MOST_TOKENS)
    means, starts = _means(trace.losses[:, None], MOST_TOKENS)
    return {
        "task": trace.task,
        "answer": trace.answer,
        "truth": trace.truth,
        "right": trace.right,
        "follows": trace.follows,
        "compared": [[plain(word), *tags] for word, *tags in trace.compared[window]],
        "attributes": trace.attribute is not None,
        "notes": list(trace.notes),
        "first": window.start,
        "steps": len(trace.losses_of),
        "losses_of": _named(trace.losses_of, window),
        "losses": numbers(trace.losses[window]),
        "curve": {
            "x": starts,
            "y": numbers(means[:, 0]),
            "tokens": [plain(trace.losses_of[start]) for start in starts],
            "each": _width(len(trace.losses), starts),
        },
        "guesses": [[[plain(token), rounded(p)] for token, p in row] for row in trace.guesses[window]],
        "inputs": {name: _named(probe.tokens) for name, probe in trace.probes.items()},
        "parts": [
            {"name": part.name, "tokens": _named(part.tokens), "steps": len(part.tokens)} for part in trace.parts
        ],
        "layers": [_layer(trace, name) for name in trace.layers],
        "probes": list(trace.probes),
        "attention": {
            name: {"layers": found.weights.shape[0], "heads": found.weights.shape[1]}
            for name, found in trace.attention.items()
        },
        "forecasts": {name: _forecast(found) for name, found in list(trace.forecasts.items())[:MOST_FORECASTS]},
        "forecasts_in_all": len(trace.forecasts),
        "kinds": trace.kinds,
        "missing": trace.missing,
        "notes": list(trace.notes),
        "engine": trace.parts[0].trace.engine if trace.parts else "torch",
    }


def _forecast(found: Forecasts) -> dict[str, Any]:
    """The last rows of one target, what is not known as null."""
    last = slice(-MOST_TOKENS, None)
    return {
        "rows": found.rows[last],
        "forecast": [rounded(value) for value in found.forecast[last]],
        "truth": [None if math.isnan(value) else rounded(value) for value in found.truth[last]],
        "rows_in_all": len(found.rows),
    }


def attribution(trace: ModelTrace) -> dict[str, Any]:
    """How much each word speaks for the label that is followed."""
    found = trace.attribution
    return {
        "label": found.label,
        "words": [plain(word) for word in found.words],
        "scores": [rounded(score) for score in found.scores],
        "words_each": found.words_each,
    }


def _layer(trace: ModelTrace, name: str) -> dict[str, Any]:
    scan = trace.scans[name]
    quantities = {**scan.states, **scan.gates}
    return {
        "name": name,
        "part": trace.part_of(name).name,
        "steps": len(trace.part_of(name).tokens),
        "quantities": {q: {"title": GATES.get(q, q), "units": v.shape[-1]} for q, v in quantities.items()},
    }


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
    """A gate or state between two steps, (units, steps); many units or steps are sent as means over neighbours.

    `order` is natural, lively (those that move most, the same ones for all gates and states of a layer) or mark (those
    that go most with it first); `top` and `bottom` are places in that order.
    """
    whole = trace.values(layer, quantity)
    tokens = trace.part_of(layer).tokens
    last = len(whole) if last is None else min(last, len(whole))
    if not 0 <= first < last:
        raise UserError(f"There are no steps from {first} to {last}.", f"Expected some of 0 to {len(whole)}.")
    correlations: list[float] = []
    if order == "mark":
        pairs = trace.units_like(mark, layer, quantity)
        units, correlations = [unit for unit, _ in pairs], [rounded(value) for _, value in pairs]
    elif order == "lively":
        panels = {**trace.states[layer], **trace.gates[layer]}
        units = [unit for unit in liveliest(panels, MOST_UNITS) if unit < whole.shape[1]]
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
        "units_each": _width(len(units), rows),
        "steps": [first + start for start in columns],
        "steps_each": _width(last - first, columns),
        "tokens": [plain(tokens[first + start]) for start in columns],
        "correlations": [correlations[top + start] for start in rows] if correlations else [],
        "signed": quantity not in SQUASHED,
        "largest": rounded(float(whole.abs().max())),
    }


def binned(table: Tensor, rows: int = MOST_ROWS, columns: int = MOST_COLUMNS) -> tuple[Tensor, list[int], list[int]]:
    """At most so many rows and columns, each the mean of neighbours; and where each of them begins.

    >>> binned(torch.arange(6.0).view(2, 3), rows=1, columns=2)
    (tensor([[2.0000, 3.5000]]), [0], [0, 2])
    """
    table, tops = _means(table, rows)
    turned, lefts = _means(table.T, columns)
    return turned.T, tops, lefts


def _means(table: Tensor, most: int) -> tuple[Tensor, list[int]]:
    size = math.ceil(len(table) / most)
    starts = list(range(0, len(table), size))
    if size == 1:
        return table, starts
    return torch.stack([part.mean(0) for part in torch.split(table, size)]), starts


def unit(trace: ModelTrace, layer: str, quantity: str, unit: int, first: int = 0) -> dict[str, Any]:
    """A gate or state of one unit at every token from `first` on, to colour the text with; at most `MOST_TOKENS`."""
    values = trace.values(layer, quantity)
    if not 0 <= unit < values.shape[1]:
        raise UserError(f"There is no unit {unit}.", f"Expected 0 to {values.shape[1] - 1}.")
    window = slice(max(0, first), max(0, first) + MOST_TOKENS)
    return {
        "tokens": _named(trace.part_of(layer).tokens, window),
        "values": numbers(values[window, unit]),
        "first": window.start,
        "steps": len(values),
        "signed": quantity not in SQUASHED,
        "largest": rounded(float(values[:, unit].abs().max())),
    }


def unrolled(trace: ModelTrace, part: str, unit: int, first: int = 0) -> dict[str, Any]:
    """The layers of a part over a few steps, with one unit's numbers on every wire between them."""
    found = next((one for one in trace.parts if one.name == part), None)
    if found is None:
        raise UserError(f"There is no part {part!r}.", f"Expected one of: {[one.name for one in trace.parts]}.")
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
        "tokens": _named(found.tokens, window),
        "layers": layers,
        "said": [plain(row[0][0]) for row in trace.guesses[window]] if trace.aligned == part else [],
    }


def _column(values: Tensor, unit: int, window: slice) -> list[float] | None:
    """One unit's numbers; None where a layer has no such unit."""
    return numbers(values[window, unit].detach()) if unit < values.shape[1] else None


def norms(trace: ModelTrace, part: str) -> dict[str, Any]:
    """‖state‖ and the mean of every gate of a part's layers; of many steps, means over neighbours."""
    found = next(one for one in trace.parts if one.name == part)
    states: dict[str, Any] = {}
    gates: dict[str, Any] = {}
    starts: list[int] = []
    for name, scan in found.trace.scans.items():
        for key, values in scan.states.items():
            means, starts = _means(values[0].detach().norm(dim=-1)[:, None], MOST_TOKENS)
            states[f"‖{key}‖ {name}"] = numbers(means[:, 0])
        for key, values in scan.gates.items():
            if key in SQUASHED:
                means, starts = _means(values[0].detach().mean(-1)[:, None], MOST_TOKENS)
                gates[f"{key} {name}"] = numbers(means[:, 0])
    return {
        "states": states,
        "gates": gates,
        "steps": starts,
        "tokens": [plain(found.tokens[start]) for start in starts],
        "steps_each": _width(len(found.tokens), starts),
    }


def gradients(trace: ModelTrace, of: str, most: int | None = None) -> dict[str, Any]:
    """log10 ‖∂L_t/∂h_j‖, null where nothing flows, and its mean by distance; `most` losses are followed."""
    table, rows = trace.gradients(of, most), trace.gradient_rows(most)
    tokens = trace.probes[of].tokens if of in trace.probes else trace.part_of(of).tokens
    size = math.ceil(table.shape[1] / MOST_COLUMNS)
    largest = torch.stack(
        [part.amax(1) for part in torch.split(table, size, dim=1)], dim=1
    )  # a mean would hide what is rare
    logarithms = torch.where(largest == 0, -torch.inf, largest.clamp(min=1e-30).log10())
    back = trace.counts_back(of)
    distances, starts = _means(by_distance(table, rows, back)[:, None], MOST_TOKENS)
    return {
        "z": [[None if value == -math.inf else value for value in row] for row in matrix(logarithms)],
        "losses": [plain(trace.losses_of[t]) for t in rows],
        "rows": rows,
        "steps": list(range(0, table.shape[1], size)),
        "tokens": [plain(token) for token in tokens[::size]],
        "distance": numbers(distances[:, 0]),
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


def attention(trace: ModelTrace, map: str, specials: bool = True) -> dict[str, Any]:
    """All layers and heads of one map."""
    if map not in trace.attention:
        raise UserError(f"There is no attention {map!r}.", f"Choices: {', '.join(trace.attention)}.")
    found = trace.attention[map] if specials else without_specials(trace.attention[map])
    return {
        "rows": [plain(token) for token in found.rows],
        "columns": [plain(token) for token in found.columns],
        "weights": [[matrix(head) for head in layer] for layer in found.weights],
        "grid": found.grid,
        "image": None if found.image is None else _png(found.image),
    }


def _png(image: Tensor) -> str:
    """A picture as an address that holds it."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, image.float().clamp(0, 1).cpu().numpy(), format="png", cmap="gray")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def beams(trace: ModelTrace) -> dict[str, Any]:
    """The tree of the search with a height for every node."""
    assert trace.beams is not None
    pairs = zip(trace.beams.nodes, trace.beams.places, strict=True)
    return {
        "nodes": [
            {
                "parent": node.parent,
                "step": node.step,
                "height": height,
                "token": plain(node.token),
                "edge": rounded(node.edge),
                "log_prob": rounded(node.log_prob),
                "fate": node.fate,
                "shares": [rounded(share) for share in node.shares],
            }
            for node, height in pairs
        ],
        "steps": trace.beams.steps,
        "frames": trace.beams.frames is not None,
        "outputs": [[text, rounded(score), rounded(log_prob)] for text, score, log_prob in trace.beams.outputs],
    }


def frames(trace: ModelTrace) -> dict[str, Any]:
    """CTC posteriors of the labels that matter, the alignment's spikes, and what was heard or seen."""
    found = trace.frames
    assert found is not None
    likely = [i for i, most in enumerate(found.posteriors.amax(0).tolist()) if most >= 0.05 or i == BLANK]
    return {
        "curves": {plain(found.labels[i]): numbers(found.posteriors[:, i]) for i in likely},
        "blank": plain(found.labels[BLANK]),
        "spikes": [[t, plain(label), rounded(p)] for t, label, p in found.spikes],
        "kind": found.kind,
        "unit": found.unit,
        "end": found.end,
        "picture": _picture(found),
        "lattice": None if found.lattice is None else matrix(found.lattice.T),
        "states": [plain(name) for name in found.states],
    }


def _picture(found: Frames) -> list[list[float]] | None:
    """What was heard or seen with time from left to right, the lowest row first."""
    if found.signal is None or found.signal.shape[1] < 2:
        return None
    rows = found.signal.T
    table, _, _ = binned(rows.flip(0) if found.kind == "line" else rows, columns=2 * MOST_COLUMNS)
    return matrix(table)


def step(trace: ModelTrace, layer: str, step: int, unit: int) -> dict[str, Any]:
    """One step of one unit by hand."""
    found = trace.by_hand(step, unit, layer)
    return {
        "token": plain(found.token),
        "lines": [[line.name, line.formula, line.numbers, line.shown] for line in found.lines],
    }


def numbers(tensor: Tensor) -> list[float]:
    """A row of numbers."""
    return [rounded(value) for value in tensor.detach().float().cpu().tolist()]


def matrix(tensor: Tensor) -> list[list[float]]:
    return [numbers(row) for row in tensor]


def rounded(value: float) -> float:
    """Four significant digits: more cannot be seen."""
    return float(f"{value:.4g}")


def finite(data: Any) -> tuple[Any, int]:
    """The same data with null for every number that JSON cannot say, NaN and infinities; and how many there were.

    >>> finite({"a": [1.0, float("nan")], "b": "text"})
    ({'a': [1.0, None], 'b': 'text'}, 1)
    """
    if isinstance(data, float):
        return (data, 0) if math.isfinite(data) else (None, 1)
    if isinstance(data, dict):
        pairs = {key: finite(value) for key, value in data.items()}
        return {key: value for key, (value, _) in pairs.items()}, sum(count for _, count in pairs.values())
    if isinstance(data, (list, tuple)):
        found = [finite(value) for value in data]
        return [value for value, _ in found], sum(count for _, count in found)
    return data, 0


def _named(tokens: Sequence[str], window: slice = slice(MOST_TOKENS)) -> list[str]:
    return [plain(token) for token in tokens[window]]


def _width(count: int, starts: Sequence[int]) -> int:
    return starts[1] - starts[0] if len(starts) > 1 else count
