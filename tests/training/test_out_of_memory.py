"""A run that needs more memory than there is: the message, the way out, and the same weights after resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import unrolled
from tests.tasks.test_own import code
from unrolled.errors import UserError
from unrolled.tasks import TASKS, Task
from unrolled.tasks.own import load_task
from unrolled.training.precision import about_precision

SETTINGS = {"train.max_steps": 12, "train.eval_every": 4, "train.threads": 1, "train.batch_size": 8}
CUDA = "CUDA out of memory. Tried to allocate 20.00 MiB."


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "my_task.py").write_text(code())
    (tmp_path / "bits.txt").write_text("\n".join(f"{number:b}" for number in range(1, 90)) + "\n")
    return load_task(f"{tmp_path / 'my_task.py'}:Parity")


class Hungry:
    """A loss that runs out of memory in training, at update `at`, and later for more than two rows."""

    def __init__(self, task: Task, at: int, kind: type[Exception] = torch.OutOfMemoryError) -> None:
        self.original, self.at, self.kind, self.full = task.loss, at, kind, False

    def __call__(self, network: Any, batch: Any, state: Any, training: Any = None) -> Any:
        self.full = self.full or (training is not None and training.step == self.at)
        if self.full and len(batch.inputs) > 2:
            raise self.kind(CUDA)
        return self.original(network, batch, state, training)


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, torch.cuda.OutOfMemoryError, MemoryError])
def test_in_the_middle_of_a_run(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    unrolled.train(task, train=tmp_path / "bits.txt", out=whole, set=SETTINGS, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(task, "loss", Hungry(task, at=6, kind=kind))
        with pytest.raises(UserError) as error:
            unrolled.train(task, train=tmp_path / "bits.txt", out=stopped, set=SETTINGS, quiet=True)
    assert str(error.value) == (
        "Out of memory with train.batch_size=8. Use train.batch_size=2. Step 4 is saved. With more free memory: "
        f"unrolled train --resume {stopped}. With smaller batches, from its model: "
        f"unrolled train parity --init {stopped} --set train.batch_size=2"
    )
    unrolled.resume(stopped, task=task, quiet=True)
    for name in ("best.safetensors", "last.safetensors", "metrics.jsonl", "updates.csv"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name
    smaller = {**SETTINGS, "train.batch_size": 2, "train.max_steps": 2}
    unrolled.train(task, train=tmp_path / "bits.txt", out=tmp_path / "new", set=smaller, init=stopped, quiet=True)


def test_before_the_first_checkpoint(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "loss", Hungry(task, at=1))
    with pytest.raises(UserError) as error:
        unrolled.train(task, train=tmp_path / "bits.txt", out=tmp_path / "run", set=SETTINGS, quiet=True)
    assert str(error.value) == "Out of memory with train.batch_size=8. Use train.batch_size=2."


def test_batches_of_tokens_are_made_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = TASKS["translate"].loss

    def hungry(self: Any, network: Any, batch: Any, state: Any, training: Any = None) -> Any:
        if batch.inputs.numel() > 30:
            raise torch.OutOfMemoryError(CUDA)
        return original(self, network, batch, state, training)

    (tmp_path / "pairs.tsv").write_text("".join(f"{'a ' * n}\t{'b ' * n}\n" for n in range(1, 9)))
    monkeypatch.setattr(TASKS["translate"], "loss", hungry)
    small = {f"model.{side}.hidden_size": 8 for side in ("encoder", "decoder")}
    keys = {**small, "data.level": "word", "train.batch_tokens": 120, "train.max_steps": 2}
    with pytest.raises(UserError) as error:
        unrolled.train("translate", train=tmp_path / "pairs.tsv", out=tmp_path / "run", set=keys, quiet=True)
    assert str(error.value) == "Out of memory with train.batch_tokens=120. Use train.batch_tokens=30."


def test_other_errors_stay_as_they_are(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(task, "loss", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        unrolled.train(task, train=tmp_path / "bits.txt", out=tmp_path / "run", set=SETTINGS, quiet=True)


def test_the_doctor_says_which_precision_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert about_precision(torch.device("cpu")) == "fp32 by default: bf16 is the default on GPUs alone"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "A GPU")
    for has, expected in (
        (True, "bf16 by default: A GPU computes"),
        (False, "fp32 by default: A GPU does not compute"),
    ):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has=has, **_: has)
        assert about_precision(torch.device("cuda")) == f"{expected} bfloat16"
