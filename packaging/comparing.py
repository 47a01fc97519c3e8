"""The equations of a cell in numpy and the count of comparisons, for the checks of a wheel's extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FLOAT32 = 2e-5  # of the largest number
GRADIENT = 2e-4


def floats(values: Array) -> Array:
    return np.ascontiguousarray(values, dtype=np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def cell_step(
    kind: str, w: dict[str, Array], x: Array, h: Array, c: Array, times: Callable[..., Array]
) -> tuple[Array, Array]:
    """One step of a cell; `times` multiplies a matrix with the rows of an input."""
    gates = times(x, w["weight_ih"]) + w["bias_ih"]
    hidden = w["weight_hh"].shape[1]
    if kind == "gru_reset_before":
        both = gates[:, : 2 * hidden] + times(h, w["weight_hh"][: 2 * hidden]) + w["bias_hh"][: 2 * hidden]
        r, z = np.split(sigmoid(both), 2, axis=1)
        n = np.tanh(gates[:, 2 * hidden :] + times(r * h, w["weight_hh"][2 * hidden :]) + w["bias_hh"][2 * hidden :])
        return (1 - z) * n + z * h, c
    inner = times(h, w["weight_hh"]) + w["bias_hh"]
    if kind == "gru_reset_after":
        r, z = np.split(sigmoid((gates + inner)[:, : 2 * hidden]), 2, axis=1)
        n = np.tanh(gates[:, 2 * hidden :] + r * inner[:, 2 * hidden :])
        return (1 - z) * n + z * h, c
    if kind == "lstm":
        i, f, g, o = np.split(gates + inner, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    return (np.tanh(gates + inner) if kind == "rnn_tanh" else np.maximum(gates + inner, 0)), c


def exact(x: Array, matrix: Array) -> Array:
    return x @ matrix.T


class Checks:
    """Counts the comparisons, and ends at the first that fails."""

    def __init__(self) -> None:
        self.done: dict[str, tuple[int, float]] = {}

    def close(self, what: str, got: Array, wanted: Array, tolerance: float, scale: float | None = None) -> None:
        most = float(np.max(np.abs(wanted))) if scale is None else scale
        error = float(np.max(np.abs(np.asarray(got, np.float64) - wanted))) / max(most, 1e-30)
        count, worst = self.done.get(what, (0, 0.0))
        self.done[what] = (count + 1, max(worst, error))
        if not error <= tolerance:
            raise SystemExit(f"{what}: relative error {error:.1e}, allowed {tolerance:.0e}")

    def same(self, what: str, got: object, wanted: object) -> None:
        count, worst = self.done.get(what, (0, 0.0))
        self.done[what] = (count + 1, worst)
        if got != wanted:
            raise SystemExit(f"{what}: got {got!r}, expected {wanted!r}")
