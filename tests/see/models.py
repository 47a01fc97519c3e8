"""A small model of every task, trained for a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.fitting import fitting
from tests.tasks.recognition import RATE, marks, tone, write_lines, write_recordings
from unrolled import api
from unrolled.model import Model

SHORT: dict[str, Any] = {"train.max_steps": 6, "train.batch_size": 8, "train.threads": 1, "train.lr": 0.02}
LANGUAGE = {**SHORT, "model.hidden_size": 12, "model.embedding_size": 6, "train.k1": 20}
PAIRS = {
    **SHORT,
    "model.embedding_size": 8,
    "model.encoder.hidden_size": 8,
    "model.decoder.hidden_size": 8,
    "train.average": 0.0,
}
BLOCKS = {
    "model.kind": "transformer",
    "model.encoder.heads": 2,
    "model.decoder.heads": 2,
    "model.encoder.blocks": 2,
    "model.decoder.blocks": 2,
    "model.encoder.feedforward": 16,
    "model.decoder.feedforward": 16,
}
LABELS = {**SHORT, "model.hidden_size": 6, "model.embedding_size": 6, "model.letter_hidden": 3, "model.ngrams": 64}
TAGS = {**SHORT, "model.hidden_size": 6, "model.embedding_size": 6, "model.letter_size": 4, "model.letter_hidden": 3}

HEARD = {**SHORT, "model.hidden_size": 8, "model.channels": [4], "data.bands": 10, "data.straighten": False}
SEEN = {
    **SHORT,
    "model.encoder.hidden_size": 8,
    "model.decoder.hidden_size": 8,
    "model.embedding_size": 8,
    "data.level": "word",
    "train.average": 0.0,
}

# name → (task, training file, keys, an input)
KINDS: dict[str, tuple[str, str, dict[str, Any], Any]] = {
    "generate-lstm": ("generate", "book.txt", {**LANGUAGE, "model.num_layers": 2}, "3 and 4 make 7"),
    "generate-gru": ("generate", "book.txt", {**LANGUAGE, "model.cell": "gru"}, "3 and 4 make 7"),
    "generate-rnn": ("generate", "book.txt", {**LANGUAGE, "model.cell": "rnn"}, "3 and 4 make 7"),
    "generate-feedforward": ("generate", "book.txt", {**LANGUAGE, "model.kind": "feedforward"}, "3 and 4 make 7"),
    "generate-transformer": (
        "generate",
        "book.txt",
        {**SHORT, "model.kind": "transformer", "model.hidden_size": 8, "model.heads": 2, "model.blocks": 2},
        "3 and 4 make 7",
    ),
    "classify": ("classify", "mood.tsv", {**LABELS, "model.pool": "attention+last"}, "one fine two three"),
    "tag-crf": ("tag", "spans.txt", TAGS, "Ada met Grace Hopper in New York ."),
    "tag-softmax": ("tag", "spans.txt", {**TAGS, "model.output": "softmax"}, "Ada met Grace Hopper ."),
    "forecast": (
        "forecast",
        "waves.csv",
        {**SHORT, "model.hidden_size": 6, "model.lags": 0, "train.window": 20},
        "waves.csv",
    ),
    "translate-luong": ("translate", "numbers.tsv", PAIRS, "3 5 7"),
    "translate-bahdanau": (
        "translate",
        "numbers.tsv",
        {**PAIRS, "model.decoder.attention": "bahdanau", "model.decoder.cell": "gru", "model.decoder.num_layers": 2},
        "3 5 7",
    ),
    "translate-plain": (
        "translate",
        "numbers.tsv",
        {
            **PAIRS,
            "model.decoder.attention": "none",
            "model.encoder.reverse": True,
            "model.encoder.bidirectional": False,
        },
        "3 5 7",
    ),
    "translate-transformer": ("translate", "numbers.tsv", {**PAIRS, **BLOCKS}, "3 5 7"),
    "recognize": ("recognize", "sounds/train.tsv", {**HEARD, "model.num_layers": 1}, ""),
    "recognize-transformer": (
        "recognize",
        "lines/train.tsv",
        {**HEARD, "model.kind": "transformer", "model.heads": 2, "model.feedforward": 16},
        "",
    ),
    "caption": ("caption", "pictures/train.tsv", SEEN, ""),
    "translate-stepwise": (
        "translate",
        "numbers.tsv",
        {**PAIRS, "model.kind": "stepwise", "model.encoder.bidirectional": False},
        "3 5 7",
    ),
}
WITHOUT_STATES = ("generate-feedforward", "generate-transformer", "translate-transformer", "recognize-transformer")
RECURRENT = [name for name in KINDS if name not in WITHOUT_STATES]
FILES = {
    "forecast": "waves.csv",
    "recognize": "sounds/train0.wav",
    "recognize-transformer": "lines/train0.png",
    "caption": "pictures/0.png",
}


def waves(steps: int = 60) -> np.ndarray:
    t = np.arange(steps)
    return np.stack([50 + 10 * np.sin(t / 5), np.cos(t / 5)], axis=1)


def write_files(folder: Path) -> None:
    """Write the training files of all tasks."""
    folder.mkdir(exist_ok=True)
    sums = [f"{a} and {b} make {a + b}" for a in range(9) for b in range(9)]
    (folder / "book.txt").write_text("\n".join(sums) + "\n")
    words = ["one", "two", "three", "four"]
    moods = [
        (label, f"{a} {word} {b}") for a in words for b in words for label, word in (("good", "fine"), ("bad", "poor"))
    ]
    (folder / "mood.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in moods))
    sentence = "Ada B-PER\nmet O\nGrace B-PER\nHopper I-PER\nin O\nNew B-LOC\nYork I-LOC\n. O\n"
    (folder / "spans.txt").write_text("\n".join([sentence, sentence.replace("Ada", "Kurt")] * 8))
    np.savetxt(folder / "waves.csv", waves(), delimiter=",", header="a,b", comments="", fmt="%.9g")
    write_recordings(folder / "sounds", ["ab", "ba c", "cab", "a", "bc", "abc"] * 2)
    write_lines(folder / "lines", ["ab", "ba c", "cab", "a", "bc", "abc"] * 2)
    (folder / "pictures").mkdir()
    rows = []
    for number, (letter, text) in enumerate([("a", "a bar above"), ("b", "a bar amid"), ("c", "a bar below")] * 4):
        Image.fromarray(marks(letter * 2)).save(folder / "pictures" / f"{number}.png")
        rows.append(f"{number}.png\t{text}\n")
    (folder / "pictures" / "train.tsv").write_text("".join(rows))
    digits = {"3": "three", "5": "five", "7": "seven", "8": "eight"}
    pairs = [(f"{a} {b}", f"{digits[b]} {digits[a]}") for a in digits for b in digits]
    (folder / "numbers.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))


def train(kind: str, data: Path, out: Path) -> Model:
    task, file, keys, _ = KINDS[kind]
    return api.train(task, train=data / file, out=out, set=fitting(task, keys, **facts_of(file)), quiet=True)


def facts_of(file: str) -> dict[str, str]:
    """Values of keys that are left to a file."""
    return {"data__kind": "audio"} if file.startswith("sounds") else {"data__kind": "line"} if "lines" in file else {}


def input_of(kind: str) -> Any:
    """The input for inspecting this kind of model."""
    if kind == "recognize":
        return (tone("ab"), RATE)
    if kind in ("recognize-transformer", "caption"):
        return marks("ab")
    return waves(20) if kind == "forecast" else KINDS[kind][3]
