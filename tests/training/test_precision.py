"""The precision of a run: what `auto` takes, and a GPU that lacks the one asked for."""

from __future__ import annotations

import pytest
import torch

from unrolled.errors import UserError
from unrolled.training.precision import pick_precision

GPU = torch.device("cuda")


@pytest.mark.parametrize(("has", "taken"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_where_the_gpu_computes_it(monkeypatch: pytest.MonkeyPatch, has: bool, taken: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has)
    assert pick_precision("auto", GPU) == taken
    assert pick_precision("fp16", GPU) == "fp16"


def test_a_gpu_without_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    with pytest.raises(UserError) as error:
        pick_precision("bf16", GPU)
    assert str(error.value) == (
        "train.precision=bf16, but Tesla T4 does not compute bfloat16. "
        "Use train.precision=fp16, or train.precision=fp32."
    )
