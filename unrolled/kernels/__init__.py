"""The numeric engines: `recurrence`, `attention`, `ctc`, `vocabulary`, each a `reference` beside faster engines."""

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
