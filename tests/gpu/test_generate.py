"""Language models on a GPU: they train, write there what they write on the CPU, and score the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from unrolled import api

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12)) + "\n"
KINDS: dict[str, dict[str, Any]] = {
    "transformer": {"model.kind": "transformer", "model.positions": "learned", "train.precision": "bf16"},
    "awd": {
        "model.num_layers": 2,
        "model.last_size": 16,
        "model.embedding_size": 16,
        "model.tied": True,
        "model.same_mask": True,
        "model.word_dropout": 0.1,
        "model.dropconnect": 0.5,
        "model.activation_penalty": 2.0,
        "model.change_penalty": 1.0,
        "train.vary_k1": True,
        "train.optimizer": "sgd",
        "train.lr": 3.0,
        "train.average_stalled": 1,
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_and_a_cpu_agree(kind: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    keys: dict[str, Any] = {
        "model.hidden_size": 32,
        "train.device": "cuda",
        "train.batch_size": 8,
        "train.k1": 20,
        "train.max_steps": 40,
        "train.eval_every": 5,
        **KINDS[kind],
    }
    api.train("generate", train=tmp_path / "book.txt", out=tmp_path / "run", set=keys, quiet=True)
    cpu, gpu = (api.load(tmp_path / "run", device=device) for device in ("cpu", "cuda"))
    nats = [model.evaluate(tmp_path / "book.txt")["nats_per_token"] for model in (cpu, gpu)]
    assert nats[1] == pytest.approx(nats[0], rel=1e-3)
    prompts = ["3 and ", "", "11 and 4 make 15\n" * 3]
    texts = gpu.predict(prompts, max_tokens=50, seed=0)
    assert [len(text) for text in texts] == [50, 50, 50]
