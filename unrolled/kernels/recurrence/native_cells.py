"""The cells of the C++ core: the one place in Python that names them. A new cell is one row here."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell


@dataclass(frozen=True)
class NativeCell:
    """A cell in Python that the core computes: its class, and the settings that the kernels are written for."""

    cell: type[BuiltIn]
    settings: dict[str, Any]
    candidate: bool = False  # saves U_n h + b_hn, or r∘h, of its last gate for the backward pass
    two_products: bool = False  # U_n waits for r

    @property
    def gates(self) -> int:
        return max(len(self.cell.gate_names), 1)

    @property
    def memory(self) -> bool:
        """True if it has a state c beside h."""
        return "c" in self.cell.state_names


_LSTM = {"activation": torch.tanh, "gate_activation": torch.sigmoid, "output_activation": torch.tanh}
_GRU = {"activation": torch.tanh, "gate_activation": torch.sigmoid}
# `CellKind` in native/recurrence/job.h → cell
CELLS = {
    0: NativeCell(RNNCell, {"activation": torch.tanh}),
    1: NativeCell(RNNCell, {"activation": torch.relu}),
    2: NativeCell(LSTMCell, _LSTM),
    3: NativeCell(GRUCell, {**_GRU, "reset_after": True}, candidate=True),
    4: NativeCell(GRUCell, {**_GRU, "reset_after": False}, candidate=True, two_products=True),
}


# class → (kind, reads the settings of a cell, what they must be): a lookup is on the path of every call
_BY_CLASS: dict[type, list[tuple[int, attrgetter[Any], Any]]] = {}
for _kind, _native in CELLS.items():
    _read = attrgetter(*_native.settings)
    _BY_CLASS.setdefault(_native.cell, []).append((_kind, _read, _read(SimpleNamespace(**_native.settings))))


def kind_of(cell: object) -> int | None:
    """The core's number for a cell; None if it has another class, or other activations than the kernels'."""
    for kind, read, settings in _BY_CLASS.get(type(cell), ()):
        if read(cell) == settings:
            return kind
    return None


def refuses_cell(cell: object) -> str | None:
    """The reason why the core does not compute a cell, or None."""
    if kind_of(cell) is not None:
        return None
    if type(cell) not in _BY_CLASS:
        return f"it has no cell {type(cell).__name__}"
    return "it has the usual activations only: tanh and sigmoid, or relu for an RNN"
