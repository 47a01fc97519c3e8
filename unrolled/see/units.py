"""The most active units of a layer, for figures that cannot show all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from unrolled.see.figures.labels import SQUASHED
from unrolled.see.trace import Part


def most_active(states: Mapping[str, Any], most: int) -> list[int]:
    """The `most` units with the largest total variation over time, by ascending number.

    `states` are the gates and states of one layer, each (T, H): tensors or arrays. The total variation of a unit,
    Σ_t |x_t − x_{t−1}|, is summed over all of them: all panels of a layer show the same units.

    >>> most_active({"h": np.array([[0, 5, 1], [0, 7, 1]]), "f": np.array([[0, 0, 1], [1, 0, 1]])}, 2)
    [0, 1]
    """
    tables = [np.nan_to_num(np.asarray(values, dtype=np.float64)) for values in states.values()]
    moved = np.zeros(max((table.shape[1] for table in tables), default=0))
    for table in tables:
        moved[: table.shape[1]] += np.abs(np.diff(table, axis=0)).sum(axis=0)
    order = np.argsort(-moved, kind="stable")[:most]
    return sorted(order.tolist())


def norms_and_means(part: Part) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """‖state‖ and the mean of every gate of a part's layers, each (T,), by label."""
    states: dict[str, Tensor] = {}
    gates: dict[str, Tensor] = {}
    for name, scan in part.trace.scans.items():
        states |= {f"‖{key}‖ {name}": values[0].detach().norm(dim=-1) for key, values in scan.states.items()}
        gates |= {f"{key} {name}": v[0].detach().mean(-1) for key, v in scan.gates.items() if key in SQUASHED}
    return states, gates
