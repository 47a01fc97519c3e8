"""The kinds of stored models, and a model's answer to a fixed input as JSON: the words it says and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.see.models import HEARD, KINDS, LABELS, LANGUAGE, SEEN, SHORT, TAGS
from unrolled.model import Model

STORED: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{kind: (task, file, keys) for kind, (task, file, keys, _) in KINDS.items()},
    "caption": ("caption", "pictures/train.tsv", {**SEEN, "model.encoder.channels": [4, 4]}),
    "classify-letters": ("classify", "mood.tsv", {**LABELS, "data.level": "char", "model.cell": "gru"}),
    "forecast-lags": ("forecast", "waves.csv", {**SHORT, "model.hidden_size": 6, "data.horizon": [1, 3]}),
    "generate-bpe": ("generate", "book.txt", {**LANGUAGE, "data.level": "bpe", "data.max_size": 280}),
    "generate-peephole": ("generate", "book.txt", {**LANGUAGE, "model.peephole": "current", "model.layer_norm": True}),
    "recognize-lines": ("recognize", "lines/train.tsv", HEARD),
}
FRAMED = {**SHORT, "model.hidden_size": 6}
ATTENDING = {"model.kind": "transformer", "model.heads": 2, "model.feedforward": 12}
SHOP = {"data.target_columns": "sales", "data.horizon": 0, "data.time_column": "none"}
WIDE = {"model.ngrams": 0, "model.wide": "on", "model.wide_buckets": 512}
LATER: dict[str, tuple[str, str, dict[str, Any]]] = {
    "classify-wide": ("classify", "mood.tsv", {**LABELS, **WIDE}),
    "classify-linear": ("classify", "mood.tsv", {**WIDE, "model.kind": "linear", "train.threads": 1}),
    "classify-transformer": ("classify", "mood.tsv", {**LABELS, **ATTENDING}),
    "tag-transformer": ("tag", "spans.txt", {**TAGS, **ATTENDING}),
    "tag-frames": ("tag", "steps.npz", FRAMED),
    "tag-columns": ("tag", "steps.csv", {**FRAMED, "model.cell": "gru"}),
    "tag-stream": ("tag", "steps.npz", {**FRAMED, "model.bidirectional": False}),
    "tag-frames-transformer": ("tag", "steps.npz", {**FRAMED, **ATTENDING}),
    "forecast-transformer": ("forecast", "waves.csv", {**SHORT, **ATTENDING, "model.hidden_size": 6}),
    "forecast-both": ("forecast", "shop.csv", {**FRAMED, **SHOP, "model.bidirectional": True}),
    "forecast-categories": ("forecast", "shop.csv", {**FRAMED, **SHOP, "data.category_columns": "day"}),
    "recognize-mdlstm": ("recognize", "lines/train.tsv", {**HEARD, "model.kind": "mdlstm"}),
    "recognize-parallel": ("recognize", "lines/train.tsv", {**HEARD, "model.kind": "mdlstm", "model.form": "parallel"}),
}
"""Kinds of models that came after the first set."""

TEXTS = {
    "classify": "one fine two three",
    "generate": "3 and 4 make 7",
    "tag": "Ada met Grace Hopper in New York .",
    "translate": "3 5 7",
}


def frame_answer(model: Model, kind: str) -> dict[str, Any]:
    """The tags of twelve frames, read at once or one by one."""
    frames = np.stack([np.arange(12) % 7, np.arange(12) % 5 - 2.5], axis=1)
    if kind != "tag-stream":
        found = model.predict(frames, probabilities=True)
        return {"tags": list(found.tags), "probabilities": list(found.probabilities)}
    with model.stream(probabilities=True) as stream:
        steps = [stream.feed(frame) for frame in frames]
    return {"tags": [step.tags[0] for step in steps], "probabilities": [step.probabilities[0] for step in steps]}


def answer(model: Model, kind: str, inputs: Path) -> dict[str, Any]:
    """The answer of a stored model; `inputs` is the folder of the recordings, pictures and tables."""
    task = model.task.name
    if task == "generate":
        text = TEXTS[task]
        written = model.predict("3 and", max_tokens=12, temperature=0)
        return {"text": str(written), "log_prob": model.log_prob([text])[0]}
    if task == "classify":
        said = model.predict(TEXTS[task])
        return {"label": said.label, "probabilities": said.probabilities}
    if task == "tag" and model.assets.frames:
        return frame_answer(model, kind)
    if task == "tag":
        return {"tags": [tag for _, tag in model.predict(TEXTS[task])]}
    if task == "translate":
        translation = model.predict(TEXTS[task], beam=5)
        return {"text": translation.text, "log_prob": translation.log_prob}
    if kind in ("forecast-both", "forecast-categories"):
        days = [[20.0, "mon"], [18.5, "tue"], [23.0, "tue"], [21.0, "fri"]]
        return {"values": model.predict(days if "categories" in kind else [day[:1] for day in days]).tolist()}
    if task == "forecast":
        rows = np.loadtxt(inputs / "waves.csv", delimiter=",", skiprows=1)
        return {"values": model.predict(rows).tolist()}
    if task == "caption":
        described = model.predict(str(inputs / "picture.png"), beam=5)
        return {"text": described.text, "log_prob": described.log_prob}
    read = model.predict(str(inputs / ("sound.wav" if kind == "recognize" else "line.png")))
    return {"text": read.text, "score": read.score}
