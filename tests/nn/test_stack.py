"""A layer tells its engine when the state is zero because none was given."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import unrolled
from unrolled.cells import State
from unrolled.kernels.recurrence import reference
from unrolled.kernels.recurrence.scan_job import ScanJob


@pytest.mark.parametrize(
    ("learned", "given", "fresh"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_only_a_state_that_was_not_given_is_fresh(
    learned: bool, given: bool, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ScanJob] = []
    run = reference.run

    def watched(job: ScanJob) -> tuple[Tensor, State]:
        seen.append(job)
        return run(job)

    monkeypatch.setattr(reference, "run", watched)
    layer = unrolled.GRU(3, 4, num_layers=2, learned_state=learned, backend="reference")
    layer(torch.randn(5, 2, 3), torch.zeros(2, 2, 4) if given else None)
    assert [job.fresh for job in seen] == [fresh, fresh]
