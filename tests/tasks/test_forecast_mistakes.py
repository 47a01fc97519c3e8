"""Data of `forecast` that is odd or wrong, and what a check reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tasks import test_forecast
from tests.tasks.test_forecast import SMALL, small, table, waves
from unrolled import UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.tasks.forecast.config import ForecastConfig

file = test_forecast.file


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
