"""Small training jobs of every task, made from data that the tests write themselves."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.tasks.recognition import words, write_recordings
from unrolled.jobs.target import configure
from unrolled.jobs.train import TrainingJob

WORDS = [f"{a}{b}{c}" for a in "bdgkl" for b in "aeiou" for c in "mnrst"]


def sentences(count: int, least: int = 3, most: int = 17) -> list[list[str]]:
    draw = random.Random(0)
    return [draw.choices(WORDS, k=draw.randint(least, most)) for _ in range(count)]


def written(task: str, folder: Path) -> Path:
    """A file of training examples for a task."""
    made = sentences(300)
    if task == "generate":
        return _text(folder / "book.txt", "\n".join(map(" ".join, made)))
    if task == "classify":
        return _text(folder / "texts.tsv", "\n".join(f"{line[0][0]}\t{' '.join(line)}" for line in made))
    if task == "tag":
        rows = ("\n".join(f"{word}\t{word[0].upper()}" for word in line) for line in made)
        return _text(folder / "tags.tsv", "\n\n".join(rows) + "\n")
    if task == "spans":
        rows = ("\n".join(f"{word}\t{'B-X' if word[0] == 'b' else 'O'}" for word in line) for line in made)
        return _text(folder / "spans.tsv", "\n\n".join(rows) + "\n")
    if task == "translate":
        return _text(folder / "pairs.tsv", "\n".join(f"{' '.join(line)}\t{' '.join(line[::-1])}" for line in made))
    if task == "recognize":
        return write_recordings(folder, words(60))
    assert task == "forecast"
    time = np.arange(4000)
    values = np.sin(time / 9) + 0.3 * np.sin(time / 31) + 0.05 * np.random.default_rng(0).normal(size=len(time))
    return _text(folder / "series.csv", "y\n" + "\n".join(f"{value:.5f}" for value in values))


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def job(task: str, folder: Path, changes: Mapping[str, Any]) -> TrainingJob:
    """A job on a GPU."""
    given = {} if task == "caption" else {"data.train": str(written(task, folder))}  # it has data of its own
    extra = {**given, "train.device": "cuda", "train.max_steps": 1000, **changes}
    return TrainingJob(configure("tag" if task == "spans" else task, [], extra))
