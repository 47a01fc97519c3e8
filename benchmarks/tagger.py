"""Training a BiLSTM tagger, words a second, against flair's SequenceTagger.

    python benchmarks/tagger.py --flair /path/to/flair-venv/bin/python [--train FILE] [--rounds 5] [--threads 1]

Both sides have the same sentences (UD English EWT if UNROLLED_DATA holds it, else Python's source) in the same batches
of 32; the same words, letters and sizes (word vectors of 100, 25 + 25 units over letters of 25, one BiLSTM of 2 × 256);
AdamW and clipping. Blocks of batches take turns. Ours is the whole update of `unrolled train`, including batches made
from text; flair's is its `forward_loss`, backward and step, on prepared sentences. flair needs an environment of its
own: pip install flair==0.15.1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, machine
from peer_process import Peer

from unrolled import api
from unrolled.data import RowBuckets
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.jobs import TrainingJob

SIZES = {"embedding_size": 100, "letter_size": 25, "hidden_size": 256, "dropout": 0.5}
BATCH = 32


class Ours:
    """The training loop's own updates over the same batches."""

    def __init__(self, train: str | None, *, letter_hidden: int, crf: bool, batches: int) -> None:
        config = api.configure(
            "tag",
            extra={
                "data.train": train,
                "data.lowercase": False,
                **{f"model.{name}": value for name, value in SIZES.items()},
                "model.letter_hidden": letter_hidden,
                "model.output": "crf" if crf else "softmax",
                "model.word_dropout": 0.0,
                "train.batch_size": BATCH,
                "train.epochs": 1000,
                "train.eval_every": 10**9,
                "train.lr": 1e-3,
                "train.schedule": "constant",
                "train.device": "cpu",
            },
        )
        job = TrainingJob(config)
        self.trainer, self.size = job.trainer(), job.model.num_parameters
        buckets = self.trainer.batches
        assert isinstance(buckets, RowBuckets)
        self.assets = job.assets
        self.batches: list[list[Sentence]] = [
            [job.data.train[i] for i in buckets.rows(index)] for index in range(batches)
        ]
        flat = [sentence for batch in self.batches for sentence in batch]
        self.trainer.batches = _Fixed(self.batches, job.assets)
        self.words = sum(map(len, flat))

    def block(self) -> dict[str, Any]:
        began, total = time.perf_counter(), 0.0
        for _ in self.batches:
            info = self.trainer.update()
            total += info.loss * info.tokens
        return {"seconds": time.perf_counter() - began, "words": self.words, "loss": total / self.words}


class _Fixed:
    """The same batches in every epoch, made from text each time."""

    def __init__(self, batches: list[list[Sentence]], assets: Any) -> None:
        self.batches, self.assets = batches, assets

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.assets.collate(self.batches[index])

    def order(self, epoch: int) -> None:
        pass


def compare(
    python: str, train: str | None, *, letter_hidden: int, crf: bool, batches: int, rounds: int, threads: int
) -> dict[str, Any]:
    ours = Ours(train, letter_hidden=letter_hidden, crf=crf, batches=batches)
    job = {
        **SIZES,
        "letter_hidden": letter_hidden,
        "crf": crf,
        "lr": 1e-3,
        "threads": threads,
        "words": list(ours.assets.words.vocabulary.tokens[1:]),
        "letters": list(ours.assets.words.letters.tokens[1:]),
        "tags": list(ours.assets.tags.tokens),
        "batches": [[(s.words, s.tags) for s in batch] for batch in ours.batches],
    }
    flair = Peer(python, "tagger_flair.py", "flair", job)
    turns = [(ours.block(), flair.ask("go")) for _ in range(rounds + 1)]
    flair.close()
    for side, name in enumerate(("ours", "flair")):
        losses = [turn[side]["loss"] for turn in turns]
        assert min(losses[1:]) < losses[0], f"{name} does not learn: {losses}"
    ratios = [other["seconds"] / one["seconds"] for one, other in turns[1:]]  # the first is not counted
    ours_best, flair_best = (max(turn[side]["words"] / turn[side]["seconds"] for turn in turns[1:]) for side in (0, 1))
    return {
        "letters": bool(letter_hidden),
        "output": "crf" if crf else "softmax",
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "words_per_second": round(ours_best),
        "flair_words_per_second": round(flair_best),
        "parameters": ours.size,
        "flair_parameters": flair.about["parameters"],
        "flair": flair.about["flair"],
    }


def _ewt() -> str | None:
    path = Path(os.environ.get("UNROLLED_DATA", ""), "ud_english_ewt", "en_ewt-ud-train.conllu.gz")
    return str(path) if path.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flair", required=True, help="the Python of an environment with flair 0.15")
    parser.add_argument("--train", default=_ewt(), help="sentences with tags")
    parser.add_argument("--batches", type=int, default=10, help="in a block")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "tagger.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for letter_hidden in (25, 0):
        for crf in (True, False):
            sizes = {"batches": options.batches, "rounds": options.rounds, "threads": options.threads}
            row = compare(options.flair, options.train, letter_hidden=letter_hidden, crf=crf, **sizes)
            rows.append(row)
            print(
                f"{'words + letters' if row['letters'] else 'words':<16} {row['output']:<8} "
                f"{row['words_per_second']:8,.0f} words/s, flair {row['flair_words_per_second']:8,.0f}: "
                f"{row['ratio']:.1f}× ({min(row['ratios'])}–{max(row['ratios'])})"
            )
    data = Path(options.train).name if options.train else "the source of Python's own library"
    options.json.write_text(json.dumps({"machine": machine(), "data": data, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
