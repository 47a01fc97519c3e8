"""On a GPU: whole updates in CUDA graphs equal those without, bit for bit. Skipped where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.gpu.updates import job
from unrolled import api
from unrolled.errors import UserError
from unrolled.jobs.train import TrainingJob

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

RECOGNIZE = {"model.num_layers": 1, "model.channels": [8], "data.bands": 20, "train.batch_size": 8}
SMALL: dict[str, Any] = {"model.hidden_size": 32}
FEW = {"train.k1": 50}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "generate, 6,400 tokens": ("generate", {**SMALL, "train.k1": 200}),
    "generate": ("generate", {**SMALL, **FEW, "model.dropout": 0.2}),
    "generate, sgd with momentum": ("generate", {**SMALL, **FEW, "train.optimizer": "sgd", "train.momentum": 0.9}),
    "generate, rmsprop": ("generate", {**SMALL, **FEW, "train.optimizer": "rmsprop", "train.momentum": 0.5}),
    "generate, adam, clip_value": (
        "generate",
        {**SMALL, **FEW, "train.optimizer": "adam", "train.clip_value": 1e-2},
    ),
    "generate, fp16": ("generate", {**SMALL, **FEW, "train.precision": "fp16"}),
    "generate, k2 below k1": ("generate", {**SMALL, **FEW, "train.k1": 32, "train.k2": 10}),
    "generate, varied k1": ("generate", {**SMALL, **FEW, "train.vary_k1": True, "train.k1": 20}),
    "generate, accumulated": ("generate", {**SMALL, **FEW, "train.accumulate": 2}),
    "generate, noise": ("generate", {**SMALL, **FEW, "train.weight_noise": 0.01}),
    "generate, averaged": ("generate", {**SMALL, **FEW, "train.average": 0.9}),
    "generate, DropConnect": ("generate", {**SMALL, **FEW, "model.dropconnect": 0.3}),
    "generate, transformer": (
        "generate",
        {**SMALL, "model.kind": "transformer", "model.heads": 2, "train.k1": 32},
    ),
    "generate, gru": ("generate", {**SMALL, **FEW, "model.cell": "gru"}),
    "classify": ("classify", SMALL),
    "classify, transformer": ("classify", {**SMALL, "model.kind": "transformer", "model.heads": 2}),
    "tag": ("tag", SMALL),
    "tag, crf": ("spans", SMALL),
    "forecast": ("forecast", {**SMALL, "data.target_columns": ["y"]}),
    "recognize": ("recognize", {**RECOGNIZE, "model.hidden_size": 24}),
    "recognize, transformer": ("recognize", {**RECOGNIZE, "model.kind": "transformer"}),
    "caption": ("caption", {"model.decoder.hidden_size": 32}),
    "translate, transformer": (
        "translate",
        {"model.kind": "transformer", "model.encoder.hidden_size": 32, "model.encoder.heads": 2, "data.level": "word"},
    ),
    "translate, tokens": (
        "translate",
        {
            "data.level": "word",
            "train.batch_tokens": 400,
            "model.embedding_size": 16,
            "model.encoder.hidden_size": 16,
            "model.decoder.hidden_size": 16,
        },
    ),
}


def weights_after(made: TrainingJob, updates: int) -> tuple[list[Tensor], list[float], Any]:
    trainer = made.trainer()
    torch.manual_seed(1)
    losses = []
    for _ in range(updates):
        trainer.launch()
        losses += [info.loss for info in trainer.flush()]
    return [p.detach().clone() for p in made.model.network.parameters()], losses, trainer


@pytest.mark.parametrize("case", CASES)
def test_graphs_change_no_bit(case: str, tmp_path: Path) -> None:
    task, changes = CASES[case]
    plain, without, _ = weights_after(job(task, tmp_path, {**changes, "train.graph": "off"}), 40)
    weights, losses, trainer = weights_after(job(task, tmp_path, {**changes, "train.graph": "on"}), 40)
    assert trainer.updater.graphs.count > 0
    assert losses == without
    assert all(torch.equal(a, b) for a, b in zip(weights, plain, strict=True))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train.teacher_forcing": "linear"}, "train.teacher_forcing=linear changes from update to update"),
        ({"train.k1": 10, "train.k2": 20}, "train.k2=20 reaches back beyond train.k1=10"),
        (
            {"train.optimizer": "rmsprop", "train.precision": "fp16"},
            "train.optimizer=rmsprop reads values back in fp16",
        ),
    ],
)
def test_a_reason_is_given(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    _, losses, trainer = weights_after(job("generate", tmp_path, {**SMALL, **changes}), 4)
    assert trainer.eager_reason == reason
    assert len(losses) == 4


def test_on_is_an_error_where_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be recorded in a CUDA graph: train.teacher_forcing=never"):
        job("generate", tmp_path, {**SMALL, "train.graph": "on", "train.teacher_forcing": "never"}).trainer()


def test_a_network_that_reads_a_value_runs_without_a_graph(tmp_path: Path) -> None:
    made = job("generate", tmp_path, SMALL)
    network: Any = made.model.network
    network.embedding.register_forward_hook(lambda module, inputs, output: float(output.sum()) * 0 + output)
    _, losses, trainer = weights_after(made, 4)
    assert "test_captured_update.py" in (trainer.eager_reason or "")
    assert "waits for the GPU" in (trainer.eager_reason or "")
    assert len(losses) == 4


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop"])
def test_a_non_finite_update_is_skipped_and_named(optimizer: str, tmp_path: Path) -> None:
    made = job("generate", tmp_path, {**SMALL, "train.optimizer": optimizer})
    trainer = made.trainer()
    for _ in range(6):
        trainer.launch()
    trainer.flush()
    network: Any = made.model.network
    before = {name: value.clone() for name, value in network.named_parameters()}
    network.scores.bias.data[0] = float("nan")
    for _ in range(3):
        trainer.launch()
    with pytest.raises(UserError, match=r"non-finite at step 6.*the gradient of embedding.weight"):
        trainer.flush()
    assert all(torch.equal(v, before[k]) for k, v in network.named_parameters() if k != "scores.bias")


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop", "sgd"])
def test_resume_is_exact(optimizer: str, tmp_path: Path) -> None:
    made = {"model.hidden_size": 32, "train.optimizer": optimizer, "train.device": "cuda", "train.eval_every": 10}
    made |= {"train.patience": 0, **FEW}
    text = tmp_path / "book.txt"
    text.write_text("\n".join(f"{a} and {b} make {a + b}" for a in range(30) for b in range(30)))
    whole = api.train("generate", train=text, out=tmp_path / "a", set={**made, "train.max_steps": 40}, quiet=True)
    changes = {**made, "train.max_steps": 20, "train.schedule": "constant"}
    api.train("generate", train=text, out=tmp_path / "b", set=changes, quiet=True)
    again = api.resume(tmp_path / "b", set={"train.max_steps": 40}, quiet=True)
    longer = api.train("generate", train=text, out=tmp_path / "c", set={**changes, "train.max_steps": 40}, quiet=True)
    assert whole.device.type == "cuda"
    for a, b in zip(again.network.parameters(), longer.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert (tmp_path / "b" / "updates.csv").read_text() == (tmp_path / "c" / "updates.csv").read_text()


def test_a_fresh_process_records_its_updates(tmp_path: Path) -> None:
    """Kernels are compiled and loaded in the first update: that is no reason to run without graphs."""
    script = tmp_path / "train.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tests.gpu.updates import job\n"
        f"trainer = job('recognize', Path({str(tmp_path)!r}), {{'train.batch_size': 8}}).trainer()\n"
        "for _ in range(12):\n"
        "    trainer.update()\n"
        "print(trainer.eager_reason, trainer.updater.graphs.count)\n"
    )
    here = {**os.environ, "UNROLLED_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reason, count = done.stdout.split()[-2:]
    assert reason == "None"
    assert int(count) > 0
    assert "prototype" not in done.stderr
