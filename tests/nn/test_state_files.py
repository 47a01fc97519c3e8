"""Weights of torch networks in ours: what fits, what does not, and files that are refused."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import unrolled
from tests.cli.test_generate import SMALL, TEXT, call
from tests.tolerances import assert_close
from unrolled import UserError
from unrolled.nn import read_state, take_weights


class Language(nn.Module):
    """A word language model as in torch's examples."""

    def __init__(self, cell: Callable[..., nn.RNNBase], width: int = 6, hidden: int = 12) -> None:
        super().__init__()
        self.encoder = nn.Embedding(19, width)
        self.rnn = cell(width, hidden, 2, batch_first=True)
        self.decoder = nn.Linear(hidden, 19)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.decoder(self.rnn(self.encoder(ids))[0])
        return scores


class Ours(nn.Module):
    def __init__(self, cell: Callable[..., nn.RNNBase], hidden: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(19, 6)
        self.layer = cell(6, hidden, 2, batch_first=True)
        self.scores = nn.Linear(hidden, 19)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.scores(self.layer(self.embedding(ids))[0])
        return scores


NAMES = {"encoder": "embedding", "rnn": "layer", "decoder": "scores"}
CELLS = {"lstm": (nn.LSTM, unrolled.LSTM), "gru": (nn.GRU, unrolled.GRU), "rnn": (nn.RNN, unrolled.RNN)}


def problem_of(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
@pytest.mark.parametrize("cell", CELLS)
def test_a_network_of_torch_gives_the_same_numbers(cell: str, suffix: str, tmp_path: Path) -> None:
    theirs, ours = Language(CELLS[cell][0]), Ours(CELLS[cell][1])
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(theirs.state_dict(), path)
    else:
        torch.save(theirs.state_dict(), path)
    report = take_weights(ours, path, NAMES)
    assert report.taken["layer.weight_ih_l1"] == "rnn.weight_ih_l1"
    assert (report.other_shapes, report.unused, report.left, report.suggested) == ({}, [], [], {})
    ids = torch.randint(19, (3, 7))
    assert_close(ours(ids), theirs(ids))


def test_a_report_of_what_did_not_fit() -> None:
    theirs, ours = Language(nn.LSTM, width=5), Ours(unrolled.LSTM)
    before = ours.scores.weight.clone()
    report = take_weights(ours, theirs.state_dict(), {"encoder": "embedding", "rnn": "layer"})
    assert report.other_shapes["embedding.weight"] == ("encoder.weight", (19, 6), (19, 5))
    assert report.left == ["embedding.weight", "layer.weight_ih_l0", "scores.weight", "scores.bias"]
    assert torch.equal(ours.scores.weight, before)
    assert str(report) == (
        "7 of 11 weights were taken: layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0, layer.weight_ih_l1, "
        "layer.weight_hh_l1, layer.bias_ih_l1, layer.bias_hh_l1.\n"
        "embedding.weight has shape (19, 6), encoder.weight in the file (19, 5): not taken.\n"
        "layer.weight_ih_l0 has shape (48, 6), rnn.weight_ih_l0 in the file (48, 5): not taken.\n"
        "In the file, without a counterpart: decoder.weight, decoder.bias.\n"
        "Left as they were: embedding.weight, layer.weight_ih_l0, scores.weight, scores.bias.\n"
        "These names would fit too: decoder=scores."
    )


def test_nothing_fits() -> None:
    layer = nn.LSTM(6, 12).state_dict()
    message = problem_of(lambda: take_weights(Ours(unrolled.LSTM), {f"rnn.{k}": v for k, v in layer.items()}))
    assert message == (
        "The state_dict has no weight that fits the network. It holds rnn.weight_ih_l0, rnn.weight_hh_l0, "
        "rnn.bias_ih_l0, rnn.bias_hh_l0; the network has embedding.weight, layer.weight_ih_l0, layer.weight_hh_l0, "
        "layer.bias_ih_l0, layer.bias_hh_l0, layer.weight_ih_l1, layer.weight_hh_l1, layer.bias_ih_l1, "
        "layer.bias_hh_l1, scores.weight, scores.bias. "
        "Say which is which, or make the sizes of the network those of the file."
    )
    one = unrolled.LSTM(6, 12)
    assert "these names would fit: rnn=." in problem_of(
        lambda: take_weights(one, {f"rnn.{k}": v for k, v in layer.items()})
    )
    assert take_weights(one, {f"rnn.{k}": v for k, v in layer.items()}, {"rnn": ""}).left == []
    assert "weight_ih_l0 has shape (48, 6), weight_ih_l0 in the file (16, 3): not taken." in problem_of(
        lambda: take_weights(one, nn.LSTM(3, 4).state_dict())
    )


def test_names_that_are_wrong() -> None:
    theirs, ours = Language(nn.LSTM), Ours(unrolled.LSTM)
    assert problem_of(lambda: take_weights(ours, theirs.state_dict(), {"lstm": "layer"})).startswith(
        "The state_dict has no module 'lstm'. It holds encoder.weight, rnn.weight_ih_l0, "
    )
    assert problem_of(lambda: take_weights(ours, theirs.state_dict(), {"decoder": "encoder"})) == (
        "encoder.weight and decoder.weight would both be encoder.weight. Give each a name of its own."
    )


@pytest.mark.parametrize("wrapped", [None, "state_dict", "model_state_dict", "model"])
def test_checkpoints_and_parallel_networks(wrapped: str | None, tmp_path: Path) -> None:
    state = {f"module.{name}": weight for name, weight in Language(nn.GRU).state_dict().items()}
    torch.save(state if wrapped is None else {wrapped: state, "epoch": 3}, tmp_path / "last.pt")
    assert set(read_state(tmp_path / "last.pt")) == set(Language(nn.GRU).state_dict())


def test_files_that_are_refused(tmp_path: Path) -> None:
    torch.save(Language(nn.LSTM), tmp_path / "whole.pt")  # a pickle of the class
    assert problem_of(lambda: read_state(tmp_path / "whole.pt")) == (
        f"{tmp_path}/whole.pt holds more than weights, and loading it could run any code. It is not loaded. "
        "Save the weights alone: torch.save(network.state_dict(), path)."
    )
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"run": print}))
    assert "It is not loaded." in problem_of(lambda: read_state(tmp_path / "plain.pt"))
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    assert problem_of(lambda: read_state(tmp_path / "empty.pt")) == (
        f"{tmp_path}/empty.pt holds no weights by name. Save them with torch.save(network.state_dict(), path)."
    )
    torch.save(Language(nn.LSTM).state_dict(), tmp_path / "cut.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "cut.pt").read_bytes()[:-200])
    assert f"{tmp_path}/cut.pt is not a whole file of torch: " in problem_of(lambda: read_state(tmp_path / "cut.pt"))
    (tmp_path / "cut.safetensors").write_bytes(b"\0" * 20)
    assert "is not a whole file of weights: " in problem_of(lambda: read_state(tmp_path / "cut.safetensors"))
    (tmp_path / "weights.npz").write_bytes(b"")
    assert problem_of(lambda: read_state(tmp_path / "weights.npz")) == (
        f"{tmp_path}/weights.npz is not a file of weights. Expected .safetensors or .pt, .pth, .bin."
    )
    assert problem_of(lambda: read_state(tmp_path / "no.pt")) == (
        f"{tmp_path}/no.pt does not exist. Give the path of a file of weights."
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(TEXT)
    torch.save(nn.ModuleDict({"rnn": nn.LSTM(64, 12)}).state_dict(), tmp_path / "lm.pt")
    return tmp_path


def test_training_starts_from_weights_of_torch(files: Path) -> None:
    words: list[str | Path] = ["train", "generate", "--train", files / "book.txt", *SMALL, "--set", "train.lr=1e-9"]
    code, said, shown = call(*words, "--init", files / "lm.pt", "--init-names", "rnn=layer", "--out", files / "run")
    assert code == 0
    assert "4 of 7 weights were taken: layer.weight_ih_l0, layer.weight_hh_l0" in said + shown
    theirs, ours = read_state(files / "lm.pt"), unrolled.load(files / "run").network.state_dict()
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        torch.testing.assert_close(ours[f"layer.{name}"], theirs[f"rnn.{name}"], atol=1e-6, rtol=0)
    assert set(read_state(files / "run" / "init.safetensors")) == {
        f"layer.{name}" for name in nn.LSTM(64, 12).state_dict()
    }


def test_a_run_killed_before_its_first_checkpoint_starts_again(files: Path) -> None:
    settings = {"model.hidden_size": 12, "model.num_layers": 1, "train.batch_size": 8, "train.k1": 20}
    given: dict[str, Any] = {"train": files / "book.txt", "set": {**settings, "train.max_steps": 4}, "quiet": True}
    unrolled.train("generate", init=files / "lm.pt", init_names={"rnn": "layer"}, out=files / "whole", **given)
    (files / "killed").mkdir()
    for name in ("config.toml", "init.safetensors"):
        shutil.copy(files / "whole" / name, files / "killed" / name)
    unrolled.resume(files / "killed", quiet=True)
    assert (files / "killed" / "last.safetensors").read_bytes() == (files / "whole" / "last.safetensors").read_bytes()


def test_names_of_a_start(files: Path) -> None:
    words: list[str | Path] = ["train", "generate", "--train", files / "book.txt", *SMALL, "--out", files / "run"]
    assert "Say which is which; these names would fit: rnn=layer." in call(*words, "--init", files / "lm.pt")[2]
    assert call(*words, "--init", files / "lm.pt", "--init-names", "rnn")[2] == (
        "unrolled: --init-names 'rnn' has no name in the network. Expected THEIRS=OURS, such as rnn=layer.\n"
    )
    assert call(*words, "--init-names", "rnn=layer")[2] == (
        "unrolled: init_names are for weights that another program wrote. Leave them out.\n"
    )
    assert not (files / "run").exists()
