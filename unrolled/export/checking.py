"""Compares exported graphs with the network on random inputs of other sizes than the recorded ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.export.graphs import GraphPlan

BATCHES = 100
LARGEST = 9  # the largest free size of a random batch
TOLERANCE = 1e-4


def session_of(data: bytes) -> Any:
    """A graph in onnxruntime, on one thread."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(
            "onnxruntime is not installed: it checks the exported graphs.",
            "Install it: pip install 'unrolled[export]'. Or leave the check out with --no-check (check=False).",
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors alone
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


@torch.no_grad()
def largest_difference(plan: GraphPlan, data: bytes, batches: int = BATCHES, seed: int = 1) -> float:
    """The largest absolute difference of any output over random ragged batches."""
    session, generator = session_of(data), torch.Generator().manual_seed(seed)
    worst = 0.0
    for _ in range(batches):
        sizes = {name: int(torch.randint(1, LARGEST + 1, (), generator=generator)) for name in plan.sizes}
        if "rows" in sizes:
            sizes["rows"] = sizes["batch"] * int(torch.randint(1, 4, (), generator=generator))
        given = plan.draw(sizes, generator)
        expected = plan.compute(*given)
        wanted = [expected] if isinstance(expected, Tensor) else expected
        found = session.run(None, {name: one.numpy() for name, one in zip(plan.inputs, given, strict=True)})
        for name, ours, theirs in zip(plan.outputs, wanted, found, strict=True):
            if tuple(ours.shape) != theirs.shape:
                raise UserError(
                    f"The graph {plan.name} gave {name} of shape {theirs.shape}, and the network {tuple(ours.shape)}.",
                    "Report it with the model's config: a size was fixed that should be free.",
                )
            if ours.numel():
                worst = max(worst, float(np.abs(ours.double().numpy() - theirs.astype(np.float64)).max()))
    return worst


def check(plan: GraphPlan, data: bytes, tolerance: float = TOLERANCE) -> float:
    """Raise unless a graph agrees with the network; the largest difference."""
    worst = largest_difference(plan, data)
    if not worst <= tolerance:
        raise UserError(
            f"The graph {plan.name} differs from the network by {worst:.1e}; allowed is {tolerance:.0e}.",
            "Nothing was written. Report it with the model's config, or export with --no-check (check=False).",
        )
    return worst
