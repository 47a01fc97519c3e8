"""The C++ core for searches, which need no torch: the module where it was built, and the number of threads."""

from __future__ import annotations

import os
import sys
from typing import Any

NATIVE: Any
try:
    from unrolled.kernels import _native as NATIVE
except ImportError:
    NATIVE = None


def threads() -> int:
    """The threads of a computation: torch's number where torch is loaded, else a thread for each processor."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
