"""Small runs of every task, which several processes make as one does; `python -m` this file makes them all."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [f"{a}{b}{c}" for a in "bdgkl" for b in "aeiou" for c in "mnrst"]
UPDATES = 50
USUAL: dict[str, Any] = {"train.max_steps": UPDATES, "train.eval_every": 25, "train.device": "cpu", "train.threads": 1}

# Dropout is off: its random numbers belong to a process. Batches of odd sizes have fewer rows for the second one, and
# the last of an epoch may have none for it.
CASES: dict[str, dict[str, Any]] = {
    "generate": {
        "model.hidden_size": 12,
        "model.dropout": 0.0,
        "model.activation_penalty": 1.0,
        "train.batch_size": 5,
        "train.k1": 8,
        "train.k2": 12,
        "train.weight_noise": 0.01,
        "train.accumulate": 2,
        "train.average": 0.9,
    },
    "classify": {
        "model.hidden_size": 8,
        "model.embedding_size": 8,
        "model.dropout": 0.0,
        "model.word_dropout": 0.0,
        "train.batch_size": 13,
        "train.class_weights": "balanced",
    },
    "tag": {
        "model.hidden_size": 8,
        "model.embedding_size": 8,
        "model.letter_size": 4,
        "model.letter_hidden": 4,
        "model.dropout": 0.0,
        "model.word_dropout": 0.0,
        "train.batch_size": 7,
        "train.average_last": 2,
    },
    "recognize": {
        "model.hidden_size": 12,
        "model.num_layers": 1,
        "model.channels": [4],
        "model.dropout": 0.0,
        "data.bands": 12,
        "train.batch_size": 5,
        "train.augment": True,
    },
    "translate": {
        "model.embedding_size": 8,
        "model.encoder.hidden_size": 8,
        "model.encoder.dropout": 0.0,
        "model.decoder.hidden_size": 8,
        "model.decoder.dropout": 0.0,
        "model.decoder.attention": "bahdanau",
        "train.batch_tokens": 120,
        "train.clip_value": 0.05,
    },
    "forecast": {
        "model.hidden_size": 8,
        "model.dropout": 0.0,
        "train.batch_size": 3,
        "train.window": 20,
        "train.free_running": True,
    },
    "caption": {
        "model.embedding_size": 8,
        "model.encoder.dropout": 0.0,
        "model.decoder.hidden_size": 8,
        "model.decoder.dropout": 0.0,
        "train.batch_size": 9,
        "train.valid_free": 10,
        # Small steps: units near a ReLU's edge amplify rounding. One process whose weights are nudged in their last
        # bit ends 5e-5 away at a rate of 0.02.
        "train.optimizer": "sgd",
        "train.momentum": 0.9,
        "train.lr": 0.002,
    },
}


def write_data(folder: Path) -> None:
    """A file of examples for each task."""
    from tests.tasks.caption.conftest import write as write_scenes
    from tests.tasks.recognition import words, write_lines

    draw = random.Random(0)
    made = [draw.choices(WORDS, k=draw.randint(2, 9)) for _ in range(105)]
    (folder / "generate").write_text("\n".join(map(" ".join, made)))
    (folder / "classify.tsv").write_text("\n".join(f"{line[0][0]}\t{' '.join(line)}" for line in made))
    rows = ("\n".join(f"{word}\t{'B-X' if word[0] == 'b' else 'O'}" for word in line) for line in made)
    (folder / "tag").write_text("\n\n".join(rows) + "\n")
    (folder / "translate.tsv").write_text("\n".join(f"{' '.join(x[:3])}\t{' '.join(x[2::-1])}" for x in made))
    values = np.sin(np.arange(400) / 9) + 0.05 * np.random.default_rng(0).normal(size=400)
    (folder / "forecast.csv").write_text("y\n" + "\n".join(f"{value:.5f}" for value in values))
    write_lines(folder / "recognize", words(30))
    write_scenes(folder / "caption")


def file_of(task: str, folder: Path) -> Path:
    """The file that `write_data` made for a task."""
    found = [folder / task, *folder.glob(f"{task}.*"), *(folder / task).glob("*.tsv"), *(folder / task).glob("*.jsonl")]
    return next(path for path in found if path.is_file())


def settings_of(task: str, folder: Path) -> dict[str, Any]:
    from tests.fitting import fitting

    facts = {"caption": {"pictures": "pictures"}, "recognize": {"data.kind": "line"}}.get(task, {})
    images = {"data.images": str(folder / "caption" / "images")} if task == "caption" else {}
    return fitting(task, {**USUAL, **CASES[task], **images}, **facts)


def train(data: Path, out: Path, tasks: list[str] | None = None) -> None:
    """Train every task."""
    from unrolled import api

    for task in tasks or CASES:
        api.train(task, train=file_of(task, data), out=out / task, set=settings_of(task, data), quiet=True)


if __name__ == "__main__":
    data, out, *rest = sys.argv[1:]
    train(Path(data), Path(out), rest or None)
    print(json.dumps("done"))
