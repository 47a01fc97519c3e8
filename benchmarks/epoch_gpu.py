"""One epoch of a language model on a GPU from the command line, start-up included, beside a script in plain torch.

The medium model of Zaremba et al. (2014) on a drawn text of the Penn Treebank's size: 929,589 words of 10,000. Both
read the text, build the vocabulary, train one epoch in bf16 and stop; ours also evaluates and saves the model. Python
keeps the bytecode of its modules in a folder that is empty before the first turn.

    PYTHONPATH=. python benchmarks/epoch_gpu.py
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import plain_networks as plain
import torch
from measure import machine, row, show, write

WORDS, VOCABULARY, ROWS, STEPS, WIDTH = 929_589, 9_990, 20, 35, 650


def main() -> None:
    if len(sys.argv) > 1:
        return plain_epoch(Path(sys.argv[1]))
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU here.")
    facts = machine() | {"gpu": torch.cuda.get_device_name()}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        draw = random.Random(0)
        text.write_text(" ".join(f"w{number}" for number in draw.choices(range(VOCABULARY), k=WORDS)))
        (Path(folder) / "valid.txt").write_text(text.read_text()[:100_000])
        keys: dict[str, Any] = {
            "data.level": "word", "model.hidden_size": WIDTH, "model.embedding_size": WIDTH, "model.num_layers": 2,
            "model.dropout": 0.5, "train.batch_size": ROWS, "train.k1": STEPS, "train.optimizer": "sgd",
            "train.lr": 1.0, "train.clip_norm": 5.0, "train.epochs": 1, "train.eval_every": 100_000,
        }  # fmt: skip
        given = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        files = ["--train", str(text), "--valid", str(Path(folder) / "valid.txt"), "--out", str(Path(folder) / "run")]
        commands = {
            "ours": [sys.executable, "-m", "unrolled", "train", "generate", *files, *given],
            "plain": [sys.executable, str(Path(__file__).resolve()), str(text)],
        }
        seconds = {}
        for turn in ("first", "second", "third"):
            for name, command in commands.items():
                seconds[f"{name}, {turn}"] = timed(command, Path(folder) / "bytecode")
            (Path(folder) / "run").rename(Path(folder) / f"run-{turn}")
    print(seconds)
    ours, theirs = (min(seconds[f"{name}, second"], seconds[f"{name}, third"]) for name in commands)
    ratio = theirs / ours
    first = f"first, without bytecode, {seconds['ours, first']:.1f} s against {seconds['plain, first']:.1f}"
    note = f"{ours:.1f} s against {theirs:.1f}; {first}"
    rows = [row("one epoch of PTB's size, start-up included", ratio, "report", "", note)]
    show("One epoch from the command line: plain torch's time over ours", rows)
    write("epoch_gpu", facts, rows, [seconds])
    return None


def timed(command: list[str], bytecode: Path) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def plain_epoch(text: Path) -> None:
    """The script that one would write: the whole text on the GPU, and updates one kernel at a time."""
    words = text.read_text().split()
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = torch.tensor([numbers[word] for word in words], device="cuda")
    lanes = ids[: len(ids) // ROWS * ROWS].view(ROWS, -1)
    network = plain.LanguageModel(len(numbers), WIDTH, WIDTH, 2, 0.5).cuda()
    window = torch.empty(ROWS, STEPS + 1, dtype=torch.int64, device="cuda")
    state = tuple(torch.zeros(2, ROWS, WIDTH, device="cuda") for _ in "hc")
    step = plain.language_update(network, window, "sgd", state)
    for first in range(0, lanes.shape[1] - STEPS - 1, STEPS):
        window.copy_(lanes[:, first : first + STEPS + 1])
        step()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
