"""Networks saved by Keras 3, read by `from_keras`: the same answers as Keras gives."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

import unrolled
from tests.conformance.test_keras import keras_layers, randomize
from tests.tolerances import assert_close
from unrolled import UserError
from unrolled.nn import from_keras

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # inside Keras

RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm_no_bias": ("LSTM", {"use_bias": False}),
    "lstm_activations": ("LSTM", {"activation": "softsign", "recurrent_activation": "hard_sigmoid"}),
    "gru": ("GRU", {}),
    "gru_before": ("GRU", {"reset_after": False}),
    "gru_no_bias": ("GRU", {"use_bias": False}),
    "gru_activations": ("GRU", {"reset_after": False, "activation": "leaky_relu", "recurrent_activation": "sigmoid"}),
    "rnn": ("SimpleRNN", {}),
    "rnn_linear": ("SimpleRNN", {"activation": "linear"}),
    "rnn_selu": ("SimpleRNN", {"activation": "selu", "use_bias": False}),
}


def keras() -> Any:
    with mock.patch.dict(os.environ, {"KERAS_BACKEND": "torch"}):  # read once, at the first import
        import keras

    return keras


def saved(path: Path, layers: list[Any]) -> Any:
    """A model of these layers with random weights, saved."""
    model = keras().Sequential(layers)
    randomize(model)
    model.save(path)
    return model


def frames(*shape: int) -> Tensor:
    return torch.randn(*shape)


@pytest.mark.parametrize("sequences", [True, False])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name: str, sequences: bool, tmp_path: Path) -> None:
    kind, options = RECURRENT[name]
    make = getattr(keras_layers(), kind)
    model = saved(
        tmp_path / "m.keras",
        [
            keras().Input((None, 3)),
            make(5, return_sequences=True, **options),
            make(4, return_sequences=sequences, name="upper", **options),
        ],
    )
    network = from_keras(tmp_path / "m.keras")
    assert isinstance(
        network["upper"].layer, {"LSTM": unrolled.LSTM, "GRU": unrolled.GRU, "SimpleRNN": unrolled.RNN}[kind]
    )
    x = frames(2, 7, 3)
    assert_close(network(x), model(x))


@pytest.mark.parametrize("merge", ["concat", "sum", "mul", "ave"])
@pytest.mark.parametrize("sequences", [True, False])
@pytest.mark.parametrize("name", ["lstm", "gru", "gru_before", "rnn"])
def test_bidirectional(name: str, sequences: bool, merge: str, tmp_path: Path) -> None:
    layers = keras_layers()
    kind, options = RECURRENT[name]
    both = layers.Bidirectional(getattr(layers, kind)(4, return_sequences=sequences, **options), merge_mode=merge)
    model = saved(tmp_path / "m.keras", [keras().Input((None, 3)), both])
    x = frames(3, 6, 3)
    assert_close(from_keras(tmp_path / "m.keras")(x), model(x))


@pytest.mark.parametrize("ending", ["softmax", "sigmoid", "linear", "gelu", "exponential", "mish", "relu6", "swish"])
def test_a_classifier_of_words(ending: str, tmp_path: Path) -> None:
    layers = keras_layers()
    model = saved(
        tmp_path / "m.keras",
        [
            keras().Input((None,), dtype="int32"),
            layers.Embedding(9, 3, mask_zero=True),
            layers.Bidirectional(
                layers.LSTM(4, return_sequences=True, dropout=0.2, recurrent_dropout=0.1), name="both_ways"
            ),
            layers.GRU(5),
            layers.Dropout(0.5),
            layers.Dense(6, activation="relu"),
            layers.Dense(2, activation=ending, use_bias=False),
        ],
    )
    network = from_keras(tmp_path / "m.keras")
    ids = torch.tensor([[1, 2, 3, 4, 8], [5, 6, 0, 0, 0], [7, 7, 7, 0, 0]])
    assert_close(network(ids), model(ids))
    assert network["both_ways"].layer.variational_dropout == (0.2, 0.1)
    with pytest.raises(UserError, match=r"Unknown layer 'both'\. Did you mean 'both_ways'"):
        network["both"]
    with pytest.raises(UserError) as raised:
        network(torch.tensor([[1, 2], [0, 1]]))
    assert str(raised.value) == (
        "Row 1 has zeros before other ids, and the embedding masks zeros (mask_zero). "
        "Put the padding at the end of every row."
    )


def test_a_functional_tagger(tmp_path: Path) -> None:
    layers = keras_layers()
    x = start = keras().Input((None, 3))
    x = layers.GRU(4, return_sequences=True)(x)
    x = layers.TimeDistributed(layers.Dense(5, activation="tanh"))(x)
    x = layers.Activation("softmax")(x)
    model = keras().Model(start, x)
    randomize(model)
    model.save(tmp_path / "m.keras")
    x = frames(2, 5, 3)
    assert_close(from_keras(tmp_path / "m.keras")(x), model(x))


def test_lengths_and_training(tmp_path: Path) -> None:
    model = saved(tmp_path / "m.keras", [keras().Input((None, 3)), keras_layers().LSTM(4)])
    network, x = from_keras(tmp_path / "m.keras"), frames(2, 6, 3)
    lengths = torch.tensor([6, 2])
    mask = torch.arange(6) < lengths[:, None]
    assert_close(network(x, lengths), model.layers[0](x, mask=mask))
    network(x).sum().backward()
    assert all(weight.grad is not None for weight in network.parameters())


def problem_of(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as raised:
        call()
    return str(raised.value)


BY_HAND = "Build the network by hand, and load its layers one by one."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda layers: layers.Conv1D(4, 3),
            "layer 'conv1d' is a Conv1D, which is not read. These are: InputLayer, Embedding, SimpleRNN, LSTM, GRU, "
            "Bidirectional, Dense, TimeDistributed, Dropout, Activation.",
        ),
        (
            lambda layers: layers.Lambda(lambda x: x),
            "layer 'lambda' is a Lambda, which is not read. These are: InputLayer, Embedding, SimpleRNN, LSTM, GRU, "
            "Bidirectional, Dense, TimeDistributed, Dropout, Activation.",
        ),
        (
            lambda layers: layers.LSTM(4, activation=lambda x: x),
            f"layer 'lstm' has code of its own as activation, which is not run. {BY_HAND}",
        ),
        (
            lambda layers: layers.Dense(4, activation="celu"),
            f"layer 'dense' has activation='celu', which is not known here. {BY_HAND}",
        ),
        (
            lambda layers: layers.LSTM(4, go_backwards=True),
            "layer 'lstm' has go_backwards=True. Save the model without it; the weights stay the same.",
        ),
        (
            lambda layers: layers.Bidirectional(layers.LSTM(4), backward_layer=layers.GRU(4, go_backwards=True)),
            f"layer 'bidirectional' has two directions of different kinds. {BY_HAND}",
        ),
        (
            lambda layers: layers.TimeDistributed(layers.Embedding(4, 3)),
            "layer 'time_distributed' repeats Embedding at every step. Only a Dense can be inside TimeDistributed.",
        ),
    ],
)
def test_layers_that_are_refused(make: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    keras().backend.clear_session()
    saved(tmp_path / "m.keras", [keras().Input((None, 3)), make(keras_layers())])
    assert problem_of(lambda: from_keras(tmp_path / "m.keras")) == f"{tmp_path / 'm.keras'}: {message}"


def test_branches_are_refused(tmp_path: Path) -> None:
    layers = keras_layers()
    start = keras().Input((None, 3), name="start")
    one, two = layers.LSTM(4, name="one")(start), layers.LSTM(4, name="two")(start)
    keras().Model(start, layers.Add()([one, two])).save(tmp_path / "m.keras")
    assert problem_of(lambda: from_keras(tmp_path / "m.keras")) == (
        f"{tmp_path / 'm.keras'}: layer 'two' reads 'start', not only the layer before it, 'one'. "
        "Only chains of layers can be read: split the model, or build it by hand."
    )


def changed(
    path: Path, config: Callable[[Any], None] | None = None, weights: Callable[[Any], None] | None = None
) -> None:
    """Write the file again with a changed config or changed weights."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    if config is not None:
        content = json.loads(parts["config.json"])
        config(content)
        parts["config.json"] = json.dumps(content).encode()
    if weights is not None:
        buffer = io.BytesIO(parts["model.weights.h5"])
        with h5py.File(buffer, "r+") as file:
            weights(file)
        parts["model.weights.h5"] = buffer.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def replace(file: Any, place: str, make: Callable[[Any, str], None]) -> None:
    del file[place]
    make(file, place)


