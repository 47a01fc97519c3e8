"""Columns of categories in `forecast`: an embedding is a one-hot vector through a linear layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.test_generate import call
from tests.tasks.forecast.conftest import SMALL, small
from tests.tolerances import assert_close
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.models.forecaster import Forecaster, ForecastStepper
from unrolled.tasks import Request

DAYS = ("mon", "tue", "wed", "thu")
SALES = {"mon": 5.0, "tue": -2.0, "wed": 1.0, "thu": -4.0}
KEYS: dict[str, Any] = {
    "data__category_columns": "day",
    "data__target_columns": "sales",
    "data__horizon": 0,
    "data__time_column": "none",
}


def shop(path: Path, rows: int = 240, days: tuple[str, ...] = DAYS, seed: int = 0) -> Path:
    """Sales depend on the day, in no order that a single number could have, and a little on the temperature."""
    random = np.random.default_rng(seed)
    lines = ["day,temp,sales"]
    for day in random.choice(days, rows):
        temp = random.normal(20, 3)
        lines.append(f"{day},{temp:.4f},{SALES.get(day, 0.0) + 0.1 * temp + random.normal(0, 0.1):.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(tmp_path_factory.mktemp("data") / "shop.csv")


@pytest.fixture(scope="module")
def model(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    fit = {"train__max_steps": 120, "train__eval_every": 40, "train__lr": 0.02}
    return small(file, tmp_path_factory.mktemp("runs") / "shop", **KEYS, **fit)


def network_of(model: Model) -> Forecaster:
    assert isinstance(model.network, Forecaster)
    return model.network.eval()


def test_it_learns_what_no_single_number_says(model: Model, file: Path, tmp_path: Path) -> None:
    """Without the day the best forecast is the mean: Var(sales) is about 12, the noise 0.01."""
    other = shop(tmp_path / "other.csv", seed=5)
    assert model.evaluate(other)["mse"] < 0.5
    assert model.evaluate(other)["mean_mse"] > 5


def test_an_embedding_is_one_hot_through_a_linear_layer(model: Model) -> None:
    network = network_of(model)
    (table,) = network.categories
    assert isinstance(table, torch.nn.Embedding)
    x = torch.tensor([[[0.3, 1.0], [0.1, 4.0], [-0.2, 0.0]]])  # temp in scale, and the number of the day
    hot = torch.nn.functional.one_hot(x[0, :, 1].long(), 5).float()
    linear = torch.nn.Linear(5, table.embedding_dim, bias=False)
    linear.weight.data = table.weight.detach().T.clone()
    seen = torch.cat([network.past(x, None), x[..., :1]], dim=1)
    read = network.read(x, seen)[0, :, -table.embedding_dim :]
    assert_close(read, linear(hot))
    assert not read[2].any()  # <unknown> adds nothing


def test_a_stream_reads_what_the_network_reads(model: Model) -> None:
    network = network_of(model)
    x = np.array([[0.3, 1], [0.1, 4], [-0.2, 0], [1.5, 2]], dtype=np.float32)
    expected, _ = network(torch.from_numpy(x)[None])
    estimates, _ = ForecastStepper(network)(x, None)
    assert_close(estimates, expected[0])


def test_files_lines_and_python_give_the_same(model: Model, file: Path) -> None:
    rows = [line.split(",") for line in file.read_text().splitlines()[1:13]]
    given = [[float(temp), day] for day, temp, _ in rows]
    expected = model.predict(given)[:, 0]
    lines = ["temp,day\n", *(f"{temp},{day}\n" for temp, day in given)]
    by_lines = [float(line) for line in "".join(model.runner.run(Request(lines=lines))).split()]
    by_file = "".join(model.runner.run(Request(files=[str(file)], format="jsonl"))).splitlines()[:12]
    np.testing.assert_allclose(by_lines, expected, rtol=1e-5)
    np.testing.assert_allclose([json.loads(line)["sales"] for line in by_file], expected, rtol=1e-6)
    assert "day" not in json.loads(by_file[0])
    with model.stream() as stream:
        assert [float(stream.feed(row)[0]) for row in given] == expected.tolist()


def test_an_unknown_value_is_read_as_such_with_a_note(model: Model, tmp_path: Path) -> None:
    with pytest.warns(Note, match="The input: training never saw day 'fri'; read as <unknown>"):
        strange = model.predict([[20.0, "fri"]])
    assert np.array_equal(strange, model.predict([[20.0, ""]]))
    other = shop(tmp_path / "other.csv", 20, days=("mon", "fri"))
    with pytest.warns(Note, match="training never saw day 'fri'"):
        model.evaluate(other)


def test_it_is_saved_and_described(model: Model, file: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    again = api.load(tmp_path / "model.safetensors")
    assert again.assets.levels == (tuple(sorted(DAYS)),)
    assert np.array_equal(again.predict([[20.0, "mon"]]), model.predict([[20.0, "mon"]]))
    assert "day (4: mon, thu, tue, wed)" in call("info", tmp_path / "model.safetensors")[1]
    trace = model.trace(model.tracer.input(Request(files=[str(file)]))[:5])
    assert len(trace.tokens) == 5


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_columns_of_numbers_can_be_categories_and_several(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    rows = [f"{i % 3},{'ab'[i % 2]},{np.sin(i):.3f},{i % 3 + np.cos(i):.3f}" for i in range(80)]
    path.write_text("\n".join(["slot,kind,x,y", *rows]) + "\n")
    keys = {"data__category_columns": ["slot", "kind"], "data__time_column": "none", "model__category_size": 3}
    model = small(path, tmp_path / "run", **keys, model__kind="transformer", model__heads=2, train__max_steps=2)
    assert model.assets.roles.inputs == ("x", "y")
    assert model.assets.levels == (("0", "1", "2"), ("a", "b"))
    assert [tuple(p.shape) for p in network_of(model).categories.parameters()] == [(4, 3), (3, 3)]
    with pytest.raises(UserError, match="which it does not predict: their future is unknown"):
        model.predict([[0.1, 0.2, 1, "a"]], steps=2)
    assert model.predict([[0.1, 0.2, 1, "a"]], steps=2, hold_inputs=True).shape == (2, 2)


def test_mistakes(model: Model, file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.zeros((1, 9, 2)))

    def train(path: Path, **keys: Any) -> None:
        settings = {**SMALL, **{key.replace("__", "."): value for key, value in keys.items()}}
        api.train("forecast", train=path, out=tmp_path / "run", set=settings, quiet=True)

    for given, message in (
        (lambda: train(file, data__category_columns="dya"), "has no column 'dya'. Its columns: day, temp, sales."),
        (
            lambda: train(file, data__category_columns="temp", data__input_columns="temp,sales"),
            "The column 'temp' is named as numbers and as categories. Take it out of data.category_columns, or of "
            "data.input_columns and data.target_columns.",
        ),
        (lambda: train(tmp_path / "a.npz", data__category_columns="1"), "holds numbers alone: data.category_columns"),
        (lambda: train(file, model__category_size=4), "model.category_size=4 does nothing here"),
        (lambda: model.predict([[20.0]]), "Rows have shape (1, 1). Expected (steps, 2): temp, day."),
        (lambda: model.predict([["mon", 20.0]]), "Rows must be numbers and then categories, got ['mon', 20.0]."),
        (lambda: model.predict([[np.nan, "mon"]]), "Row 1, column 'temp' is nan."),
    ):
        with pytest.raises(UserError) as error:
            given()
        assert message in str(error.value)
