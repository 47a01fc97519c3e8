"""tinyshakespeare, characters: recurrence, gates and attention against a fixed context, at equal parameters.

    python recipes/baselines.py --data FOLDER [--only lstm,…] [--seeds 0,1,2] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds tinyshakespeare/input.txt. The last tenth is scored, every character once, with
the state carried over (a Transformer sees 64 to 128 earlier characters). Every network has 0.70 M parameters, within 2
%, and trains 20 epochs with the same settings. There is one evaluation, after the last update, so the scored tenth
chooses nothing. Half a minute to two minutes each beside 16 other runs on an H200.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common import Files, Part, main

DATA = ("tinyshakespeare/input.txt",)
TRAIN: dict[str, Any] = {
    "model.embedding_size": 64,
    "model.dropout": 0.2,
    "train.batch_size": 64,
    "train.k1": 128,
    "train.epochs": 20,
    "train.lr": 2e-3,
    "train.warmup_steps": 100,
}
ABOUT = {
    "average": "the last 16 characters, averaged: no order",
    "concat": "the last 16 characters, side by side: no more than these",
    "rnn": "vanilla RNN",
    "gru": "GRU",
    "lstm": "LSTM",
    "transformer": "Transformer, the last 128 characters",
}
NETWORKS: dict[str, dict[str, Any]] = {
    "average": {
        "model.kind": "feedforward",
        "model.context_mode": "average",
        "model.context": 16,
        "model.hidden_size": 5310,
    },
    "concat": {"model.kind": "feedforward", "model.context": 16, "model.hidden_size": 638},
    "rnn": {"model.cell": "rnn", "model.hidden_size": 770, "train.lr": 5e-4},
    "gru": {"model.cell": "gru", "model.hidden_size": 440},
    "lstm": {"model.cell": "lstm", "model.hidden_size": 378},
    "transformer": {
        "model.kind": "transformer",
        "model.hidden_size": 120,
        "model.blocks": 4,
        "model.heads": 4,
        "model.tied": True,
        "model.positions": "sinusoidal",
    },
}


def files(data: Path, work: Path) -> Files:
    text = (data / "tinyshakespeare" / "input.txt").read_text()
    cut = round(0.9 * len(text))
    for name, part in (("train", text[:cut]), ("test", text[cut:])):
        (work / f"{name}.txt").write_text(part)
    return work / "train.txt", work / "test.txt"


PARTS = {
    name: Part(
        ABOUT[name],
        "generate",
        files,
        {"nats_per_token": None},
        settings={**TRAIN, **network},
        unit=1.0,
        decimals=4,
    )
    for name, network in NETWORKS.items()
}

if __name__ == "__main__":
    main("baselines", __doc__, PARTS)
