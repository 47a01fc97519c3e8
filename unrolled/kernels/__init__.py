"""The numeric engines: `recurrence`, `attention`, `ctc`, `vocabulary`, each a `reference` beside faster engines.

Names load at first use: the C++ core, `_native`, also serves searches without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

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

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.kernels.recurrence.scan": "NOT_BUILT ENGINES Choice check_engine choose make_job run_job "
        "run_job_traced run_jobs scan scan_traced",
        "unrolled.kernels.recurrence.scan_job": "Keep ScanJob",
    },
)
