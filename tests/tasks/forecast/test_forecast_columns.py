"""Columns that forecast reads: missing values, scales, several series."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from tests.tasks.forecast.conftest import SMALL, small, table, waves
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.tasks.forecast.config import ForecastConfig


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
    """Thirty thousand steps train, score and stream."""
    path = tmp_path / "long.npz"
    values = waves(30_000)
    np.savez(path, inputs=values.astype(np.float32))
    with pytest.raises(UserError):  # (N, T, D) without lengths would be as many sequences as steps
        TrainingJob(api.configure("forecast", [], {"data.train": str(path)}))
    np.savez(path, inputs=values.astype(np.float32), lengths=[30_000])
    model = small(path, tmp_path / "run", train__window=100, train__batch_size=32, train__max_steps=4)
    assert model.evaluate(path)["steps"] == 29_999


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
    with pytest.raises(UserError, match="This model has no distribution to sample from"):
        model.predict(waves(5), steps=2, sample=True)
    with pytest.raises(UserError, match=r"Row 1, column 'a' is inf\. Expected finite numbers\."):
        model.predict([[math.inf, 2]])
    with pytest.raises(
        UserError, match=r"Row 2, column 'b': 1e\+39 is too large for the model\. Expected numbers with"
    ):
        model.predict([[1, 2], [3, 1e39]])
    for steps in (0, -1, 2.5, True, "3"):
        with pytest.raises(UserError, match=r"steps=.* is not a number of steps\. Expected a whole number from 1 on\."):
            model.predict(waves(5), steps=steps)
    with pytest.raises(UserError, match=r"^ndarray of 5×2 numbers has no column 'a'\. Its columns: 1, 2\.$"):
        model.evaluate(waves(5))
    with pytest.raises(UserError, match=r"^There is no data to evaluate on: it is None\. Expected a path, a DataFrame"):
        model.evaluate(None)


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
        with pytest.raises(UserError, match=r"Step 1 of the continuation is not finite\. Ask for fewer steps\."):
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
