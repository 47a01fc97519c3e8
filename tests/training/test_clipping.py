"""Gradient norms by layer, clipping, and the file that keeps them for every update."""

from __future__ import annotations

import copy
import csv
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.tolerances import assert_close
from unrolled import LSTM, UserError, api
from unrolled.jobs import TrainingJob
from unrolled.see.figures.curves import curves, draw_norms
from unrolled.see.views.runs import Updates, run_rows
from unrolled.training import Origin, Run, updates
from unrolled.training.clipping import Clipping, layer_of


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.layer = LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(12, 2, 16, batch_first=True) for _ in range(2)])
        self.scores = nn.Linear(12, 7)
        self.unused = nn.Linear(3, 3)

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.layer(self.embedding(ids))
        for block in self.blocks:
            hidden = block(hidden)
        return nn.functional.cross_entropy(self.scores(hidden).flatten(0, 1), ids.flatten(), reduction="sum")


def with_gradients() -> Net:
    network = Net().eval()
    network.loss(torch.randint(7, (3, 8))).backward()  # type: ignore[no-untyped-call]
    return network


@pytest.mark.parametrize(("norm", "value"), [(None, None), (0.5, None), (1e9, None), (None, 0.01), (2.0, 0.05)])
def test_it_clips_as_torch_does(norm: float | None, value: float | None) -> None:
    """To the bit: a run is the same with and without the norms of layers."""
    network = with_gradients()
    other = copy.deepcopy(network)
    for mine, its in zip(network.parameters(), other.parameters(), strict=True):
        its.grad = None if mine.grad is None else mine.grad.clone()
    found = Clipping(network)(norm, value)
    total = float(nn.utils.clip_grad_norm_(other.parameters(), math.inf if norm is None else norm))
    gradients = [p.grad for p in other.parameters() if p.grad is not None]
    cut = value is not None and any(float(gradient.abs().max()) > value for gradient in gradients)
    if value is not None:
        nn.utils.clip_grad_value_(other.parameters(), value)
    assert found.norm == total
    assert found.clipped == (cut or (norm is not None and total > norm))
    for mine, its in zip(network.parameters(), other.parameters(), strict=True):
        assert (mine.grad is None) == (its.grad is None)
        assert mine.grad is None or torch.equal(mine.grad, its.grad)  # type: ignore[arg-type]


def test_norms_are_those_of_layers_before_clipping() -> None:
    network = with_gradients()
    expected: dict[str, torch.Tensor] = {}
    for name, parameter in network.named_parameters():
        part = torch.zeros(1) if parameter.grad is None else parameter.grad.flatten().clone()
        expected[layer_of(name)] = torch.cat([expected.get(layer_of(name), torch.zeros(0)), part])
    clipping = Clipping(network)
    both = clipping.by_layer([clipping(0.1).norms, clipping(0.1).norms])
    assert clipping.layers == list(expected)
    assert clipping.layers[:3] == ["embedding", "layer.l0", "layer.l0_reverse"]
    assert clipping.layers[-4:] == ["blocks.0", "blocks.1", "scores", "unused"]
    assert_close(torch.tensor(both[0]), torch.stack([part.norm() for part in expected.values()]))
    assert both[0][-1] == 0.0
    assert sum(norm**2 for norm in both[1]) ** 0.5 == pytest.approx(0.1, rel=1e-4)  # the second time they are clipped


def test_a_network_without_gradients() -> None:
    assert Clipping(Net())(1.0)[:2] == (0.0, False)


