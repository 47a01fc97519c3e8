"""Both directions and the Transformer in `forecast`: a vector for each frame, and nothing of the future."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.tasks.forecast.conftest import SMALL, small, table, waves
from tests.tolerances import assert_close
from unrolled import Model, UserError, api
from unrolled.models.encoder_layers import EncoderLayerSettings, TransformerLayers
from unrolled.models.forecaster import Forecaster
from unrolled.models.windowed_transformer import WindowedTransformer
from unrolled.tasks import Request

ENCODER: dict[str, Any] = {
    "model__kind": "transformer",
    "model__heads": 2,
    "model__num_layers": 2,
    "model__feedforward": 12,
    "model__context": 16,
}
PLAIN: dict[str, Any] = {"model__lags": 0, "model__changes": False}


def layers(bidirectional: bool, context: int = 8) -> WindowedTransformer:
    settings = EncoderLayerSettings(
        kind="transformer", hidden_size=8, heads=2, num_layers=2, feedforward=12, dropout=0, bidirectional=bidirectional
    )
    return WindowedTransformer(settings, 3, context).eval()


def whole(layer: WindowedTransformer, x: torch.Tensor) -> torch.Tensor:
    """The same weights over one window that is given as a whole."""
    output: torch.Tensor = TransformerLayers.forward(layer, x[None])[0][0]
    return output


def test_a_step_is_encoded_in_its_window_of_the_past() -> None:
    """Step t of block k = t // 4 is the last step of the whole encoder on the steps from 4 (k − 1) to t."""
    layer, x = layers(bidirectional=False), torch.randn(2, 19, 3)
    output, (kept, count) = layer(x)
    for t in range(19):
        start = max(0, (t // 4 - 1) * 4)
        for row in range(2):
            assert_close(output[row, t], whole(layer, x[row, start : t + 1])[-1])
    assert count.tolist() == [19, 19]
    assert torch.equal(kept, x[:, 11:])


def test_a_step_is_encoded_in_its_window_of_both_sides() -> None:
    """Block k is read from 4 k − 2 on, 8 steps, moved to lie inside the series."""
    layer, x, lengths = layers(bidirectional=True), torch.randn(3, 19, 3), [19, 9, 5]
    x[1, 9:], x[2, 5:] = torch.nan, torch.nan
    output, state = layer(x, lengths=torch.tensor(lengths))
    assert state == ()
    for row, length in enumerate(lengths):
        for t in range(length):
            start = min(max(0, t // 4 * 4 - 2), max(0, length - 8))
            expected = whole(layer, x[row, start : min(start + 8, length)])[t - start]
            assert_close(output[row, t], expected)
        assert not output[row, length:].any()


@pytest.mark.parametrize("cut", [1, 3, 8, 13])
def test_pieces_resets_and_lengths_change_nothing(cut: int) -> None:
    layer, x = layers(bidirectional=False), torch.randn(2, 21, 3)
    expected, state, found = layer(x)[0], None, []
    for start in range(0, 21, cut):
        output, state = layer(x[:, start : start + cut], state)
        found.append(output)
    assert_close(torch.cat(found, dim=1), expected)
    again, _ = layer(x[:, :6], state, resets=torch.tensor([True, False]))
    assert_close(again[0], expected[0, :6])
    assert not torch.allclose(again[1], expected[1, :6], atol=1e-3)
    short, state = layer(x, lengths=torch.tensor([5, 21]))
    assert_close(short[0, :5], expected[0, :5])
    after, _ = layer(x[:, 5:9], state)
    assert_close(after[0], expected[0, 5:9])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_attention_is_shown_over_the_whole_series(bidirectional: bool) -> None:
    layer, x = layers(bidirectional), torch.randn(1, 19, 3)
    output, weights = layer.visible(x)
    assert_close(output, layer(x)[0])
    assert weights.shape == (1, 2, 2, 19, 19)
    assert_close(weights.sum(-1), torch.ones(1, 2, 2, 19))
    if not bidirectional:
        assert not weights.triu(1).any()


@pytest.fixture(scope="module")
def causal(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return small(file, tmp_path_factory.mktemp("causal") / "run", **ENCODER)


def test_a_causal_forecaster_streams_to_the_bit(causal: Model) -> None:
    rows = waves(50, seed=2)
    stream, answers = causal.stream(), []
    for cuts in ([50], list(range(1, 51)), [7, 20, 50]):
        stream.restart()
        answers.append(np.concatenate([stream.feed(rows[a:b]) for a, b in zip([0, *cuts[:-1]], cuts, strict=True)]))
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])
    changed = rows.copy()
    changed[30:] += 5
    stream.restart()
    assert np.array_equal(stream.feed(changed)[:30], answers[0][:30])
    np.testing.assert_allclose(causal.predict(rows), answers[0][-1:], rtol=1e-6)
    assert causal.predict(rows, steps=3).shape == (3, 2)


def test_training_and_evaluation_read_what_streams_read(causal: Model, file: Path) -> None:
    """The scores of windows of many rows equal those of rows one by one."""
    values = np.loadtxt(file, delimiter=",", skiprows=1)
    forecasts = causal.stream().feed(values)
    expected = np.square(forecasts[:-1] - values[1:]).mean()
    assert causal.evaluate(file)["mse"] == pytest.approx(expected, rel=1e-4)


def aligned(path: Path, steps: int = 300) -> Path:
    """y is the mean of x over the step before, this one and the next: only one who sees the future is right."""
    x = np.random.default_rng(0).normal(0, 1, steps)
    y = np.convolve(np.pad(x, 1, mode="edge"), np.ones(3) / 3, mode="valid")
    return table(path, np.stack([x, y], axis=1), "x,y")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    folder = tmp_path_factory.mktemp("both")
    path = aligned(folder / "smooth.csv")
    keys = {"data__target_columns": "y", "data__horizon": 0, "model__bidirectional": True}
    fit = {"train__max_steps": 150, "train__lr": 0.02, "train__eval_every": 50, "train__window": 60}
    return small(path, folder / "run", **keys, **fit), path


def test_both_directions_learn_what_needs_the_future(both: tuple[Model, Path], tmp_path: Path) -> None:
    """Of y = (x₋₁ + x + x₊₁) / 3 the past leaves Var(x) / 9 = 0.11."""
    model, path = both
    assert model.evaluate(path)["mse"] < 0.05
    network = model.network
    assert isinstance(network, Forecaster)
    assert network.head.in_features == 16


def test_both_directions_equal_torch(tmp_path: Path) -> None:
    path = aligned(tmp_path / "smooth.csv", 60)
    keys = {"data__target_columns": "y", "data__horizon": 0, "model__bidirectional": True, "model__cell": "gru"}
    model = small(path, tmp_path / "run", **keys, **PLAIN)
    network, frame = model.network.eval(), model.assets
    assert isinstance(network, Forecaster)
    theirs = nn.GRU(1, 8, batch_first=True, bidirectional=True)
    theirs.load_state_dict({k: v for k, v in network.layer.state_dict().items() if k in theirs.state_dict()})
    x = np.loadtxt(path, delimiter=",", skiprows=1)[:, :1]
    scaled = torch.from_numpy((x - frame.center[0]) / frame.scale[0]).float()
    raw = theirs(scaled[None])[0][0] @ network.head.weight.T + network.head.bias
    expected = frame.unscaled((raw * network.scale[0]).detach().numpy())
    np.testing.assert_allclose(model.predict(x), expected, atol=1e-5)


def test_whole_series_come_by_file_lines_and_python(both: tuple[Model, Path]) -> None:
    model, path = both
    x = np.loadtxt(path, delimiter=",", skiprows=1)[:, :1]
    expected = model.predict(x)[:, 0]
    by_file = "".join(model.runner.run(Request(files=[str(path)])))
    by_lines = "".join(model.runner.run(Request(lines=["x\n", *(f"{value:.9g}\n" for value in x[:, 0])])))
    assert by_file == by_lines
    np.testing.assert_allclose([float(line) for line in by_file.split()], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="This model reads from both ends, and needs the end of its input"):
        model.stream()


def test_a_transformer_of_both_directions_is_frame_wise(tmp_path: Path) -> None:
    path = aligned(tmp_path / "smooth.csv", 80)
    keys = {"data__target_columns": "y", "data__horizon": 0, "model__bidirectional": True, "data__start_row": True}
    model = small(path, tmp_path / "run", **keys, **ENCODER)
    x = np.loadtxt(path, delimiter=",", skiprows=1)[:, :1]
    assert model.predict(x).shape == (80, 1)
    again = api.load(tmp_path / "run")
    assert np.array_equal(again.predict(x), model.predict(x))


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_a_future_that_would_be_read_is_refused(kind: str, file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        small(file, tmp_path / "run", model__bidirectional=True, model__kind=kind, data__horizon=[1, 6])
    assert str(error.value) == (
        "model.bidirectional=true reads a series from both ends, and data.horizon=1, 6 asks for rows of it: the future "
        "would be read, not predicted. Use model.bidirectional=false; or data.horizon=0, with targets that are not "
        "inputs."
    )


def test_a_trace_shows_its_attention(causal: Model, both: tuple[Model, Path]) -> None:
    trace = causal.trace(waves(30))
    (seen,) = trace.attention.values()
    assert seen.weights.shape == (2, 2, 30, 30)
    assert "attention" in trace.kinds
    assert trace.missing["gates"].startswith("A Transformer has no recurrent states")
    assert {"l0", "l0_reverse"} == {*both[0].trace(np.zeros((6, 1))).layers}


def test_a_transformer_that_adds_nothing_is_said(file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", **ENCODER, train__max_steps=1)
    assert isinstance(model.network, Forecaster)
    model.network.head.weight.data.zero_()
    (remark,) = model.task.description.remarks(model)
    assert remark.startswith("The Transformer adds nothing: on the validation part no update was better")
    assert remark.endswith("Its attention is untrained, and gradients through it are exactly 0.")
    assert model.trace(waves(9)).notes == (remark,)


def test_the_defaults_of_earlier_models_stay() -> None:
    assert SMALL.keys().isdisjoint(ENCODER)
    settings = api.configure("forecast", [], {}).model  # type: ignore[attr-defined]
    assert (settings.kind, settings.bidirectional) == ("recurrent", False)
