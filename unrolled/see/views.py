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
from unrolled.see.trace import ModelTrace, by_distance

MOST_COLUMNS = 400  # steps that are sent at once; of more, means over neighbours
MOST_ROWS = 256  # units
MOST_TOKENS = 2000  # named at once


def overview(trace: ModelTrace) -> dict[str, Any]:
    """What the input became, the loss of each step, and what there is to see."""
    return {
        "task": trace.task,
        "answer": trace.answer,
        "losses_of": _named(trace.losses_of),
        "losses": numbers(trace.losses),
        "guesses": [[[plain(token), rounded(p)] for token, p in row] for row in trace.guesses[:MOST_TOKENS]],
        "inputs": {name: _named(probe.tokens) for name, probe in trace.probes.items()},
        "parts": [{"name": part.name, "tokens": _named(part.tokens)} for part in trace.parts],
        "layers": [_layer(trace, name) for name in trace.layers],
        "probes": list(trace.probes),
        "attention": {
            name: {"layers": found.weights.shape[0], "heads": found.weights.shape[1]}
            for name, found in trace.attention.items()
        },
        "kinds": trace.kinds,
        "missing": trace.missing,
        "notes": list(trace.notes),
        "engine": trace.parts[0].trace.engine if trace.parts else "torch",
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

    `order` is natural, lively (those that move most first) or mark (those that go most with it first); `top` and
    `bottom` are places in that order.
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
        units = whole.std(dim=0, correction=0).argsort(descending=True, stable=True).tolist()
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


def norms(trace: ModelTrace, part: str) -> dict[str, Any]:
    """‖state‖ and the mean of every gate of a part's layers."""
    found = next(one for one in trace.parts if one.name == part)
    states: dict[str, Any] = {}
    gates: dict[str, Any] = {}
    for name, scan in found.trace.scans.items():
        states |= {f"‖{s}‖ {name}": numbers(v[0].detach().norm(dim=-1)) for s, v in scan.states.items()}
        gates |= {f"{g} {name}": numbers(v[0].detach().mean(-1)) for g, v in scan.gates.items() if g in SQUASHED}
    return {"states": states, "gates": gates, "tokens": _named(found.tokens)}


def gradients(trace: ModelTrace, of: str) -> dict[str, Any]:
    """log10 ‖∂L_t/∂h_j‖, null where nothing flows, and its mean by distance."""
    table, rows = trace.gradients(of), trace.gradient_rows()
    tokens = trace.probes[of].tokens if of in trace.probes else trace.part_of(of).tokens
    size = math.ceil(table.shape[1] / MOST_COLUMNS)
    most = torch.stack(
        [part.amax(1) for part in torch.split(table, size, dim=1)], dim=1
    )  # a mean would hide what is rare
    logarithms = torch.where(most > 0, most.clamp(min=1e-30).log10(), torch.nan)
    back = trace.counts_back(of)
    return {
        "z": matrix(logarithms),
        "losses": [plain(trace.losses_of[t]) for t in rows],
        "rows": rows,
        "steps": list(range(0, table.shape[1], size)),
        "tokens": [plain(token) for token in tokens[::size]],
        "distance": numbers(by_distance(table, rows, back)),
        "distance_of": "t − j" if back else "from the last step",
        "sampled": len(rows) < len(trace.losses),
        "of": "input" if of in trace.probes else "state",
    }


def flow(trace: ModelTrace, layer: str) -> dict[str, Any]:
    """Largest singular values of the steps' Jacobians, and the steps' shares of the weights' gradients."""
    shares = contributions(trace, layer)
    return {
        "singular": numbers(largest_singular_values(trace, layer)),
        "shares": {name: numbers(share) for name, share in shares.items()},
        "tokens": _named(trace.part_of(layer).tokens),
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


def _picture(found: Frames) -> list[list[float | None]] | None:
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
        "lines": [[line.name, line.formula, line.numbers, rounded(line.value)] for line in found.lines],
    }


def numbers(tensor: Tensor) -> list[float | None]:
    """A row of numbers, NaN as null."""
    return [None if math.isnan(value) else rounded(value) for value in tensor.detach().cpu().tolist()]


def matrix(tensor: Tensor) -> list[list[float | None]]:
    return [numbers(row) for row in tensor]


def rounded(value: float) -> float:
    """Four significant digits: more cannot be seen."""
    return float(f"{value:.4g}")


def _named(tokens: Sequence[str]) -> list[str]:
    return [plain(token) for token in tokens[:MOST_TOKENS]]


def _width(count: int, starts: Sequence[int]) -> int:
    return starts[1] - starts[0] if len(starts) > 1 else count
