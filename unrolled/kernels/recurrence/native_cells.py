"""The cells of the C++ core: the one place in Python that names them. A new cell is one row here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import unrolled.kernels._native as _native
from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell


@dataclass(frozen=True)
class NativeCell:
    """A cell in Python that the core computes, and its row of native/cells/kinds.h."""

    cell: type[BuiltIn]
    settings: dict[str, Any]  # the only ones with kernels
    gates: int
    memory: bool  # a state c beside h
    candidate: bool  # saves U_n h + b_hn, or r∘h, of its last gate for the backward pass
    two_products: bool  # U_n waits for r


_LSTM = {"activation": torch.tanh, "gate_activation": torch.sigmoid, "output_activation": torch.tanh}
_GRU = {"activation": torch.tanh, "gate_activation": torch.sigmoid}
# name in native/cells/kinds.h → class and settings
_PYTHON: dict[str, tuple[type[BuiltIn], dict[str, Any]]] = {
    "rnn_tanh": (RNNCell, {"activation": torch.tanh}),
    "rnn_relu": (RNNCell, {"activation": torch.relu}),
    "lstm": (LSTMCell, _LSTM),
    "gru_reset_after": (GRUCell, {**_GRU, "reset_after": True}),
    "gru_reset_before": (GRUCell, {**_GRU, "reset_after": False}),
}
CELLS = {
    kind: NativeCell(*_PYTHON[name], gates, memory, candidate, two_products)
    for kind, (name, gates, memory, candidate, two_products) in _native.CELLS.items()
}

# class → kinds and settings: every call looks a cell up
_BY_CLASS: dict[type, list[tuple[int, list[tuple[str, Any]]]]] = {}
for _kind, _row in CELLS.items():
    _BY_CLASS.setdefault(_row.cell, []).append((_kind, list(_row.settings.items())))


def kind_of(cell: object) -> int | None:
    """The core's number for a cell; None if it has another class, or other activations than the kernels'."""
    for kind, settings in _BY_CLASS.get(type(cell), ()):
        for name, value in settings:
            if getattr(cell, name) is not value:
                break
        else:
            return kind
    return None


def refuses_cell(cell: object) -> str | None:
    """The reason why the core does not compute a cell, or None."""
    if kind_of(cell) is not None:
        return None
    if type(cell) not in _BY_CLASS:
        return f"it has no cell {type(cell).__name__}"
    return "it has the usual activations only: tanh and sigmoid, or relu for an RNN"
