"""Our side of `translate.py`: the training loop's own updates over given batches, and the task's own search."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from clocks import CLOCKS

from unrolled import api
from unrolled.data import RowBuckets
from unrolled.data.batching.buckets import in_tensors
from unrolled.jobs import TrainingJob
from unrolled.tasks.shared.writing import WritingOptions
from unrolled.tasks.translate.batches import PairTable
from unrolled.tasks.translate.predict import translate

SIZES = {"embedding_size": 256, "encoder_size": 256, "encoder_layers": 2, "decoder_size": 512, "dropout": 0.2}
BATCH, BEAM, TOKENS = 64, 5, 14
PRECISIONS = ("fp32", "bf16")


class Ours:
    """The training loop's own updates over the same batches."""

    def __init__(self, data: Path, batches: int, clock: str, **more: Any) -> None:
        self.clock = CLOCKS[clock]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.tsv"
            columns = [(data / "multi30k" / f"train.{side}").read_text().split("\n") for side in ("de", "en")]
            path.write_text(
                "".join(f"{' '.join(s.split())}\t{' '.join(t.split())}\n" for s, t in zip(*columns, strict=True) if s)
            )
            job = TrainingJob(api.configure("translate", extra={**settings(path), **more}))
        self.model, self.trainer = job.model, job.trainer()
        buckets = self.trainer.batches
        assert isinstance(buckets, RowBuckets)
        rows = [buckets.rows(index) for index in range(batches)]
        self.pairs: list[list[Any]] = [[buckets.examples[i] for i in some] for some in rows]
        chosen = [pair for batch in self.pairs for pair in batch]
        lengths = [max(len(s), len(t)) + 1 for s, t in chosen]
        self.trainer.batches = RowBuckets(
            chosen, lengths, in_tensors(PairTable(job.assets, chosen).batch), batch_size=BATCH, seed=0
        )
        self.tokens = sum(len(target) + 1 for _, target in chosen)
        self.texts = [self.model.assets.source.text(source.tolist()) for source, _ in chosen]

    def train(self) -> dict[str, float]:
        began, total = self.clock(), 0.0
        self.model.network.train()
        for _ in self.pairs:
            info = self.trainer.update()
            total += info.loss * info.tokens
        return {"seconds": self.clock() - began, "tokens": self.tokens, "loss": total / self.tokens}

    def translate(self, precision: str) -> dict[str, float]:
        options = WritingOptions(
            beam=BEAM,
            search_stop="enough",
            unknown="keep",
            precision=precision,
            min_tokens=TOKENS - 1,
            max_tokens=TOKENS,
        )
        began = self.clock()
        outputs = translate(self.model, self.texts, options)
        return {"seconds": self.clock() - began, "sentences": len(outputs)}


def settings(path: Path) -> dict[str, Any]:
    return {
        "data.train": str(path),
        "data.level": "word",
        "data.min_count": 2,
        "data.lowercase": True,
        "model.tied": False,
        "model.embedding_size": SIZES["embedding_size"],
        "model.encoder.num_layers": SIZES["encoder_layers"],
        "model.encoder.hidden_size": SIZES["encoder_size"],
        "model.decoder.hidden_size": SIZES["decoder_size"],
        "model.decoder.attention": "luong",
        "model.decoder.score": "additive",
        "model.encoder.dropout": SIZES["dropout"],
        "model.decoder.dropout": SIZES["dropout"],
        "train.batch_size": BATCH,
        "train.label_smoothing": 0.0,
        "train.average": 0.0,
        "train.lr": 1e-3,
        "train.warmup_steps": 0,
        "train.schedule": "constant",
        "train.epochs": 1000,
        "train.eval_every": 10**9,
        "train.device": "cpu",
    }
