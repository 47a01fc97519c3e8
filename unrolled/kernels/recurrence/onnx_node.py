"""A recurrence as one ONNX node: what torch.onnx.export(dynamo=True) records in place of an engine.

The node takes any batch and any number of steps. Its numbers are computed where the ONNX model runs.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor

from unrolled.cells import ACTIVATIONS, BuiltIn, GRUCell, LSTMCell, RNNCell, State
from unrolled.errors import UserError
from unrolled.kernels.recurrence.scan_job import ScanJob

NAME = "onnx"

# the order of the gates of a node, as places in ours
_ORDER = {"RNN": [0], "LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}  # LSTM: i o f g; GRU: z r n
_PEEPHOLES = [0, 2, 1]  # i o f
# activations of ONNX: name, and the alpha and beta of those that have them
_ACTIVATIONS: dict[str, tuple[str, list[float], list[float]]] = {
    "elu": ("Elu", [1.0], []),
    "hardsigmoid": ("HardSigmoid", [1 / 6], [0.5]),
    "identity": ("Affine", [1.0], [0.0]),
    "leaky_relu": ("LeakyRelu", [0.01], []),
    "relu": ("Relu", [], []),
    "sigmoid": ("Sigmoid", [], []),
    "softplus": ("Softplus", [], []),
    "softsign": ("Softsign", [], []),
    "tanh": ("Tanh", [], []),
}


def wanted(backend: str) -> bool:
    """True while torch.onnx.export(dynamo=True) records, unless the loop of `reference` was asked for."""
    return torch.compiler._is_exporting_flag and _in_onnx_export() and backend != "reference"


def _in_onnx_export() -> bool:
    return torch.onnx.is_in_onnx_export()


# torch's compiler, which strict exports use, takes torch's function for False; this one it calls
_in_onnx_export.__dict__["_dynamo_marked_constant"] = True


def refuses(job: ScanJob) -> str | None:
    """The reason why no ONNX node computes the job, or None."""
    cell = job.cell
    if not isinstance(cell, (RNNCell, LSTMCell, GRUCell)):
        return f"ONNX has no cell {type(cell).__name__}"
    kind = _node_type(cell)
    absent = {
        "layer norm": any(getattr(cell, name, None) is not None for name in ("norm_ih", "norm_hh", "norm_c")),
        "projection": getattr(cell, "weight_hr", None) is not None,
        "variational dropout inside the recurrence": cell.hidden_mask is not None,
        "zoneout": job.keep is not None,
        "resets": job.resets is not None,
        "peephole of the output gate at the previous c": isinstance(cell, LSTMCell)
        and cell.weight_peephole is not None
        and cell.peephole_output == "previous",
    }
    for option, used in absent.items():
        if used:
            return f"an ONNX {kind} node has no {option}"
    for function in _functions(cell):
        if _name_of(function) not in _ACTIVATIONS:
            shown = _name_of(function) or getattr(function, "__name__", repr(function))
            return f"an ONNX {kind} node has no activation {shown}"
    return None


def check(job: ScanJob) -> None:
    """Raise the error of a job that is no node."""
    reason = refuses(job)
    if reason is not None:
        raise UserError(
            f"torch.onnx.export cannot write this layer: {reason}.",
            "Use a layer without it; or backend='reference', which writes a loop of the example's number of steps.",
        )


def run(job: ScanJob) -> tuple[Tensor, State]:
    """The outputs (B, T, H) and the final state, as results of a node."""
    from torch.onnx import ops

    cell, x = job.cell, job.x
    assert isinstance(cell, BuiltIn)
    kind, (batch, steps), hidden = _node_type(cell), x.shape[:2], cell.hidden_size
    lengths = None if job.lengths is None else job.lengths.to(torch.int32)
    states = [None] * len(job.state) if job.fresh else [state[None] for state in job.state]  # (1, B, H)
    inputs = [x.transpose(0, 1), *_weights(cell, kind), lengths, *states]
    if isinstance(cell, LSTMCell) and cell.weight_peephole is not None:
        inputs.append(cell.weight_peephole[_PEEPHOLES].reshape(1, -1))
    shapes = [(steps, 1, batch, hidden), *([(1, batch, hidden)] * len(job.state))]
    output, *final = ops.symbolic_multi_out(
        kind, inputs, _attributes(job, hidden), dtypes=[x.dtype] * len(shapes), shapes=shapes
    )
    output = output.squeeze(1).transpose(0, 1)
    final = [state.squeeze(0) for state in final]
    if job.lengths is not None:  # a node gives zeros for an empty sequence, which keeps its state here
        real = (job.lengths > 0)[:, None]
        final = [torch.where(real, new, old) for new, old in zip(final, job.state, strict=True)]
    return output, tuple(final)


def _node_type(cell: object) -> str:
    if isinstance(cell, LSTMCell):
        return "LSTM"
    return "GRU" if isinstance(cell, GRUCell) else "RNN"


def _weights(cell: BuiltIn, kind: str) -> list[Tensor | None]:
    """W, R and B of a node, for one direction."""
    order, hidden = _ORDER[kind], cell.hidden_size

    def ordered(weight: Tensor) -> Tensor:
        return torch.cat([weight[gate * hidden : (gate + 1) * hidden] for gate in order])

    biases = [cell.bias_ih, cell.bias_hh]
    known = next((bias for bias in biases if bias is not None), None)
    if known is None:
        return [ordered(cell.weight_ih)[None], ordered(cell.weight_hh)[None], None]
    both = torch.cat([ordered(torch.zeros_like(known) if bias is None else bias) for bias in biases])
    return [ordered(cell.weight_ih)[None], ordered(cell.weight_hh)[None], both[None]]


def _attributes(job: ScanJob, hidden: int) -> dict[str, Any]:
    names, alphas, betas = zip(*(_ACTIVATIONS[_name_of(f) or ""] for f in _functions(job.cell)), strict=True)
    found: dict[str, Any] = {"hidden_size": hidden, "direction": "reverse" if job.reverse else "forward"}
    usual = {"RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
    if names != usual[_node_type(job.cell)]:
        found["activations"] = list(names)
        for name, given in (("activation_alpha", alphas), ("activation_beta", betas)):
            if any(given):
                found[name] = list(chain.from_iterable(given))
    if isinstance(job.cell, GRUCell):
        found["linear_before_reset"] = int(job.cell.reset_after)
    return found


def _functions(cell: Any) -> list[Any]:
    """The activations of a cell in the order of a node's attribute."""
    if isinstance(cell, LSTMCell):
        return [cell.gate_activation, cell.activation, cell.output_activation]
    return [cell.gate_activation, cell.activation] if isinstance(cell, GRUCell) else [cell.activation]


def _name_of(function: object) -> str | None:
    return next((name for name, known in ACTIVATIONS.items() if known is function), None)
