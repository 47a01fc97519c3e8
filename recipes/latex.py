r"""The Stacks project's LaTeX, characters: do the environments that a model opens close again?

    python recipes/latex.py --data FOLDER [--only lstm,…] [--seeds 0] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds stacks/stacks.tex.gz, 5,199,359 characters; the last tenth is scored, every
character once. Then a model writes 100 texts of 3,000 characters (temperature 0.8, seeds 0 to 99). `closed` is the
share of environments opened in the first half of a text that close with their own \end, after everything opened inside
has closed. The four networks have about 3 M parameters each. One to five minutes each beside 16 other runs on an H200.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import Files, Part, main

from unrolled import Model
from unrolled.data import read_text

DATA = ("stacks/stacks.tex.gz",)
TEXTS, LENGTH = 100, 3000
MARK = re.compile(r"\\(begin|end)\{([a-zA-Z*]+)\}")
TRAIN: dict[str, Any] = {
    "train.batch_size": 64,
    "train.k1": 256,
    "train.epochs": 12,
    "train.lr": 2e-3,
    "train.average": 0.998,
    "model.dropout": 0.2,
}
RECURRENT = {"model.num_layers": 2, "model.embedding_size": 128}
NETWORKS: dict[str, dict[str, Any]] = {
    "rnn": {**RECURRENT, "model.cell": "rnn", "model.hidden_size": 960, "train.lr": 5e-4},
    "gru": {**RECURRENT, "model.cell": "gru", "model.hidden_size": 560},
    "lstm": {**RECURRENT, "model.cell": "lstm", "model.hidden_size": 480},
    "transformer": {
        "model.kind": "transformer",
        "model.hidden_size": 256,
        "model.blocks": 4,
        "model.heads": 4,
        "model.positions": "learned",
        "model.context": 256,
        "train.lr": 1e-3,
        "train.warmup_steps": 200,
        "train.weight_decay": 0.1,
    },
}


def files(data: Path, work: Path) -> Files:
    text = read_text(data / "stacks" / "stacks.tex.gz")
    cut = round(0.9 * len(text))
    for name, part in (("train", text[:cut]), ("test", text[cut:])):
        (work / f"{name}.txt").write_text(part)
    return work / "train.txt", work / "test.txt"


def closing(text: str, before: int) -> tuple[int, int]:
    r"""Count the environments opened before a position: those that close, and all.

    >>> closing(r"\begin{lemma} \begin{proof} \end{proof} \begin{enumerate} \end{lemma}", 100)
    (2, 3)
    >>> closing(r"\end{proof} \begin{lemma} \end{lemma} \begin{lemma}", 30)
    (1, 1)
    """
    opened: list[tuple[str, int]] = []
    closed = counted = 0
    for mark in MARK.finditer(text):
        kind, name = mark.groups()
        if kind == "begin":
            counted += mark.start() < before
            opened.append((name, mark.start()))
        elif any(name == other for other, _ in opened):
            while opened[-1][0] != name:  # environments left open inside stay open
                opened.pop()
            closed += opened.pop()[1] < before
    return closed, counted


def scores(model: Model, test: Path) -> Mapping[str, Any]:
    texts = model.predict([""] * TEXTS, max_tokens=LENGTH, temperature=0.8, seed=0)
    found = [closing(text, LENGTH // 2) for text in texts]
    closed, opened = sum(c for c, _ in found), sum(o for _, o in found)
    return {**model.evaluate(test), "closed": closed / max(1, opened), "opened": opened}


PARTS = {
    name: Part(
        f"LaTeX, {name}: share of environments that close in {TEXTS} texts",
        "generate",
        files,
        {"closed": None, "nats_per_token": None},
        settings={**TRAIN, **network},
        scores=scores,
        unit=1.0,
        decimals=3,
    )
    for name, network in NETWORKS.items()
}

if __name__ == "__main__":
    main("latex", __doc__, PARTS, seeds="0")