SETTINGS: dict[str, Any] = {
    "model.hidden_size": 8,
    "train.batch_size": 4,
    "train.k1": 10,
    "train.max_steps": 12,
    "train.eval_every": 6,
    "train.threads": 1,
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "sums.txt"
    path.write_text("\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12)))
    return path


def rows_of(path: Path) -> list[dict[str, float]]:
    with path.open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_every_update_is_in_the_file(text: Path, tmp_path: Path) -> None:
    free, out = tmp_path / "free", tmp_path / "run"
    api.train("generate", train=text, out=free, set={**SETTINGS, "train.clip_norm": None}, quiet=True)
    unclipped = rows_of(free / "updates.csv")
    assert not any(row["clipped"] for row in unclipped)
    limit = statistics.median(row["grad_norm"] for row in unclipped)  # so that some are clipped
    api.train("generate", train=text, out=out, set={**SETTINGS, "train.clip_norm": limit}, quiet=True)
    rows = rows_of(out / "updates.csv")
    assert [row["step"] for row in rows] == list(range(1, 13))
    for row in rows:
        layers = [row[name] for name in ("embedding", "layer.l0", "scores")]
        assert math.hypot(*layers) == pytest.approx(row["grad_norm"], rel=1e-4)
        assert row["clipped"] == (row["grad_norm"] > limit)
    halves = rows[:6], rows[6:]
    evaluations = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["clipped"] for row in evaluations] == [sum(row["clipped"] for row in half) for half in halves]
    assert sum(row["clipped"] for row in rows) > 0
    for row, half in zip(evaluations, halves, strict=True):
        assert row["grad_norm_max"] == pytest.approx(max(one["grad_norm"] for one in half), rel=1e-4)


def test_it_grows_while_a_run_goes_on(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between evaluations too; half a line at the end, of a file that is being written, is left out."""
    monkeypatch.setattr(updates, "SECONDS", 0.0)
    run = TrainingJob(api.configure("generate", extra={**SETTINGS, "data.train": str(text)}))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text("[train]\nclip_norm = 1.0\n")
    driven = Run(folder, run.trainer(), run.model.save, Origin())
    assert run_rows(folder)["updates"] is None
    for info in driven.steps():
        if info.step == 3:
            break
    with (folder / "updates.csv").open("a") as file:
        file.write("4,1.")
    found = run_rows(folder)["updates"]
    assert found["step"] == [1, 2, 3]
    assert found["limit"] == 1.0
    assert set(found["layers"]) == {"embedding", "layer.l0", "scores"}
    assert not (folder / "metrics.jsonl").exists()


def test_a_run_that_explodes_keeps_its_updates(text: Path, tmp_path: Path) -> None:
    wild = {**SETTINGS, "model.cell": "rnn", "model.nonlinearity": "relu", "train.optimizer": "sgd", "train.lr": 1e12}
    with pytest.raises(UserError, match="Training became non-finite at step") as caught:
        api.train("generate", train=text, out=tmp_path / "run", set={**wild, "train.clip_norm": None}, quiet=True)
    said = str(caught.value)
    assert said.endswith("Try train.lr=3.33333e+11, or train.clip_norm=1, which is off now.")
    assert ("The best model so far is kept." in said) == (tmp_path / "run" / "best.safetensors").exists()
    assert ("No model is kept: " in said) != (tmp_path / "run" / "best.safetensors").exists()
    found = Updates.read(tmp_path / "run")
    assert found is not None
    assert found.limit is None
    assert len(found.step) >= 1


def test_many_updates_are_thinned_to_the_largest() -> None:
    norms = torch.rand(1001, dtype=torch.float64).numpy()
    norms[3], norms[7] = math.nan, 5.0
    steps = torch.arange(1, 1002).numpy()
    few, each = Updates(steps, norms, norms, norms, norms > 0.99, {"a": norms}, None).thinned(100)
    assert each == 11
    assert len(few.step) == 91
    assert few.norm[0] == few.layers["a"][0] == 5.0
    assert few.step[:2].tolist() == [11, 22]
    assert few.step[-1] == 1001
    assert few.clipped.tolist() == [bool((norms[i : i + 11] > 0.99).any()) for i in range(0, 1001, 11)]


def test_the_figure_marks_clipped_updates() -> None:
    from matplotlib.figure import Figure

    steps = torch.arange(1, 901).numpy()
    norms = torch.rand(900, dtype=torch.float64).numpy() + 0.1
    axis = Figure().subplots()
    draw_norms(axis, Updates(steps, norms, norms, norms, norms > 1.0, {"low": norms / 9, "high": norms / 2}, 1.0))
    found = {str(line.get_label()): line for line in axis.get_lines()}
    count = int((norms > 1.0).sum())
    assert list(found) == ["all", "high", "low", f"clipped: {count} of 900 updates", "clip_norm 1"]
    assert found["all"].get_ydata().tolist() == norms.tolist()  # type: ignore[union-attr]
    assert found[f"clipped: {count} of 900 updates"].get_xdata().tolist() == steps[norms > 1.0].tolist()  # type: ignore[union-attr]
    assert found["low"].get_ydata()[1] == pytest.approx(sorted(norms[3:6])[1] / 9)  # type: ignore[index]


def test_curves_need_an_evaluation(text: Path, tmp_path: Path) -> None:
    assert curves(tmp_path, "nats_per_token") is None
    for metric in ("nats_per_token", "perplexity"):
        api.train("generate", train=text, out=tmp_path / metric, set=SETTINGS, quiet=True)
        picture = curves(tmp_path / metric, metric)
        assert picture is not None
        assert picture.startswith(b"\x89PNG")