KERNEL, RECURRENT_KERNEL = "layers/lstm/cell/vars/0", "layers/lstm/cell/vars/1"
AGAIN = "Save it again: model.save('model.keras') in Keras 3."
DAMAGE: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (
        {
            "weights": lambda file: replace(
                file, "layers/lstm/cell/vars/1", lambda f, p: f.create_dataset(p, data=np.zeros((4, 4)))
            )
        },
        "the weights at layers/lstm/cell/vars/1 have shape (4, 4), expected (4, 16).",
    ),
    "missing": ({"weights": lambda file: replace(file, KERNEL, lambda f, p: None)}, f"it has no weights at {KERNEL}."),
    "link": (
        {"weights": lambda file: replace(file, KERNEL, lambda f, p: f.__setitem__(p, h5py.ExternalLink("x.h5", "/x")))},
        f"it has no weights at {KERNEL}.",
    ),
    "text": (
        {"weights": lambda file: replace(file, KERNEL, lambda f, p: f.create_dataset(p, data=np.array([b"x"])))},
        f"{KERNEL} is not an array of numbers.",
    ),
    "name": (
        {"config": lambda model: model["config"]["layers"][1]["config"].update(name="other")},
        "the weights in layers/lstm are of layer 'lstm', not of 'other'.",
    ),
    "units": (
        {"config": lambda model: model["config"]["layers"][1]["config"].update(units="4")},
        "The stored layer 'lstm' (units) is damaged: it is '4': input should be a valid integer.",
    ),
    "class": ({"config": lambda model: model.update(class_name="Mine")}, "it is a model of class Mine."),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    keras().backend.clear_session()
    saved(path, [keras().Input((None, 3)), keras_layers().LSTM(4)])
    change, message = DAMAGE[name]
    changed(path, **change)
    assert problem_of(lambda: from_keras(path)) == f"{path} is damaged: {message} {AGAIN}"


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.keras"
    assert problem_of(lambda: from_keras(path)) == f"{path} does not exist. Give the path of a .keras file."
    path.write_bytes(b"no zip")
    assert problem_of(lambda: from_keras(path)) == f"{path} is not a whole .keras file: File is not a zip file. {AGAIN}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", "")
    assert problem_of(lambda: from_keras(path)).startswith(f"{path} is damaged: its weights cannot be read: ")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b" " * (1 << 27))
    assert "config.json says that it has 134,217,728 bytes" in problem_of(lambda: from_keras(path))
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    assert problem_of(lambda: from_keras(path)) == ("Keras' files need h5py. Install it: pip install 'unrolled[keras]'")
