"""Second derivatives of a native decoder: a backward pass that is itself differentiated runs on `reference`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unrolled.cells import AttentionCell, BahdanauCell, LuongCell, Score
from unrolled.kernels.attention import reference
from unrolled.kernels.attention.attention_job import AttentionJob
from unrolled.kernels.recurrence.native_cells import CELLS

if TYPE_CHECKING:
    from unrolled.kernels.attention.native_ops import DecoderInputs


def run_reference(inputs: DecoderInputs) -> tuple[Tensor, ...]:
    """The results of a decoder of the native engine in plain torch, in the order of `DecoderResults`."""
    names = ("mask", "lengths", "feed_mask", "mix_mask")
    states = [part for part in (inputs.h_0, inputs.c_0, inputs.fed_0) if part is not None]
    options = {name: getattr(inputs, name) for name in names}
    job = AttentionJob(_cell(inputs), inputs.gates_x, inputs.keys, inputs.values, state=tuple(states), **options)
    with torch.autocast("cpu", enabled=False):
        seen = reference.run(job)
    final, absent = iter(seen.state), inputs.gates_x.new_empty(0)
    given = (inputs.h_0, inputs.c_0, inputs.fed_0)
    return seen.output, seen.context, seen.weights, *(absent if part is None else next(final) for part in given)


def _cell(inputs: DecoderInputs) -> AttentionCell:
    native, values = CELLS[inputs.kind], inputs._asdict()
    parameters: dict[str, Any] = {f.name: values[f.name] for f in fields(native.cell) if f.name in values}
    parameters["weight_ih"] = inputs.weight_hh  # never read: the inputs are projected already
    cell: Any = native.cell(**parameters | native.settings)
    score = Score(**{field.name: values[field.name] for field in fields(Score)})
    if inputs.luong:
        assert inputs.weight_mix is not None
        return LuongCell(cell, score, inputs.weight_feed, inputs.weight_mix, inputs.bias_mix)
    return BahdanauCell(cell, score, inputs.weight_feed)
