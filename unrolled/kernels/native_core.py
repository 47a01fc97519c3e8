"""The C++ core as it was built: its instruction sets, its threads, and how it reads torch's tensors."""

from __future__ import annotations

import torch

import unrolled.kernels._native as _native  # a separate module: if it was not built, the error names it
from unrolled.errors import UserError

try:
    ISA: str = _native.isa()
except ValueError as error:
    raise UserError(str(error)) from None
ISAS: list[str] = _native.isas()
THREADING: str = _native.threading()
NARROW: bool = _native.narrow()  # this processor multiplies bfloat16
# this torch has the table through which steps read and make tensors (native/runtime/tensors.h)
TAKES_TENSORS: bool = _native.connect(torch.Tensor, getattr(torch.Tensor, "__dlpack_c_exchange_api__", None))
