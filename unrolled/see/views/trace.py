"""Traces as plain data of bounded size for the page and the HTML report."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.see.figures.attention import without_specials
from unrolled.see.figures.labels import GATES, plain
from unrolled.see.frames import BLANK, Frames
from unrolled.see.trace import Forecasts, ModelTrace

MOST_COLUMNS = 400  # steps sent at once; more are averaged over neighbours
MOST_ROWS = 256  # units
MOST_TOKENS = 2000  # sent at once
MOST_FORECASTS = 24  # targets and horizons


def overview(trace: ModelTrace, first: int = 0) -> dict[str, Any]:
    """The answer, the truth, the loss of each step, and the views that are available.

    At most `MOST_TOKENS` tokens are sent, from `first` on; the loss curve covers all of them.
    """
    window = slice(max(0, first), max(0, first) + MOST_TOKENS)
    means, starts = means_of(trace.losses, MOST_TOKENS)
    return {
        "task": trace.task,
        "answer": trace.answer,
        "truth": trace.truth,
        "right": trace.right,
        "follows": trace.follows,
        "compared": [[plain(word), *tags] for word, *tags in trace.compared[window]],
        "attributes": trace.attribute is not None,
        "first": window.start,
        "steps": len(trace.losses_of),
        "losses_of": named(trace.losses_of, window),
        "losses": numbers(trace.losses[window]),
        "curve": {
            "x": starts,
            "y": numbers(means),
            "tokens": [plain(trace.losses_of[start]) for start in starts],
            "each": width(len(trace.losses), starts),
        },
        "guesses": [[[plain(token), rounded(p)] for token, p in row] for row in trace.guesses[window]],
        "inputs": {name: named(probe.tokens) for name, probe in trace.probes.items()},
        "parts": [{"name": part.name, "tokens": named(part.tokens), "steps": len(part.tokens)} for part in trace.parts],
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
    """The last rows of one target, unknown values as null."""
    last = slice(-MOST_TOKENS, None)
    return {
        "rows": found.rows[last],
        "forecast": [rounded(value) for value in found.forecast[last]],
        "truth": [None if math.isnan(value) else rounded(value) for value in found.truth[last]],
        "rows_in_all": len(found.rows),
    }


def attribution(trace: ModelTrace) -> dict[str, Any]:
    """The contribution of each word to the label."""
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


def binned(table: Tensor, rows: int = MOST_ROWS, columns: int = MOST_COLUMNS) -> tuple[Tensor, list[int], list[int]]:
    """At most `rows` × `columns` means over neighbours, and the first row and column of each mean.

    >>> binned(torch.arange(6.0).view(2, 3), rows=1, columns=2)
    (tensor([[2.0000, 3.5000]]), [0], [0, 2])
    """
    table, tops = means_of(table, rows)
    turned, lefts = means_of(table.T, columns)
    return turned.T, tops, lefts


def means_of(table: Tensor, most: int) -> tuple[Tensor, list[int]]:
    size = math.ceil(len(table) / most)
    starts = list(range(0, len(table), size))
    if size == 1:
        return table, starts
    return torch.stack([part.mean(0) for part in torch.split(table, size)]), starts


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
        "hard": found.hard,
        "image": None if found.image is None else _png(found.image),
    }


def _png(image: Tensor) -> str:
    """A data URL of an image."""
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
    """CTC posteriors of the likely labels, the alignment's spikes, and the input signal."""
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
    """The input signal with time from left to right, the lowest row first."""
    if found.signal is None or found.signal.shape[1] < 2:
        return None
    rows = found.signal.T
    table, _, _ = binned(rows.flip(0) if found.kind == "line" else rows, columns=2 * MOST_COLUMNS)
    return matrix(table)


def step(trace: ModelTrace, layer: str, step: int, unit: int) -> dict[str, Any]:
    """The equations of one step of one unit with their numbers."""
    found = trace.by_hand(step, unit, layer)
    return {
        "token": plain(found.token),
        "lines": [[line.name, line.formula, line.numbers, line.shown] for line in found.lines],
    }


def numbers(tensor: Tensor) -> list[float]:
    """A tensor (N,) as rounded numbers."""
    return [rounded(value) for value in tensor.detach().float().cpu().tolist()]


def matrix(tensor: Tensor) -> list[list[float]]:
    return [numbers(row) for row in tensor]


def rounded(value: float) -> float:
    """The value with four significant digits: more are not visible."""
    return float(f"{value:.4g}")


def finite(data: Any) -> tuple[Any, int]:
    """The same data with None for NaN and infinities, which JSON lacks, and their count.

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


def named(tokens: Sequence[str], window: slice = slice(MOST_TOKENS)) -> list[str]:
    return [plain(token) for token in tokens[window]]


def width(count: int, starts: Sequence[int]) -> int:
    return starts[1] - starts[0] if len(starts) > 1 else count
