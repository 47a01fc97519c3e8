"""Training an attention model, target tokens a second, and beam search, sentences a second, against joeynmt.

    python benchmarks/translate.py --joeynmt /path/to/joeynmt-venv/bin/python --data FOLDER [--rounds 4] [--threads 2]

The model: BiLSTM 2×256, LSTM 512 with additive attention and input feeding, embeddings of 256, Multi30k words (de → en,
seen twice or more), batches of 64 pairs. Both sides train on the same batches, taking turns, one block each; the best
block of each counts. Ours is the training loop's own update, batches made from ids included; joeynmt's is its loss,
backward and step on batches that are ready. Both then translate the same sentences with a beam of 5, after as much
training, and no more than 30 tokens each. joeynmt needs an environment of its own: pip install joeynmt==2.3.0
importlib_metadata.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, machine, row, show
from peer_process import Peer

from unrolled import api
from unrolled.data import Buckets
from unrolled.tasks.translate_run import translate
from unrolled.tasks.writing import RunOptions

SIZES = {"embedding_size": 256, "encoder_size": 256, "encoder_layers": 2, "decoder_size": 512, "dropout": 0.2}
BATCH, BEAM, MOST = 64, 5, 30


class Ours:
    """The training loop's own updates over the same batches."""

    def __init__(self, data: Path, batches: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.tsv"
            columns = [(data / "multi30k" / f"train.{side}").read_text().split("\n") for side in ("de", "en")]
            path.write_text(
                "".join(f"{' '.join(s.split())}\t{' '.join(t.split())}\n" for s, t in zip(*columns, strict=True) if s)
            )
            job = api.Job(api.configure("translate", extra=settings(path)))
        self.model, self.trainer = job.model, job.trainer()
        buckets = self.trainer.batches
        assert isinstance(buckets, Buckets)
        rows = [buckets.rows(index) for index in range(batches)]
        self.pairs: list[list[Any]] = [[buckets.examples[i] for i in some] for some in rows]
        chosen = [pair for batch in self.pairs for pair in batch]
        lengths = [max(len(s), len(t)) + 1 for s, t in chosen]
        self.trainer.batches = Buckets(chosen, lengths, buckets.collate, batch_size=BATCH, seed=0)
        self.tokens = sum(len(target) + 1 for _, target in chosen)
        self.texts = [self.model.assets.source.text(source.tolist()) for source, _ in chosen]

    def train(self) -> dict[str, float]:
        began, total = time.perf_counter(), 0.0
        self.model.network.train()
        for _ in self.pairs:
            info = self.trainer.update()
            total += info.loss * info.tokens
        return {"seconds": time.perf_counter() - began, "tokens": self.tokens, "loss": total / self.tokens}

    def translate(self) -> dict[str, float]:
        options = RunOptions(beam=BEAM, max_tokens=MOST, search_stop="enough", unknown="keep")
        began = time.perf_counter()
        outputs = translate(self.model, self.texts, options)
        words = sum(len(output.target_tokens) for output in outputs)
        return {"seconds": time.perf_counter() - began, "sentences": len(outputs), "words": words}


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


def theirs(ids: Any, end: int) -> list[int]:
    """Our ids as joeynmt's, which has a padding token at 1; with the end token."""
    return [i + 1 if i else 0 for i in [*ids.tolist(), end]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joeynmt", required=True, help="the Python of an environment with joeynmt 2.3")
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"), required=False)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    torch.set_num_threads(options.threads)
    ours = Ours(Path(options.data), options.batches)
    assets = ours.model.assets
    job = {
        **SIZES,
        "vocabularies": [assets.source_size + 1, assets.target_size + 1],
        "lr": 1e-3,
        "beam": BEAM,
        "max_tokens": MOST,
        "threads": options.threads,
        "batches": [
            [[theirs(s, assets.source.end), theirs(t, assets.target.end)] for s, t in batch] for batch in ours.pairs
        ],
    }
    joeynmt = Peer(options.joeynmt, "translate_joeynmt.py", "joeynmt.search", job)
    turns = [(ours.train(), joeynmt.ask("train")) for _ in range(options.rounds + 1)]
    searches = [(ours.translate(), joeynmt.ask("search")) for _ in range(2)]
    joeynmt.close()
    report(ours, joeynmt.about, turns, searches)


def report(ours: Ours, about: dict[str, Any], turns: list[Any], searches: list[Any]) -> None:
    speed = [max(turn[side]["tokens"] / turn[side]["seconds"] for turn in turns[1:]) for side in (0, 1)]
    search = [max(turn[side]["sentences"] / turn[side]["seconds"] for turn in searches) for side in (0, 1)]
    lengths = [searches[-1][side]["words"] / searches[-1][side]["sentences"] for side in (0, 1)]
    losses = [turns[-1][side]["loss"] for side in (0, 1)]
    rows = [
        row(
            "training, target tokens/s",
            speed[0] / speed[1],
            "3×",
            "5×",
            f"{speed[0]:,.0f} : {speed[1]:,.0f}, loss {losses[0]:.2f} : {losses[1]:.2f}",
        ),
        row(
            "beam 5, sentences/s",
            search[0] / search[1],
            "3×",
            "8×",
            f"{search[0]:,.1f} : {search[1]:,.1f}, {lengths[0]:.1f} : {lengths[1]:.1f} tokens each",
        ),
    ]
    show("against joeynmt", rows)
    facts = {"parameters": ours.model.num_parameters, "joeynmt": about, "machine": machine(), "rows": rows}
    (RESULTS / "translate.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
