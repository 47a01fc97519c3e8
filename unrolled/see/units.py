"""Which units of a layer are shown where there are too many for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def liveliest(states: Mapping[str, Any], most: int) -> list[int]:
    """The units that move most over time, at most so many, by ascending number.

    `states` are the gates and states of one layer, each (T, H): tensors or arrays. A unit's liveliness is its total
    variation, Σ_t |x_t − x_{t−1}|, summed over all of them. All panels of a layer then show the same units in the
    same order.

    >>> liveliest({"h": np.array([[0, 5, 1], [0, 7, 1]]), "f": np.array([[0, 0, 1], [1, 0, 1]])}, 2)
    [0, 1]
    """
    tables = [np.nan_to_num(np.asarray(values, dtype=np.float64)) for values in states.values()]
    moved = np.zeros(max((table.shape[1] for table in tables), default=0))
    for table in tables:
        moved[: table.shape[1]] += np.abs(np.diff(table, axis=0)).sum(axis=0)
    order = np.argsort(-moved, kind="stable")[:most]
    return sorted(order.tolist())
