"""The kinds of stored models, and a model's answer to a fixed input as JSON: the words it says and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.see.models import HEARD, KINDS, LABELS, LANGUAGE, SEEN, SHORT
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
TEXTS = {
    "classify": "one fine two three",
    "generate": "3 and 4 make 7",
    "tag": "Ada met Grace Hopper in New York .",
    "translate": "3 5 7",
}


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
    if task == "tag":
        return {"tags": [tag for _, tag in model.predict(TEXTS[task])]}
    if task == "translate":
        translation = model.predict(TEXTS[task], beam=5)
        return {"text": translation.text, "log_prob": translation.log_prob}
    if task == "forecast":
        rows = np.loadtxt(inputs / "waves.csv", delimiter=",", skiprows=1)
        return {"values": model.predict(rows).tolist()}
    if task == "caption":
        described = model.predict(str(inputs / "picture.png"), beam=5)
        return {"text": described.text, "log_prob": described.log_prob}
    read = model.predict(str(inputs / ("sound.wav" if kind == "recognize" else "line.png")))
    return {"text": read.text, "score": read.score}
