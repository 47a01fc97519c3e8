"""Second derivatives of the cuda engine: a backward pass that is itself differentiated runs on `reference`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unrolled.cells import BuiltIn, GRUCell, LSTMCell, RNNCell
from unrolled.kernels.recurrence import reference
from unrolled.kernels.recurrence.cuda.plan import (
    GRU,
    GRU_BEFORE,
    LSTM,
    LSTM_CURRENT,
    LSTM_PREVIOUS,
    RNN_RELU,
    RNN_TANH,
)
from unrolled.kernels.recurrence.scan_job import ScanJob

if TYPE_CHECKING:
    from unrolled.kernels.recurrence.cuda.eager import LayerInputs, LayerSettings

_CELLS: dict[int, tuple[type[BuiltIn], dict[str, Any]]] = {
    RNN_TANH: (RNNCell, {"activation": torch.tanh}),
    RNN_RELU: (RNNCell, {"activation": torch.relu}),
    LSTM: (LSTMCell, {}),
    LSTM_CURRENT: (LSTMCell, {"peephole_output": "current"}),
    LSTM_PREVIOUS: (LSTMCell, {"peephole_output": "previous"}),
    GRU: (GRUCell, {"reset_after": True}),
    GRU_BEFORE: (GRUCell, {"reset_after": False}),
}


def cell_of(kind: int, peephole: Tensor | None, **parameters: Any) -> Any:
    """The cell of a kind of the engine, in plain torch."""
    cell, settings = _CELLS[kind]
    own: dict[str, Any] = {} if peephole is None else {"weight_peephole": peephole}
    return cell(**parameters, **settings, **own)


def run_reference(layer: LayerInputs, settings: LayerSettings) -> tuple[Tensor, ...]:
    """Output and final states of a layer, computed in float32 and rounded to the engine's dtype."""
    wide = layer._replace(**{name: part.float() for name, part in layer._asdict().items() if part is not None})
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    cell = cell_of(settings.recurrence.kind, wide.peephole, **{name: getattr(wide, name) for name in names})
    given, resets = (wide.h_0, wide.c_0), (wide.reset_h, wide.reset_c)
    count, batch = len(cell.state_names), layer.x.shape[0]
    state = tuple(
        wide.x.new_zeros(batch, size) if part is None else part
        for part, size in zip(given[:count], cell.state_sizes, strict=True)
    )
    reset = None if wide.reset_h is None else tuple(part for part in resets[:count] if part is not None)
    job = ScanJob(cell, wide.x, state, settings.lengths, settings.resets, reset, None, settings.recurrence.reverse)
    with torch.autocast(wide.x.device.type, enabled=False):
        output, final = reference.run(job)
    return tuple(part.to(settings.dtype) for part in (output, *final))
