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
from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.tasks.forecast.config import ForecastConfig

SMALL: dict[str, Any] = {
    "model.hidden_size": 8,
    "model.dropout": 0.0,
    "train.batch_size": 4,
    "train.window": 20,
    "train.max_steps": 6,
    "train.eval_every": 3,
}


def waves(steps: int = 400, seed: int = 0) -> np.ndarray:
    t = np.arange(steps)
    noise = np.random.default_rng(seed).normal(0, 0.05, (steps, 2))
    return np.stack([50 + 10 * np.sin(t / 5), np.cos(t / 5)], axis=1) + noise * [10, 1]


def table(path: Path, values: np.ndarray, names: str = "a,b") -> Path:
    np.savetxt(path, values, delimiter=",", header=names, comments="", fmt="%.9g")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("data") / "waves.csv", waves())


@pytest.fixture(scope="module")
def model(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    keys = {**SMALL, "train.max_steps": 60, "train.eval_every": 20}
    return api.train("forecast", train=file, out=tmp_path_factory.mktemp("runs") / "waves", set=keys, quiet=True)


def small(file: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train("forecast", train=file, out=folder, set={**SMALL, **keys}, quiet=True)


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
    with pytest.raises(UserError, match="predicts no input: it cannot go on by itself"):
        model.predict(u, steps=3)


def test_arrays_with_targets(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 1, (300, 2))
    np.savez(tmp_path / "a.npz", inputs=x, targets=x.sum(1), lengths=[100, 150, 50])
    model = small(tmp_path / "a.npz", tmp_path / "run")
    assert model.assets.roles.targets == ("target 1",)
    assert model.scores["skill"] > 0.99  # a linear law, which the start of training knows already


def test_missing_values_are_read_and_not_scored(tmp_path: Path) -> None:
    values = waves()
    holes = np.random.default_rng(1).random(values.shape) < 0.2
    values[holes] = np.nan
    path = tmp_path / "a.csv"
    lines = [",".join("" if np.isnan(v) else f"{v:.6g}" for v in row) for row in values]
    path.write_text("a,b\n" + "\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"a\.csv:\d+, column '.' is empty or NaN"):
        small(path, tmp_path / "refused")
    model = small(path, tmp_path / "run", data__missing="mask", train__max_steps=60)
    scores = model.evaluate(path)
    assert scores["skill"] > 0.3
    with model.stream() as stream:
        predictions = stream.feed(values)
    (tmp_path / "empty.csv").write_text("a,b\n1,2\n,\n,\n")
    with pytest.raises(UserError, match="Nothing can be scored: every target is missing"):
        model.evaluate(tmp_path / "empty.csv")
    here = ~np.isnan(values[1:])
    errors = (predictions[:-1] - values[1:])[here]
    assert scores["mse"] == pytest.approx(np.mean(errors**2), rel=1e-3)


def test_validation_is_the_end_and_scales_come_from_the_rest(tmp_path: Path) -> None:
    """The end of each series is a thousand times larger: nothing of training may know it."""
    values = np.random.default_rng(0).normal(0, 1, (100, 1))
    values[80:] *= 1000
    path = tmp_path / "a.npz"
    np.savez(path, inputs=np.concatenate([values, values]), lengths=[100, 100])
    config = api.configure("forecast", [], {**SMALL, "data.train": str(path)})
    job = TrainingJob(config)
    assert [len(part.series.values) for part in job.data.train.parts] == [80, 80]
    assert [part.first for part in job.data.valid.parts] == [80, 80]
    assert job.assets.scale[0] == pytest.approx(values[:80].std())
    assert job.data.valid.rows == 40
    steps = job.task.batches(config, job.assets, job.data.valid, training=False)
    assert int((~steps[0].targets.isnan()).sum()) == 40


def test_ragged_series_equal_each_alone(file: Path, model: Model, tmp_path: Path) -> None:
    """Sums of squared errors over series evaluated together are those of each by itself."""
    parts = [waves(50, 1), waves(3, 2), waves(120, 3)]
    total = 0.0
    for index, part in enumerate(parts):
        scores = model.evaluate(table(tmp_path / f"{index}.csv", part))
        total += scores["mse"] * scores["steps"]
    rows = [f"{i},{a},{b}" for i, part in enumerate(parts) for a, b in part]
    (tmp_path / "all.csv").write_text("s,a,b\n" + "\n".join(rows) + "\n")
    keys = {**SMALL, "data.sequence_column": "s", "data.train": str(tmp_path / "all.csv")}
    job = TrainingJob(api.configure("forecast", [], {**keys, "data.input_columns": "a,b"}))
    together = Model(job.task, job.config, model.assets, model.network)
    scores = together.evaluate(tmp_path / "all.csv")
    assert scores["series"] == 3
    assert scores["mse"] * scores["steps"] == pytest.approx(total, rel=1e-4)


def test_a_long_series(tmp_path: Path) -> None:
    """A hundred thousand steps train, score and stream."""
    path = tmp_path / "long.npz"
    values = waves(100_000)
    np.savez(path, inputs=values.astype(np.float32))
    with pytest.raises(UserError):  # (N, T, D) without lengths would be as many sequences as steps
        TrainingJob(api.configure("forecast", [], {"data.train": str(path)}))
    np.savez(path, inputs=values.astype(np.float32), lengths=[100_000])
    model = small(path, tmp_path / "run", train__window=100, train__batch_size=32, train__max_steps=4)
    assert model.evaluate(path)["steps"] == 99_999


RESUMED: dict[str, Any] = {
    "model.dropout": 0.2,
    "model.zoneout": 0.1,
    "train.teacher_forcing": "linear",
    "train.weight_noise": 0.02,
    "train.max_steps": 14,
    "train.eval_every": 4,
    "train.threads": 1,
}


def test_resumed_it_ends_with_the_same_bits(file: Path, tmp_path: Path) -> None:
    assert_resumed_is_as_if_never_stopped("forecast", file, {**SMALL, **RESUMED}, tmp_path, stops=(1, 2, 3))


def test_training_goes_on_from_a_model(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "old.safetensors")
    path = table(tmp_path / "more.csv", waves(200, 9))
    keys = {"train.max_steps": 1, "train.lr": 1e-9, "train.window": 20}
    tuned = api.train(
        "forecast", train=path, init=tmp_path / "old.safetensors", out=tmp_path / "r", set=keys, quiet=True
    )
    assert tuned.assets == model.assets
    np.testing.assert_allclose(tuned.predict(waves(50)), model.predict(waves(50)), rtol=1e-4)


def test_a_trace_shows_the_gates(model: Model) -> None:
    trace = model.trace(waves(30))
    assert trace.gates["l0"]["f"].shape == (30, 8)


def test_sampling_draws_from_the_distribution(tmp_path: Path) -> None:
    """Coins of a known chance: half of the draws of a fair one are ones, and a seed repeats them."""
    coins = (np.random.default_rng(3).random((600, 2)) < [0.5, 0.9]).astype(float)
    model = small(table(tmp_path / "coins.csv", coins), tmp_path / "run", train__max_steps=20)
    drawn = model.predict(coins, steps=1000, sample=True, seed=1)
    assert np.array_equal(drawn, model.predict(coins, steps=1000, sample=True, seed=1))
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert drawn.mean(0) == pytest.approx([0.5, 0.9], abs=0.12)


def test_mistakes_in_a_call(model: Model) -> None:
    with pytest.raises(UserError, match=r"Unknown predict option 'step'\. Did you mean 'steps'"):
        model.predict(waves(5), step=1)
    with pytest.raises(UserError, match=r"Rows have shape \(5, 3\)\. Expected \(steps, 2\): a, b\."):
        model.predict(np.zeros((5, 3)))
    with pytest.raises(UserError, match=r"Row 2, column 'b' is nan\. The model was not trained with data\.missing"):
        model.predict([[1, 2], [3, math.nan]])
    with pytest.raises(UserError, match="Rows must be numbers, got"):
        model.predict([["x", "y"]])
    with pytest.raises(UserError, match="There is no distribution to draw from"):
        model.predict(waves(5), steps=2, sample=True)
    with pytest.raises(UserError, match=r"Row 1, column 'a' is inf\. Expected finite numbers\."):
        model.predict([[math.inf, 2]])
    with pytest.raises(
        UserError, match=r"Row 2, column 'b': 1e\+39 is too large for the model\. Expected numbers with"
    ):
        model.predict([[1, 2], [3, 1e39]])
    for steps in (0, -1, 2.5, True, "3"):
        with pytest.raises(UserError, match=r"steps=.* is no number of steps\. Expected a whole number from 1 on\."):
            model.predict(waves(5), steps=steps)
    for data in (waves(5), None):
        with pytest.raises(UserError, match=r"is (ndarray|NoneType).*Expected the path of a file"):
            model.evaluate(data)


def test_a_number_too_large_in_a_file(model: Model, tmp_path: Path) -> None:
    values = waves(5)
    values[2, 1] = 1e39
    path = table(tmp_path / "a.csv", values)
    with pytest.raises(UserError, match=r"a\.csv:4, column 'b': 1e\+39 is too large for the model"):
        model.evaluate(path)


def test_a_continuation_without_bounds_is_said(model: Model) -> None:
    with model.stream() as stream:
        stream.feed(waves(5))
        stream.estimate = torch.full_like(stream.estimate, math.inf)
        with pytest.raises(UserError, match=r"Step 1 of the continuation is no finite number\. Ask for fewer steps\."):
            stream.roll_out(3)


@pytest.mark.parametrize("targets", [False, True])
def test_empty_sequences_are_left_out_with_a_note(targets: bool, tmp_path: Path) -> None:
    path, values = tmp_path / "a.npz", waves(251)
    more = {"targets": values.sum(1)} if targets else {}
    np.savez(path, inputs=values, lengths=[50, 0, 1, 80, 120], **more)
    with pytest.warns(Note, match=r"[12] of 5 series are shorter than the horizon and left out: .*sequence 2\."):
        model = small(path, tmp_path / "run")
    with pytest.warns(Note, match="left out"):
        assert model.evaluate(path)["series"] == (4 if targets else 3)


@pytest.mark.parametrize(
    ("values", "changes", "message"),
    [
        (np.ones((50, 2)) * 7, {}, "Nothing to learn: 'a', 'b' never changes in the training part."),
        (waves(3), {"data.horizon": 5}, "has 3 rows, too few to predict 5 steps ahead. Give series of at least 6"),
        (waves(8), {"data.horizon": 7}, "No series is long enough to hold out its end"),
        (waves(50), {"data.target_columns": "c"}, "has no column of numbers 'c'. It has: a, b."),
        (waves(50), {"data.input_columns": "c"}, "has no column 'c'. Its columns: a, b."),
        (waves(50), {"data.horizon": 0}, "There are 2 input and 0 target columns. Set data.input_columns and"),
        (
            waves(50),
            {"data.horizon": 0, "data.input_columns": "a", "data.target_columns": "a"},
            "With data.horizon=0 the column 'a' would be read to predict itself.",
        ),
        (waves(50), {"data.horizon": [3, 1]}, "expected 0, or steps ahead that rise, such as 1 or [1, 6, 24]"),
        (waves(50), {"model.quantiles": [0.5, 2]}, "quantiles must rise and lie between 0 and 1"),
        (
            waves(50),
            {"data.horizon": 2, "train.teacher_forcing": "linear"},
            "The model predicts 2 steps ahead, not the next one. Train with 1 among data.horizon.",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, (str, dict)) else "",
)
def test_mistakes_in_data_and_config(values: np.ndarray, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", values)
    with pytest.raises(UserError) as caught:
        TrainingJob(api.configure("forecast", [], {"data.train": str(path), **changes}))
    assert message in str(caught.value)


def test_a_probability_is_of_zeros_and_ones(file: Path, tmp_path: Path) -> None:
    message = r"column 'a' holds other numbers than 0 and 1\. Correct it, or train with model\.loss=mse or gaussian\."
    with pytest.raises(UserError, match=message):
        small(file, tmp_path / "refused", model__loss="bernoulli")
    coins = (waves() > waves().mean(0)).astype(float)
    model = small(table(tmp_path / "coins.csv", coins), tmp_path / "run")
    with pytest.raises(UserError, match=message):
        model.evaluate(file)


def test_notes_about_odd_data(tmp_path: Path) -> None:
    constant = waves(50)
    constant[:, 0] = 7
    path = table(tmp_path / "a.csv", constant)
    with pytest.warns(Note, match=r"Never changing in the training part: 'a'\."):
        TrainingJob(api.configure("forecast", [], {"data.train": str(path)}))
    np.savez(tmp_path / "a.npz", inputs=waves(61), lengths=[60, 1])
    with pytest.warns(Note, match=r"1 of 2 series are shorter than the horizon and left out: .*sequence 2\."):
        TrainingJob(api.configure("forecast", [], {"data.train": str(tmp_path / "a.npz")}))


def test_check_says_what_will_be_done(file: Path) -> None:
    facts = api.check("forecast", extra={**SMALL, "data.train": str(file)}).facts
    assert facts["inputs"] == "a, b"
    assert facts["steps ahead"] == "1"
    assert facts["train series / rows"] == "1 / 320"
    assert facts["valid rows"] == 80


def test_the_embedded_data_is_named() -> None:
    config = api.configure("forecast")
    assert isinstance(config, ForecastConfig)
    assert "a membrane potential" in TrainingJob(config).data.source
