"""`forecast` from Python: it learns, scores, streams, goes on by itself, and resumes with the same bits."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unrolled
from tests.tasks.forecast.conftest import SMALL, small, table, waves
from unrolled import Model, UserError, api
from unrolled.jobs import TrainingJob


def log_prob(distribution: torch.distributions.Distribution, values: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = distribution.log_prob(values)
    return result


def test_it_learns(model: Model) -> None:
    """A noisy wave: nearly all of what changes from step to step can be known."""
    assert model.scores["skill"] > 0.7


def test_it_overfits_eight_series(tmp_path: Path) -> None:
    """Eight short noises, which nothing but memory can predict."""
    values = np.random.default_rng(0).normal(0, 1, (8 * 6, 4))
    np.savez(tmp_path / "eight.npz", inputs=values, lengths=[6] * 8)
    path = tmp_path / "eight.npz"
    keys = {**SMALL, "model.hidden_size": 48, "model.lags": 0, "train.max_steps": 300, "train.eval_every": 100}
    keys |= {"data.valid": str(path), "train.batch_size": 8, "train.lr": 0.02, "train.epochs": 300}
    learnt = api.train("forecast", train=path, out=tmp_path / "run", set=keys, quiet=True)
    assert learnt.evaluate(path)["mse"] < 0.01 * values.var()


def test_learns_what_no_linear_forecast_can(tmp_path: Path) -> None:
    """The logistic map: its autocorrelation is nothing, its next value a certainty."""
    x = [np.random.default_rng(0).uniform(0.2, 0.8)]
    for _ in range(1199):
        x.append(3.9 * x[-1] * (1 - x[-1]))
    path = table(tmp_path / "chaos.csv", np.array(x)[:, None], "x")
    keys = {"model.hidden_size": 32, "train.max_steps": 300, "train.eval_every": 100, "train.lr": 0.01}
    assert api.train("forecast", train=path, out=tmp_path / "run", set=keys, quiet=True).scores["skill"] > 0.9


def test_scores_are_their_definitions(model: Model, file: Path) -> None:
    """mse, mae and those of the naive forecasts from the streamed predictions, in the data's own units."""
    values = np.genfromtxt(file, delimiter=",", skip_header=1)
    with model.stream() as stream:
        predictions = stream.feed(values)
    scores = model.evaluate(file)
    errors = predictions[:-1] - values[1:]
    assert scores["mse"] == pytest.approx(np.mean(errors**2), rel=1e-4)
    assert scores["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-4)
    assert scores["last_mse"] == pytest.approx(np.mean((values[1:] - values[:-1]) ** 2), rel=1e-4)
    train = values[:320].mean(0)
    assert scores["mean_mse"] == pytest.approx(np.mean((values[1:] - train) ** 2), rel=1e-4)
    assert scores["steps"] == 399
    unit = np.array(model.assets.scale)
    naive = np.minimum(np.sum((np.diff(values, axis=0) / unit) ** 2), np.sum(((values[1:] - train) / unit) ** 2))
    assert scores["skill"] == pytest.approx(1 - np.sum((errors / unit) ** 2) / naive, rel=1e-3)
    column = scores["columns"]["b+1"]
    assert column["mse"] == pytest.approx(np.mean(errors[:, 1] ** 2), rel=1e-4)
    json.dumps(scores, allow_nan=False)


def test_free_running_scores_are_roll_outs(model: Model, file: Path) -> None:
    """One roll-out by `predict` for each origin, by hand."""
    values = np.genfromtxt(file, delimiter=",", skip_header=1)
    scores = model.evaluate(file)
    steps = scores["free_running_steps"]
    assert steps == 24
    origins = np.linspace(0, 399 - steps, 1 + (399 - steps) // steps).round().astype(int)
    errors = [model.predict(values[: o + 1], steps=steps) - values[o + 1 : o + 1 + steps] for o in origins]
    assert scores["free_running_mse"] == pytest.approx(np.mean(np.square(errors)), rel=1e-3)
    with model.stream() as stream:
        forced = stream.feed(values)
    near = [forced[o : o + steps] - values[o + 1 : o + 1 + steps] for o in origins]
    assert scores["teacher_forced_mse"] == pytest.approx(np.mean(np.square(near)), rel=1e-3)
    assert scores["exposure_gap"] == pytest.approx(scores["free_running_mse"] - scores["teacher_forced_mse"])


def test_roll_outs_fit_into_a_short_validation_part(tmp_path: Path) -> None:
    path = table(tmp_path / "short.csv", waves(50))
    config = api.configure("forecast", [], {**SMALL, "data.train": str(path), "train.free_running": True})
    job = TrainingJob(config)
    batches = job.task.batches(config, job.assets, job.data.valid, training=False)
    scores = job.task.evaluate(job.model, batches).scores
    assert scores["free_running_steps"] == 10
    assert scores["free_running_mse"] > 0


@pytest.mark.parametrize("loss", ["gaussian", "bernoulli"])
def test_nats_are_per_step_and_summed_over_columns(loss: str, tmp_path: Path) -> None:
    values = waves() if loss == "gaussian" else (waves() > waves().mean(0)).astype(float)
    path = table(tmp_path / "a.csv", values)
    model = small(path, tmp_path / "run", model__loss=loss)
    with model.stream() as stream:
        points = torch.from_numpy(stream.feed(values)[:-1])
        truth = torch.from_numpy(values[1:])
        if loss == "gaussian":
            deviation = torch.from_numpy(stream.details["deviation"][:-1])
            chances = log_prob(torch.distributions.Normal(points, deviation), truth)
        else:
            chances = log_prob(torch.distributions.Bernoulli(probs=points), truth)
    assert model.evaluate(path)["nll"] == pytest.approx(-float(chances.sum(-1).mean()), rel=1e-4)


@pytest.mark.parametrize("pieces", [[400], [1] * 60, [7, 13, 40], [59, 1]])
def test_a_stream_may_be_cut_anywhere(model: Model, pieces: list[int]) -> None:
    """To the bit: each row is a step of its own."""
    values = waves()[: sum(pieces)]
    with model.stream() as stream:
        whole = np.stack([stream.feed(row) for row in values])
    with model.stream() as stream:
        begin, parts = 0, []
        for piece in pieces:
            parts.append(stream.feed(values[begin : begin + piece]))
            begin += piece
    assert np.array_equal(np.concatenate(parts), whole)


def test_a_stream_keeps_nothing_of_the_past(model: Model) -> None:
    rows = waves(1000)
    with model.stream() as stream:
        stream.feed(rows[:200])
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for row in rows:
            stream.feed(row)
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert after - before < 20_000


def test_batches_and_streams_agree(model: Model) -> None:
    """Evaluation of series side by side equals each series alone, row by row."""
    first, second = waves(90), waves(31, seed=5)
    together = model.predict([first, second], steps=5)
    for series, answer in zip((first, second), together, strict=True):
        np.testing.assert_array_equal(answer, model.predict(series, steps=5))


def test_a_roll_out_reads_its_own_predictions(model: Model) -> None:
    values = waves(100)
    rolled = model.predict(values, steps=6)
    by_hand = []
    with model.stream() as stream:
        row = stream.feed(values)[-1]
        for _ in range(6):
            by_hand.append(row)
            row = stream.feed(row)
    np.testing.assert_allclose(rolled, by_hand, rtol=1e-5)
    np.testing.assert_array_equal(model.predict(values), rolled[:1])


def test_saved_and_loaded_is_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "copy.safetensors")
    loaded = unrolled.load(tmp_path / "copy.safetensors")
    assert loaded.assets == model.assets
    assert np.array_equal(loaded.predict(waves(50), steps=9), model.predict(waves(50), steps=9))


@pytest.mark.parametrize(
    "changes",
    [
        {"model__loss": "mae", "model__cell": "gru", "model__reset_after": False},
        {"model__loss": "gaussian", "model__front": [7, 5], "model__cell": "rnn"},
        {"model__loss": "quantiles", "model__quantiles": [0.05, 0.5, 0.95], "data__horizon": [1, 3, 12]},
        {"model__residual": False, "model__changes": False, "model__lags": 0},
        {"model__num_layers": 2, "model__layer_norm": True, "model__dropout": 0.1},
        {"data__scaling": "robust", "data__start_row": True},
        {"data__scaling": "none", "train__stateful": False},
        {"train__teacher_forcing": "linear", "train__free_running": True},
        {"train__teacher_forcing": "never"},
        {"train__teacher_forcing": "switch", "train__feedback": "steps", "model__cell": "gru"},
        {"train__weight_noise": 0.05, "train__optimizer": "rmsprop"},
        {"data__target_columns": "b", "data__horizon": 5},
        {"data__missing": "mask", "data__input_columns": ["a", "b"]},
    ],
    ids=lambda changes: " ".join(f"{k}={v}" for k, v in changes.items()),
)
def test_every_option_trains_saves_and_predicts(changes: dict[str, Any], file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", **changes)
    loaded = unrolled.load(tmp_path / "run")
    answer = model.predict(waves(60))
    assert np.isfinite(answer).all()
    assert answer.shape == (len(model.assets.roles.horizons), len(model.assets.roles.targets))
    assert np.array_equal(loaded.predict(waves(60)), answer)
    scores = loaded.evaluate(file)
    assert all(math.isfinite(value) for value in scores.values() if not isinstance(value, dict))


def test_an_aligned_target_is_of_the_same_step(tmp_path: Path) -> None:
    """A control signal: what two inputs have added up to so far, with a leak."""
    random = np.random.default_rng(0)
    u = random.normal(0, 1, (600, 2))
    y = np.zeros((600, 1))
    for t in range(600):
        y[t] = 0.8 * y[t - 1] + u[t, 0] - 2 * u[t, 1]
    path = table(tmp_path / "plant.csv", np.concatenate([u, y], 1), "u1,u2,y")
    keys = {**SMALL, "data.input_columns": ["u1", "u2"], "data.target_columns": "y", "train.max_steps": 100}
    model = api.train("forecast", train=path, out=tmp_path / "run", set=keys, quiet=True)
    assert model.assets.roles.horizons == (0,)
    assert model.scores["skill"] > 0.95  # against the mean: there is no last value to go by
    answer = model.predict(u)
    assert answer.shape == (600, 1)
    assert np.mean((answer[100:] - y[100:]) ** 2) < 0.05 * y.var()
    with pytest.raises(UserError, match="does not predict its inputs: it cannot roll out"):
        model.predict(u, steps=3)


def test_arrays_with_targets(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 1, (300, 2))
    np.savez(tmp_path / "a.npz", inputs=x, targets=x.sum(1), lengths=[100, 150, 50])
    model = small(tmp_path / "a.npz", tmp_path / "run")
    assert model.assets.roles.targets == ("target 1",)
    assert model.scores["skill"] > 0.99  # a linear law, which the start of training knows already
