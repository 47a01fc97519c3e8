"""A tiny task for sweeps: words of vowels and words of consonants, a tenth of a second a trial."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {
    "model.hidden_size": 4,
    "model.wide": "off",  # scores are to differ
    "train.batch_size": 16,
    "train.max_steps": 8,
    "train.eval_every": 2,
    "train.threads": 1,
}
SPACES: dict[str, Any] = {"train.lr": "log(1e-3, 1e-1)", "model.cell": "choice(lstm, gru)"}


def write_words(path: Path, number: int = 60) -> Path:
    """A table of words, a few of them with the wrong label."""
    draws = random.Random(5)
    with path.open("w") as file:
        for _ in range(number):
            vowels = draws.random() < 0.5
            word = "".join(draws.choice("aeiou" if vowels else "bcdfg") for _ in range(draws.randint(2, 5)))
            file.write(f"{'vowels' if vowels == (draws.random() < 0.85) else 'others'}\t{word}\n")
    return path


def words(train: Path, out: Path, *more: str) -> list[str]:
    """The words of the command for such a sweep."""
    changes = [f"--set={key}={value}" for key, value in {**SETTINGS, **SPACES}.items()]
    return ["sweep", "classify", "--train", str(train), "--out", str(out), *changes, *more]
