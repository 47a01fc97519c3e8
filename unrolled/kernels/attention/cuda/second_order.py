"""Second derivatives of a decoder on the cuda engine: a differentiated backward pass runs on `reference`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unrolled.cells import AttentionCell, BahdanauCell, LuongCell, Score, VisualCell
from unrolled.kernels.attention import reference
from unrolled.kernels.attention.attention_job import AttentionJob
from unrolled.kernels.attention.cuda.passes import DecoderNumbers, DecoderTensors
from unrolled.kernels.recurrence.cuda.second_order import cell_of


def run_reference(tensors: DecoderTensors, numbers: DecoderNumbers) -> tuple[Tensor, ...]:
    """The results of a decoder in the order of `Results`, computed in float32 and rounded to the engine's dtype."""
    numbered = {name: part for name, part in tensors._asdict().items() if part is not None and part.is_floating_point()}
    wide = tensors._replace(**{name: part.float() for name, part in numbered.items()})
    given = (wide.h_0, wide.c_0, wide.fed_0)
    options: dict[str, Any] = {name: getattr(wide, name) for name in ("mask", "lengths", "feed_mask", "mix_mask")}
    state = tuple(part for part in given if part is not None)
    job = AttentionJob(_cell(wide, numbers), wide.gates_x, wide.keys, wide.values, state=state, **options)
    with torch.autocast(wide.gates_x.device.type, enabled=False):
        seen = reference.run(job)
    final, absent = iter(seen.state), wide.gates_x.new_empty(0)
    results = (seen.output, seen.context, seen.weights, *(absent if part is None else next(final) for part in given))
    return tuple(part.to(torch.float16 if numbers.half else torch.bfloat16) for part in results)


def _cell(tensors: DecoderTensors, numbers: DecoderNumbers) -> AttentionCell:
    # weight_ih is never read: the inputs are projected already
    weights = {"weight_ih": tensors.weight_hh, "weight_hh": tensors.weight_hh, "bias_hh": tensors.bias_hh}
    cell = cell_of(numbers.kind, tensors.peephole, **weights)
    score = Score(tensors.weight_query, tensors.bias_query, tensors.vector, numbers.scale)
    if tensors.weight_gate is not None and tensors.bias_gate is not None:
        return VisualCell(cell, score, tensors.weight_feed, tensors.weight_gate, tensors.bias_gate)
    if tensors.weight_mix is None:
        return BahdanauCell(cell, score, tensors.weight_feed)
    return LuongCell(cell, score, tensors.weight_feed, tensors.weight_mix, tensors.bias_mix)
