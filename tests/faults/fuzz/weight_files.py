"""Seeds of the readers of weights that other programs wrote."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from safetensors.torch import save

from unrolled.nn import LSTM, from_keras, take_weights

LAYERS: list[dict[str, Any]] = [
    {"class_name": "Embedding", "config": {"name": "words", "input_dim": 7, "output_dim": 3, "mask_zero": True}},
    {"class_name": "LSTM", "config": {"name": "lstm", "units": 4, "activation": "tanh", "return_sequences": True}},
    {"class_name": "Dense", "config": {"name": "dense", "units": 2, "activation": "softmax"}},
]
WEIGHTS = {
    "layers/embedding/vars": ((7, 3),),
    "layers/lstm/cell/vars": ((3, 16), (4, 16), (16,)),
    "layers/dense/vars": ((4, 2), (2,)),
}


def torch_file() -> bytes:
    raw = io.BytesIO()
    torch.save({"state_dict": torch.nn.LSTM(3, 4).state_dict()}, raw)
    return raw.getvalue()


def safetensors_file() -> bytes:
    return save(torch.nn.LSTM(3, 4).state_dict())


def keras_file() -> bytes:
    """A file as Keras writes it, of the entries that are read."""
    weights, raw = io.BytesIO(), io.BytesIO()
    with h5py.File(weights, "w") as file:
        for group, shapes in WEIGHTS.items():
            for number, shape in enumerate(shapes):
                file[f"{group}/{number}"] = np.ones(shape, np.float32)
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": LAYERS}}))
        archive.writestr("model.weights.h5", weights.getvalue())
    return raw.getvalue()


def take(path: Path) -> object:
    return str(take_weights(LSTM(3, 4), path))


def run_keras(path: Path) -> object:
    return from_keras(path)(torch.tensor([[1, 2, 0]])).tolist()
