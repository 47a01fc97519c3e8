"""A recurrence as one ONNX node: its weights and attributes, and the recording of torch.onnx.export(dynamo=True).

The node takes any batch and any number of steps. Its numbers are computed where the ONNX model runs. `unrolled export`
writes the same nodes.
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
    kind = node_type(job.cell)
    for option, used in {"zoneout": job.keep is not None, "resets": job.resets is not None}.items():
        if used:
            return f"an ONNX {kind} node has no {option}"
    return cell_refusal(job.cell)


def cell_refusal(cell: object) -> str | None:
    """The reason why no ONNX node has the cell, or None."""
    if not isinstance(cell, (RNNCell, LSTMCell, GRUCell)):
        return f"ONNX has no cell {type(cell).__name__}"
    kind = node_type(cell)
    absent = {
        "layer norm": any(getattr(cell, name, None) is not None for name in ("norm_ih", "norm_hh", "norm_c")),
        "projection": getattr(cell, "weight_hr", None) is not None,
        "variational dropout inside the recurrence": cell.hidden_mask is not None,
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
    kind, (batch, steps), hidden = node_type(cell), x.shape[:2], cell.hidden_size
    lengths = None if job.lengths is None else job.lengths.to(torch.int32)
    states = [None] * len(job.state) if job.fresh else [state[None] for state in job.state]  # (1, B, H)
    inputs = [x.transpose(0, 1), *node_weights(cell), lengths, *states]
    if (peepholes := node_peepholes(cell)) is not None:
        inputs.append(peepholes)
    attributes = {"direction": "reverse" if job.reverse else "forward", **node_attributes(cell)}
    shapes = [(steps, 1, batch, hidden), *([(1, batch, hidden)] * len(job.state))]
    output, *final = ops.symbolic_multi_out(kind, inputs, attributes, dtypes=[x.dtype] * len(shapes), shapes=shapes)
    output = output.squeeze(1).transpose(0, 1)
    final = [state.squeeze(0) for state in final]
    if job.lengths is not None:  # a node gives zeros for an empty sequence, which keeps its state here
        real = (job.lengths > 0)[:, None]
        final = [torch.where(real, new, old) for new, old in zip(final, job.state, strict=True)]
    return output, tuple(final)


def node_type(cell: object) -> str:
    """The ONNX node of a cell."""
    if isinstance(cell, LSTMCell):
        return "LSTM"
    return "GRU" if isinstance(cell, GRUCell) else "RNN"


def node_weights(cell: BuiltIn) -> list[Tensor | None]:
    """W, R and B of a node for one direction, (1, …) each."""
    order, hidden = _ORDER[node_type(cell)], cell.hidden_size

    def ordered(weight: Tensor) -> Tensor:
        return torch.cat([weight[gate * hidden : (gate + 1) * hidden] for gate in order])

    biases = [cell.bias_ih, cell.bias_hh]
    known = next((bias for bias in biases if bias is not None), None)
    if known is None:
        return [ordered(cell.weight_ih)[None], ordered(cell.weight_hh)[None], None]
    both = torch.cat([ordered(torch.zeros_like(known) if bias is None else bias) for bias in biases])
    return [ordered(cell.weight_ih)[None], ordered(cell.weight_hh)[None], both[None]]


def node_peepholes(cell: BuiltIn) -> Tensor | None:
    """P of a node for one direction, (1, 3·H), if the cell has peepholes."""
    if not isinstance(cell, LSTMCell) or cell.weight_peephole is None:
        return None
    return cell.weight_peephole[_PEEPHOLES].reshape(1, -1)


def node_attributes(cell: BuiltIn, directions: int = 1) -> dict[str, Any]:
    """Size, activations for all directions unless they are the usual ones, and a GRU's place of the reset gate."""
    names, alphas, betas = zip(*(_ACTIVATIONS[_name_of(f) or ""] for f in _functions(cell)), strict=True)
    found: dict[str, Any] = {"hidden_size": cell.hidden_size}
    usual = {"RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
    if names != usual[node_type(cell)]:
        found["activations"] = list(names) * directions
        for name, given in (("activation_alpha", alphas), ("activation_beta", betas)):
            if any(given):  # only activations that have constants take them, in order
                found[name] = list(chain.from_iterable(given)) * directions
    if isinstance(cell, GRUCell):
        found["linear_before_reset"] = int(cell.reset_after)
    return found


def _functions(cell: Any) -> list[Any]:
    """The activations of a cell in the order of a node's attribute."""
    if isinstance(cell, LSTMCell):
        return [cell.gate_activation, cell.activation, cell.output_activation]
    return [cell.gate_activation, cell.activation] if isinstance(cell, GRUCell) else [cell.activation]


def _name_of(function: object) -> str | None:
    return next((name for name, known in ACTIVATIONS.items() if known is function), None)
