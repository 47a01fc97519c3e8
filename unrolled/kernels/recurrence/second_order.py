"""Second derivatives of the native engine: a backward pass that is itself differentiated runs on `reference`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unrolled.cells import AnyCell
from unrolled.kernels.recurrence import reference
from unrolled.kernels.recurrence.native_cells import CELLS
from unrolled.kernels.recurrence.scan_job import ScanJob

if TYPE_CHECKING:
    from unrolled.kernels.recurrence.native_ops import RecurrenceInputs


def run_reference(inputs: RecurrenceInputs) -> tuple[Tensor, ...]:
    """Output and final states of a recurrence of the native engine, in plain torch."""
    states = CELLS[inputs.kind].cell.state_names
    values: dict[str, Any] = inputs._asdict()
    keep = tuple(values[f"keep_rate_{n}"] if values[f"keep_{n}"] is None else values[f"keep_{n}"] for n in states)
    job = ScanJob(
        _cell(inputs),
        inputs.x,
        tuple(values[f"{name}_0"] for name in states),
        inputs.lengths,
        inputs.resets,
        None if inputs.reset_h is None else tuple(values[f"reset_{name}"] for name in states),
        keep if any(isinstance(k, Tensor) or k for k in keep) else None,
        inputs.reverse,
    )
    with torch.autocast("cpu", enabled=False):
        output, final = reference.run(job)
    return output, *final


def _cell(inputs: RecurrenceInputs) -> AnyCell:
    native = CELLS[inputs.kind]
    names = {field.name for field in fields(native.cell)}
    parameters: dict[str, Any] = {name: value for name, value in inputs._asdict().items() if name in names}
    if "peephole_output" in names:
        parameters["peephole_output"] = "previous" if inputs.peephole_previous else "current"
    cell = native.cell(**parameters | native.settings)
    assert isinstance(cell, AnyCell)
    return cell
