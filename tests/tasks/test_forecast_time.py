"""`forecast` and time: order, series, periods and roles of columns, in training, scores, answers and model files."""

from __future__ import annotations

import csv
import json
import re
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_generate import call
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.model_file import read_about
from unrolled.tasks import Forecast
from unrolled.tasks.forecast.config import ForecastConfig
from unrolled.tasks.forecast.options import read_horizon

SMALL: dict[str, Any] = {
    "model.hidden_size": 8,
    "train.batch_size": 4,
    "train.window": 20,
    "train.max_steps": 4,
    "train.eval_every": 2,
}
HOURS = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(240)]
LOAD = 50 + 10 * np.sin(2 * np.pi * np.arange(240) / 24) + np.random.default_rng(0).normal(0, 1, 240)


def write(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def small(path: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train("forecast", train=path, out=folder, set={**SMALL, **keys}, quiet=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two series by the hour, with an input that says the hour."""
    rows = [[s, str(t), t.hour, f"{(1 + s) * y:.4f}"] for t, y in zip(HOURS, LOAD, strict=True) for s in (0, 1)]
    return write(tmp_path_factory.mktemp("data") / "two.csv", ["store", "date", "clock", "load"], rows)


@pytest.fixture(scope="module")
def folder(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "two"
    small(file, out, model__loss="gaussian", data__target_columns="load")
    return out


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return api.load(folder)


def test_a_newest_first_file_trains_on_the_past(tmp_path: Path) -> None:
    """It becomes the model that the file in order becomes, bit for bit."""
    rows = [[str(t), f"{y:.4f}"] for t, y in zip(HOURS, LOAD, strict=True)]
    right = small(write(tmp_path / "a.csv", ["date", "load"], rows), tmp_path / "a")
    with pytest.warns(Note, match="rows are newest first"):
        turned = small(write(tmp_path / "b.csv", ["date", "load"], rows[::-1]), tmp_path / "b")
    assert turned.scores == right.scores
    assert right.assets.roles.inputs == ("load",)


def test_roles_are_found_and_kept(model: Model, folder: Path) -> None:
    frame = model.assets
    assert (frame.roles.inputs, frame.roles.targets) == (("clock", "load"), ("load",))
    assert (frame.time, frame.series, str(frame.step), frame.period) == (("date",), ("store",), "hourly", 24)
    out = call("info", folder)[1]
    assert "inputs      clock, load\n" in out
    assert "targets     load (1 step ahead)\n" in out
    assert "time        date (hourly)\n" in out
    assert "series      store\n" in out
    assert "period      24 rows (1 day)\n" in out
    assert json.loads(call("info", folder, "--json")[1])["roles"]["series"] == "store"


def test_roles_are_said_before_training_and_by_check(file: Path, tmp_path: Path) -> None:
    words = [f"--set={key}={value}" for key, value in {**SMALL, "data.target_columns": "load"}.items()]
    err = call("train", "forecast", "--train", file, "--out", tmp_path / "run", *words)[2]
    assert "inputs    clock, load\ntargets   load (1 step ahead)\ntime      date (hourly)\nseries    store\n" in err
    out = call("check", "forecast", "--train", file, "--horizon", "1,24", *words)[1]
    assert "date (hourly)" in out
    assert "load (1, 24 steps ahead)" in out
    assert "6 of 6" not in out
    assert "2 of 2: the ends of 2 series are held out" in out


def test_check_of_series_in_a_valid_file(file: Path, tmp_path: Path) -> None:
    rows = list(csv.reader(file.open()))
    other = write(tmp_path / "valid.csv", rows[0], rows[1:101])
    keys = {**SMALL, "data.train": str(file), "data.valid": str(other), "data.target_columns": "load"}
    facts = api.check("forecast", extra=keys).facts
    assert facts["valid series also in train"] == "2 of 2, by store; 100 valid rows at times of training"


def test_time_and_series_can_be_switched_off(file: Path, tmp_path: Path) -> None:
    with pytest.warns(Note, match="left out, since they are not numbers: 'date'"):
        model = small(file, tmp_path / "run", data__time_column="none", data__sequence_column="none")
    assert model.assets.roles.inputs == ("store", "clock", "load")
    assert (model.assets.time, model.assets.series) == ((), ())


@pytest.mark.parametrize("horizon", ["data.horizon=1,24", "data.horizon=[1, 24]"])
def test_several_horizons_with_a_comma(horizon: str) -> None:
    assert api.configure("forecast", [horizon]).data.horizon == [1, 24]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["1,6"], [1, 6]),
        (["[1,6]"], [1, 6]),
        (["[1, 6, 24]"], [1, 6, 24]),
        (["[3]"], 3),
        (["1", "[6, 24]"], [1, 6, 24]),
    ],
)
def test_horizons_of_the_command_line(given: list[str], meant: Any) -> None:
    assert read_horizon(given) == meant


@pytest.mark.parametrize("typed", ["[1,6", "1,x", "[]", "1,,6", "[[1]]"])
def test_a_mistake_in_a_horizon_is_cited_whole(typed: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"--horizon {typed!r} is not a number of steps. Expected whole")):
        read_horizon([typed])


def test_the_seasonal_forecast_is_its_definition(model: Model, file: Path) -> None:
    scores = model.evaluate(file)
    errors, ours = [], []
    for store in (0, 1):
        rows = [row for row in csv.DictReader(file.open()) if row["store"] == str(store)]
        values = np.array([[float(row["clock"]), float(row["load"])] for row in rows])
        with model.stream() as stream:
            said = stream.feed(values)[:-1, 0]
        truth = values[1:, 1]
        errors.append((truth[23:] - values[:-24, 1]) ** 2)  # of row t + 1, from row t + 1 − 24
        ours.append((truth[23:] - said[23:]) ** 2)
    assert scores["seasonal_mse"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert scores["seasonal_skill"] == pytest.approx(1 - np.sum(ours) / np.sum(errors), rel=1e-3)
    assert scores["columns"]["load+1"]["seasonal_skill"] == pytest.approx(scores["seasonal_skill"])
    assert {"last_mse", "mean_mse", "skill", "free_running_seasonal_skill"} <= set(scores)
    assert "seasonal_skill" in model.scores


@pytest.mark.parametrize(("period", "kept"), [("none", None), (7, 7)])
def test_a_period_of_ones_own(file: Path, period: Any, kept: int | None) -> None:
    keys = {**SMALL, "data.train": str(file), "data.period": period, "data.target_columns": "load"}
    job = TrainingJob(api.configure("forecast", [], keys))
    assert job.assets.period == kept
    with pytest.raises(UserError, match=r"data\.period=0: expected a number of rows from 1 on"):
        api.configure("forecast", ["data.period=0"])


def test_answers_have_series_and_time(folder: Path, file: Path) -> None:
    records = [json.loads(line) for line in call("run", folder, file, "--json")[1].splitlines()]
    rows = list(csv.DictReader(file.open()))
    assert [(one["store"], one["date"]) for one in records] == [(row["store"], row["date"]) for row in rows]
    assert list(records[0]) == ["store", "date", "load+1", "load+1_deviation"]
    given = file.read_text()
    assert [json.loads(line) for line in call("run", folder, "--json", given=given)[1].splitlines()] == records
    without = "\n".join(",".join([row["store"], row["clock"], row["load"]]) for row in rows)
    plain = call("run", folder, given="store,clock,load\n" + without)[1]
    assert plain == call("run", folder, file)[1]  # times may be absent


def test_columns_can_be_kept(model: Model, file: Path) -> None:
    from unrolled.tasks import Request

    def request(*keep: str) -> Request:
        return Request(files=[str(file)], format="csv", keep=keep)

    lines = "".join(model.runner.run(request("clock", "load"))).splitlines()
    assert lines[0] == "store,date,clock,load,load+1,load+1_deviation"
    assert lines[1].startswith("0,2024-01-01 00:00:00,0,")
    text = "".join(model.runner.run(Request(lines=file.read_text().splitlines(), keep=("date",)))).splitlines()
    assert text[0].startswith("2024-01-01 00:00:00\t")
    with pytest.raises(UserError, match=r"has no column 'nothing'\. Its columns: store, date, clock, load\."):
        list(model.runner.run(request("nothing")))
    with pytest.raises(UserError, match=r"--keep is for rows that were given, and --steps goes beyond them\."):
        list(model.runner.run(request("load"), steps=2, hold_inputs=True))


def test_an_unsorted_file_is_answered_in_its_order(folder: Path, file: Path, tmp_path: Path) -> None:
    """Each row with its own past, whatever stands before it in the file."""
    lines = file.read_text().splitlines()
    turned = tmp_path / "turned.csv"
    turned.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    with pytest.warns(Note, match="rows are newest first"):
        out = call("run", folder, turned, "--json")[1]
    assert out.splitlines() == call("run", folder, file, "--json")[1].splitlines()[::-1]
    code, _, err = call("run", folder, given=turned.read_text())
    assert code == 2
    assert "Standard input, line 4: the time goes back to '2024-01-10 22:00:00'. Give rows oldest first" in err


def test_inputs_without_a_future_are_held_only_if_asked(folder: Path, file: Path, model: Model) -> None:
    code, out, err = call("run", folder, file, "--steps", "3")
    assert (code, out) == (2, "")
    assert "The model reads 'clock', which it does not predict: its future is unknown. Hold it at its last" in err
    with pytest.raises(UserError, match="--hold-inputs, from Python hold_inputs=True"):
        model.predict(np.ones((5, 2)), steps=2)
    with pytest.warns(Note, match=r"Not predicted, and held at the last value: 'clock'\."):
        records = call("run", folder, file, "--steps", "3", "--hold-inputs", "--json")[1].splitlines()
    times = [(one["store"], one["date"], one["step"]) for one in map(json.loads, records)]
    assert times[:3] == [
        ("0", "2024-01-11 00:00:00", 1),
        ("0", "2024-01-11 01:00:00", 2),
        ("0", "2024-01-11 02:00:00", 3),
    ]
    with pytest.raises(UserError, match="hold_inputs is for a forecast of several steps"):
        model.predict(np.ones((5, 2)), hold_inputs=True)


def test_nothing_to_hold_is_said(file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", data__input_columns="load", model__loss="gaussian", train__max_steps=1)
    with pytest.warns(Note, match=r"predicts all of its inputs: hold_inputs changes not"):
        held = model.predict(np.ones((5, 1)), steps=2, hold_inputs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (model.predict(np.ones((5, 1)), steps=2) == held).all()
        model.predict(np.ones((5, 1)), steps=2, interval=0.9)


def test_intervals_of_a_gaussian(model: Model, folder: Path, file: Path) -> None:
    rows = np.stack([np.array([t.hour for t in HOURS]), LOAD], 1)
    point, lower, upper = model.predict(rows, interval=0.95)
    with model.stream() as stream:
        stream.feed(rows)
        half = 1.959964 * stream.details["deviation"][-1:]
    assert point == pytest.approx(model.predict(rows))
    assert lower == pytest.approx(point - half, rel=1e-5)
    assert upper == pytest.approx(point + half, rel=1e-5)
    record = json.loads(call("run", folder, file, "--interval", "0.95", "--json")[1].splitlines()[0])
    assert record["load+1_lower"] < record["load+1"] < record["load+1_upper"]
    for wrong in (0, 1, 95, True):
        with pytest.raises(UserError, match=r"not a probability\. Expected a number between 0 and 1, such as 0\.9\."):
            model.predict(rows, interval=wrong)


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_intervals_of_a_roll_out_are_those_of_many_samples(model: Model) -> None:
    rows = np.stack([np.array([t.hour for t in HOURS]), LOAD], 1)
    found = model.predict(rows, steps=6, interval=0.8, hold_inputs=True)
    draws = [model.predict(rows, steps=6, sample=True, seed=k, hold_inputs=True) for k in range(60)]
    inside = [(found.lower <= draw) & (draw <= found.upper) for draw in draws]
    assert 0.65 < np.mean(inside) < 0.95
    assert found.point == pytest.approx(model.predict(rows, steps=6, hold_inputs=True))
    widths = (found.upper - found.lower)[:, 0]
    assert widths[-1] > widths[0]
    again = model.predict(rows, steps=6, interval=0.8, hold_inputs=True)
    assert np.array_equal(again.lower, found.lower)


def test_intervals_of_quantiles_and_of_none(file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "q", model__loss="quantiles", data__input_columns="load")
    found = model.predict(LOAD[:, None], interval=0.8)
    with model.stream() as stream:
        stream.feed(LOAD[:, None])
        assert np.array_equal(found.lower, stream.details["q0.1"][-1:])
        assert np.array_equal(found.upper, stream.details["q0.9"][-1:])
    with pytest.raises(
        UserError, match=r"lies between the quantiles 0\.05 and 0\.95; the model has 0\.1, 0\.5, 0\.9\. Ask"
    ):
        model.predict(LOAD[:, None], interval=0.9)
    plain = small(file, tmp_path / "m", data__input_columns="load")
    with pytest.raises(UserError, match=r"predicts no distribution, and so no interval\. Train with model\.loss=gauss"):
        plain.predict(LOAD[:, None], interval=0.9)


def test_a_model_of_an_earlier_version(file: Path, tmp_path: Path) -> None:
    """Without times in its file, and with the series in its config alone, it loads and answers the same."""
    model = small(file, tmp_path / "run", data__target_columns="load", data__sequence_column="store")
    about: Any = read_about(tmp_path / "run" / "best.safetensors").model_dump()
    for name in ("time", "series", "step", "period"):
        del about["assets"][name]
    for name in ("time_column", "period"):
        del about["config"]["data"][name]
    del about["config"]["train"]["tune_linear"]
    config = ForecastConfig.model_validate(about["config"])
    old = Model(model.task, config, Forecast().assets_from_json(about["assets"]), model.network)
    records = [json.loads(line) for line in _run(old, file)]
    assert [list(one) for one in records[:1]] == [["store", "load+1"]]
    newer = [json.loads(line) for line in _run(model, file)]
    assert [one["load+1"] for one in records] == [one["load+1"] for one in newer]
    about["config"]["data"]["sequence_column"] = None
    assert ForecastConfig.model_validate(about["config"]).data.sequence_column == "none"


def _run(model: Model, file: Path) -> list[str]:
    from unrolled.tasks import Request

    return "".join(model.runner.run(Request(files=[str(file)], format="jsonl"))).splitlines()


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing in it can be foretold."""
    path = tmp_path_factory.mktemp("noise") / "noise.npz"
    np.savez(path, inputs=np.random.default_rng(0).normal(size=(300, 1)), lengths=[300])
    return path


def test_a_recurrent_part_that_adds_nothing_is_said(noise: Path, tmp_path: Path) -> None:
    words = [f"--set={key}={value}" for key, value in {**SMALL, "train.lr": 5.0}.items()]
    err = call("train", "forecast", "--train", noise, "--out", tmp_path / "run", *words)[2]
    assert "step 0. Use it" in err
    assert "The recurrent part adds nothing: on the validation part no update was better than the linear path" in err
    assert "The recurrent part adds nothing" in call("info", tmp_path / "run")[1]
    assert len(json.loads(call("info", tmp_path / "run", "--json")[1])["remarks"]) == 1
    trace = api.load(tmp_path / "run").trace(np.random.default_rng(0).normal(size=(9, 1)))
    assert trace.notes[0].startswith("The recurrent part adds nothing")
    assert float(trace.gradients().max()) == 0


def test_one_that_adds_something_is_not(model: Model) -> None:
    assert model.task.description.remarks(model) == []
    assert model.trace(np.ones((5, 2))).notes == ()


def test_a_small_gain_over_the_linear_path_is_found(tmp_path: Path) -> None:
    """A day that is no sine, under noise: trained along with the rest, the linear path hid what the rest had learnt."""
    random, t = np.random.default_rng(0), np.arange(1200)
    noise = np.zeros(1200)
    for i in range(1, 1200):
        noise[i] = 0.8 * noise[i - 1] + random.normal()
    values = 10 * np.abs(np.sin(np.pi * t / 24)) * (1 + 0.3 * ((t // 24) % 7 < 5)) + noise
    np.savez(tmp_path / "a.npz", inputs=values[:, None], lengths=[1200])
    keys = {"data.train": str(tmp_path / "a.npz"), "train.max_steps": 200, "train.eval_every": 200}
    job = TrainingJob(api.configure("forecast", [], {**keys, "model.hidden_size": 32}))
    linear = job.model.network.get_parameter("linear.weight").clone()
    scores = [info.scores["mse"] for info in job.trainer().steps() if info.scores is not None]
    assert scores[-1] < 0.98 * scores[0]
    assert job.model.network.get_parameter("linear.weight").equal(linear)
