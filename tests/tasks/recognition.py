"""Things to recognise that the tests make themselves: letters that are tones, marks in a line, or frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from PIL import Image

RATE = 8000
TONES = {"a": 500.0, "b": 1100.0, "c": 2000.0}
SMALL: dict[str, Any] = {
    "model.hidden_size": 24,
    "model.num_layers": 1,
    "model.channels": [8],
    "model.dropout": 0.0,
    "data.bands": 20,
    "data.straighten": False,
    "train.batch_size": 8,
    "train.max_steps": 150,
    "train.eval_every": 75,
    "train.warmup_steps": 10,
    "train.lr": 0.02,
    "train.average": 0.9,
    "train.augment": False,
    "train.device": "cpu",
}


def words(number: int, seed: int = 0) -> list[str]:
    """Texts of one to three words of a, b and c."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        parts = ["".join(random.choice(list("abc"), random.integers(1, 4))) for _ in range(random.integers(1, 4))]
        found.append(" ".join(parts))
    return found


def tone(text: str, rate: int = RATE, seed: int = 0) -> NDArray[np.float32]:
    """A tenth of a second for each letter, gaps between, longer ones for blanks, and a little noise."""
    random = np.random.default_rng(seed)
    parts = [np.zeros(rate // 20)]
    for letter in text:
        time = np.arange(rate // 10) / rate
        sound = 0.3 * np.sin(2 * np.pi * TONES[letter] * time) if letter != " " else np.zeros(rate // 20)
        parts += [sound, np.zeros(rate // 20)]
    samples = np.concatenate(parts)
    return (samples + 0.003 * random.standard_normal(len(samples))).astype(np.float32)


def marks(text: str, height: int = 16) -> NDArray[np.uint8]:
    """A picture: a bar at the top, in the middle or at the bottom for each letter."""
    parts = [np.zeros((height, 4), dtype=np.uint8)]
    for letter in text:
        piece = np.zeros((height, 10), dtype=np.uint8)
        if letter != " ":
            row = {"a": 1, "b": height // 2 - 2, "c": height - 5}[letter]
            piece[row : row + 4, :6] = 255
        parts.append(piece)
    return 255 - np.concatenate(parts, axis=1)


def frames(text: str, seed: int = 0) -> NDArray[np.float32]:
    """Four frames for each letter, in one of four places, and two of nothing after it."""
    random = np.random.default_rng(seed)
    rows = []
    for letter in text:
        one = np.zeros((6, 4), dtype=np.float32)
        one[:4, "abc ".index(letter)] = 1
        rows.append(one)
    table = np.concatenate([np.zeros((2, 4), dtype=np.float32), *rows])
    return (table + 0.05 * random.standard_normal(table.shape)).astype(np.float32)


def write_recordings(folder: Path, texts: list[str], name: str = "train") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        soundfile.write(folder / f"{name}{number}.wav", tone(text, seed=number), RATE)
    return manifest(folder / f"{name}.tsv", [(f"{name}{i}.wav", text) for i, text in enumerate(texts)])


def write_lines(folder: Path, texts: list[str], name: str = "train") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        Image.fromarray(marks(text)).save(folder / f"{name}{number}.png")
    return manifest(folder / f"{name}.tsv", [(f"{name}{i}.png", text) for i, text in enumerate(texts)])


def write_frames(path: Path, texts: list[str]) -> Path:
    table = [frames(text, seed=number) for number, text in enumerate(texts)]
    np.savez(path, frames=np.concatenate(table), lengths=[len(one) for one in table], texts=np.array(texts))
    return path


def manifest(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{file}\t{text}\n" for file, text in rows))
    return path
