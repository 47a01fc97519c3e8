"""FlashRNN (Pöppel, Beck & Hochreiter 2024, Apache-2.0), as a peer of recurrent_gpu.py: pip install flashrnn.

It compiles a kernel for each size with nvcc. It computes the recurrence alone, from products W x that it is given; ours
computes these products too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

GATES = {"LSTM": (4, 4, 4, 2), "GRU": (3, 3, 4, 1)}  # of W x, of R, of b, and states
BACKENDS = ("cuda_fused", "cuda")  # the fused one fuses the product and the cell


def missing() -> str | None:
    """The reason why it cannot be measured here, or None."""
    return None if importlib.util.find_spec("flashrnn") else "flashrnn is not installed"


def peer(kind: str, hidden: int, batch: int, steps: int, dtype: str) -> tuple[Callable[[], object], str]:
    """A training step with the full matrix, by the first backend that can be built, and the name of the backend."""
    reasons = []
    for backend in BACKENDS:
        try:
            return _made(kind, hidden, batch, steps, dtype, backend), backend
        except Exception as error:  # its builds fail in many ways
            reasons.append(f"{backend}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
    raise RuntimeError("; ".join(reasons))


def _made(kind: str, hidden: int, batch: int, steps: int, dtype: str, backend: str) -> Callable[[], object]:
    from flashrnn import flashrnn  # type: ignore[import-not-found]

    inputs, recurrent, biases, _ = GATES[kind]
    number = getattr(torch, dtype)
    given: dict[str, Any] = {"device": "cuda", "dtype": number}
    x = (0.5 * torch.randn(batch, steps, inputs, 1, hidden, **given)).requires_grad_()
    matrix = (torch.randn(recurrent, 1, hidden, hidden, **given) / hidden**0.5).requires_grad_()
    bias = torch.zeros(biases, 1, hidden, **given, requires_grad=True)

    def run(which: str, *tensors: Tensor) -> Tensor:
        kind_of_number = str(tensors[0].dtype).removeprefix("torch.")
        states: Tensor = flashrnn(*tensors, function=kind.lower(), backend=which, dtype=kind_of_number)[0]
        return states

    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    with contextlib.redirect_stdout(io.StringIO()):
        found = run(backend, x, matrix, bias)
    with torch.no_grad():  # its own reference
        exact = run("vanilla", x.float(), matrix.float(), bias.float())
    if float((found.float() - exact).abs().max()) > 0.05:
        raise RuntimeError(f"{backend} is not what its own reference computes")
    gradient = torch.randn_like(found)
    return lambda: torch.autograd.grad(run(backend, x, matrix, bias), [x, matrix, bias], gradient)
