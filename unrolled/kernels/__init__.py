"""The numeric engines: `recurrence`, `attention`, `ctc`, `vocabulary`, each a `reference` beside faster engines.

Names load at first use: the C++ core, `_native`, also serves searches without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unrolled.kernels.engine_choice import NOT_BUILT, Choice
    from unrolled.kernels.recurrence.scan import (
        ENGINES,
        check_engine,
        choose,
        make_job,
        run_job,
        run_job_traced,
        run_jobs,
        scan,
        scan_traced,
    )
    from unrolled.kernels.recurrence.scan_job import Keep, ScanJob

__all__ = [
    "ENGINES",
    "NOT_BUILT",
    "Choice",
    "Keep",
    "ScanJob",
    "check_engine",
    "choose",
    "make_job",
    "run_job",
    "run_job_traced",
    "run_jobs",
    "scan",
    "scan_traced",
]


def __getattr__(name: str) -> Any:
    if name in ("Keep", "ScanJob"):
        return getattr(importlib.import_module("unrolled.kernels.recurrence.scan_job"), name)
    if name in __all__:  # NOT_BUILT is filled where the engines are found
        return getattr(importlib.import_module("unrolled.kernels.recurrence.scan"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
