"""Series from files: what is read, and what every mistake in a file says."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from unrolled import UserError
from unrolled.data.readers.series.read_series import Series, embedded_series, read_series
from unrolled.data.readers.tables.number_cells import is_header, number_separator
from unrolled.data.readers.tables.quoted import separator_of
from unrolled.data.signals.scaling import ColumnScaling, Roles, SeriesPart, fit_scaling
from unrolled.errors import Note

TABLE = "date,x,y\n2026-01-01,1,10\n2026-01-02,2,20.5\n2026-01-03,3,-1e3\n"


def test_a_table_with_names_and_dates(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    with pytest.warns(Note, match=r"left out, since they are not numbers: 'date'\."):
        sheet = read_series(path)
    assert sheet.columns == ("x", "y")
    assert sheet.series[0].values.tolist() == [[1, 10], [2, 20.5], [3, -1000]]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a.csv.gz", "a.jsonl", "a.parquet"])
def test_every_kind_of_table_says_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    text = "x,y\n1,4\n2,5.5\n3,6\n"
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif name == "a.jsonl":
        path.write_text('{"x": 1, "y": 4}\n{"x": 2, "y": 5.5}\n{"x": 3, "y": 6}\n')
    elif name == "a.parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2, 3], "y": [4.0, 5.5, 6.0]}), path)
    else:
        path.write_text(text if name == "a.csv" else text.replace(",", "\t"))
    sheet = read_series(path)
    assert sheet.columns == ("x", "y")
    assert sheet.series[0].values.tolist() == [[1, 4], [2, 5.5], [3, 6]]
    assert read_series(path, ["y"]).series[0].values.tolist() == [[4], [5.5], [6]]


def test_a_table_without_names_has_numbers_for_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,4\n2,5\n")
    assert read_series(path, ["2"]).series[0].values.tolist() == [[4], [5]]


@pytest.mark.parametrize(
    ("text", "columns", "first"),
    [
        ("2020-01-01,20,1\n2020-01-02,21,2\n", ("2", "3"), [20, 1]),
        ("2020-01-01,20,1\n,21,2\n2020-01-03,22,3\n", ("2", "3"), [20, 1]),
        ("2020-01-01,20,1\n", ("2", "3"), [20, 1]),
        ("date,2019,2020\n2020-01-01,20,1\n", ("2019", "2020"), [20, 1]),
        ("A,20\nB,21\n", ("2",), [20]),
        ("y,2\n20,1\n", ("y", "2"), [20, 1]),
        ("1,2\n3,4\n", ("1", "2"), [1, 2]),
        ("\n   \ny,x\n20,1\n", ("y", "x"), [20, 1]),
    ],
)
@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_headers_are_detected(text: str, columns: tuple[str, ...], first: list[float], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    sheet = read_series(path)
    assert sheet.columns == columns
    assert sheet.series[0].values[0].tolist() == first


def test_names_that_are_asked_for_are_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("city,2019\nParis,1\nRome,2\nParis,3\n")
    assert [one.values.tolist() for one in read_series(path, sequence_column="city").series] == [[[1], [3]], [[2]]]
    assert is_header(["city", "2019"], asked=["city"])
    assert not is_header(["city", "2019"], [["Paris", "1"]])
    assert is_header(["", "y"])


@pytest.mark.parametrize(
    "text",
    ["day;y;x\nMo;1.5;2\nTu;-3;4e1\n", "day;y;x\nMo;1,5;2\nTu;-3;4e1\n", "day\ty\tx\nMo\t1.5\t2\nTu\t-3\t4e1\n"],
)
def test_semicolons_tabs_and_decimal_commas(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.warns(Note, match="left out, since they are not numbers: 'day'"):
        sheet = read_series(path)
    assert sheet.columns == ("y", "x")
    assert sheet.series[0].values.tolist() == [[1.5, 2], [-3, 40]]
    path.write_text("y;x\n1;2\n3\n")
    with pytest.raises(UserError, match=r"a\.csv:3 has 1 semicolon-separated columns, expected 2\."):
        read_series(path)


def test_separators_are_detected() -> None:
    assert [separator_of(line) for line in ("a,b;c", "a;b\tc", "a\tb", "a")] == [",", ";", "\t", ","]
    assert [number_separator(line) for line in ("1,5;2,5", "y,x;z", "1,5", "1;2")] == [";", ",", ",", ";"]


def test_decimals_of_parquet_are_numbers(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"x": [Decimal("1.50"), None], "y": [Decimal(2), Decimal("3.25")]}), path)
    sheet = read_series(path, missing=True)
    assert sheet.columns == ("x", "y")
    np.testing.assert_array_equal(sheet.series[0].values, [[1.5, 2], [np.nan, 3.25]])


def test_rows_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("who,x\nb,1\n\na,2\nb,3\n")
    rows = read_series(path, sequence_column="who").in_order()
    assert [(series.key, series.values[row, 0]) for series, row in rows] == [("b", 1), ("a", 2), ("b", 3)]
    assert [series.place(row) for series, row in rows] == [f"{path}:2", f"{path}:4", f"{path}:5"]


def test_several_series_in_one_table(tmp_path: Path) -> None:
    """Rows of different series may alternate; each keeps its order."""
    path = tmp_path / "a.csv"
    path.write_text("who,x\nb,1\na,2\nb,3\na,4\nb,5\n")
    series = read_series(path, sequence_column="who").series
    assert [one.values[:, 0].tolist() for one in series] == [[1, 3, 5], [2, 4]]
    assert [one.name for one in series] == [f"{path}, who b", f"{path}, who a"]


def test_ragged_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, inputs=np.arange(10).reshape(5, 2), targets=np.arange(5), lengths=[2, 3])
    sheet = read_series(path)
    assert sheet.columns == ("1", "2", "target 1")
    assert sheet.own_targets == ("target 1",)
    assert [one.values.tolist() for one in sheet.series] == [
        [[0, 1, 0], [2, 3, 1]],
        [[4, 5, 2], [6, 7, 3], [8, 9, 4]],
    ]


@pytest.mark.parametrize("targets", [False, True])
def test_a_ragged_sequence_may_be_empty(targets: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    more = {"targets": np.arange(3)} if targets else {}
    np.savez(path, inputs=np.arange(6).reshape(3, 2), lengths=[0, 2, 0, 1], **more)  # type: ignore[arg-type]
    sheet = read_series(path)
    assert [one.values.shape for one in sheet.series] == [(rows, 2 + targets) for rows in (0, 2, 0, 1)]
    np.savez(path, inputs=np.zeros((0, 2)), lengths=np.array([0, 0]))
    with pytest.raises(UserError, match=r"a\.npz holds no row of numbers"):
        read_series(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'x,y\n1,2\n3,"4\n5,6\n',
            '{}:3: a quote is not closed. Close it, or double a literal quote: "".',
        ),
        (f"x,y\n1,2\n3,{'4' * 140_000}\n", "{}:3, column 'y': inf is not finite. Correct it, or leave the cell empty."),
        (
            "x,y\n1,2\n3,4\n1_0,6\n",
            "{}:4, column 'x': '1_0' is not a number. Correct it, or leave the column out: data.input_columns.",
        ),
        ("x,y\n1,2\n3\n", "{}:3 has 1 comma-separated columns, expected 2. Give every row the same columns."),
        ("x,x\n1,2\n", "{} has two columns 'x'. Give every column a different name."),
        ("x,y\n", "{} holds no row of numbers. Give a file with a row for each step."),
        ("x\na\nb\n", "{} has no column of numbers. Its columns: x."),
        (
            "x,y\n1,2\n3,4\n5,six\n",
            "{}:4, column 'y': 'six' is not a number. Correct it, or leave the column out: data.input_columns.",
        ),
        (
            "x,y\n1,2\n3,\n",
            "{}:3, column 'y' is empty or NaN. Fill it in, or allow missing values: data.missing=mask.",
        ),
        (
            "x,y\nnan,2\n3,4\n",
            "{}:2, column 'x' is empty or NaN. Fill it in, or allow missing values: data.missing=mask.",
        ),
        ("x,y\n1,2\n-inf,4\n", "{}:3, column 'x': -inf is not finite. Correct it, or leave the cell empty."),
    ],
)
def test_mistakes_in_a_table(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_series(path)
    assert str(caught.value) == message.format(path)


def test_other_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(UserError, match=r"a\.csv has no column 'z'\. Its columns: x, y\."):
        read_series(path, ["z"])
    with pytest.raises(UserError, match=r"Unknown kind of file '\.xlsx'\. Choices: \.csv"):
        read_series("a.xlsx")
    np.savez(tmp_path / "a.npz", inputs=np.array([[1.0], [np.nan]]), lengths=[1, 1])
    with pytest.raises(UserError, match=r"a\.npz, sequence 2, row 1, column '1' is empty or NaN\."):
        read_series(tmp_path / "a.npz")
    (tmp_path / "a.jsonl").write_text('{"x": 1, "y": [1, 2]}\n{"x": 1' + "0" * 400 + ', "y": [3, 4]}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:2, column 'x': inf is not finite"):
        read_series(tmp_path / "a.jsonl", ["x"])
    with pytest.raises(UserError, match=r"a\.jsonl:1, column 'y': '\[1, 2\]' is not a number"):
        read_series(tmp_path / "a.jsonl", ["y"])
    np.savez(tmp_path / "b.npz", inputs=np.zeros((2, 3, 4, 5)))
    with pytest.raises(UserError, match=r"a sequence of inputs has shape \(3, 4, 5\) and type float64"):
        read_series(tmp_path / "b.npz")


def test_missing_values_where_they_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n,2\n3,NA\n")
    values = read_series(path, missing=True).series[0].values
    assert np.isnan(values).tolist() == [[True, False], [False, True]]


def test_the_embedded_series_is_a_recording() -> None:
    (series,) = embedded_series().series
    assert series.values.shape == (12_000, 1)
    assert np.isfinite(series.values).all()
    assert -80 < series.values.min() < -50  # mV at rest
    assert series.values.std() > 5


def frame(values: np.ndarray, horizons: tuple[int, ...] = (1,), **options: bool) -> ColumnScaling:
    roles = Roles(("x", "y"), ("y",), horizons)
    settings = {"missing": False, "start_row": False, **options}
    return fit_scaling(roles, [SeriesPart(Series(values, "s"))], "standard", **settings)


def test_scaling_and_back() -> None:
    values = np.random.default_rng(0).normal(1e6, [3, 0.01], (50, 2))
    made = frame(values)
    scaled = made.scaled(values)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(0), 1)
    np.testing.assert_allclose(made.unscaled(scaled[:, 1:]), values[:, 1:], rtol=1e-12)
    assert ColumnScaling.from_json(made.to_json()) == made


def test_targets_are_the_rows_ahead() -> None:
    values = np.array([[5.0, 0], [6, 1], [7, 0], [8, 1]])  # y is binary: left as it is
    steps = frame(values, (1, 3)).steps(SeriesPart(Series(values, "s")))
    assert steps.targets[:, :, 0].tolist()[0] == [1, 1]
    assert np.isnan(steps.targets[:, :, 0]).tolist() == [[False, False], [False, True], [False, True], [True, True]]
    scored = frame(values).steps(SeriesPart(Series(values, "s"), first=2)).targets[:, 0, 0]
    assert np.isnan(scored).tolist() == [True, False, False, True]
    begun = frame(values, start_row=True).steps(SeriesPart(Series(values, "s")))
    assert begun.inputs.tolist()[0] == [0, 0]
    assert begun.targets[:-1, 0, 0].tolist() == [0, 1, 0, 1]


def test_a_missing_value_is_the_last_one_and_a_mark() -> None:
    values = np.array([[np.nan, 0], [2, 1], [np.nan, np.nan], [4, 0]])
    made = frame(values, missing=True)
    features, last = made.inputs(values)
    unscaled = features[:, 0] * made.scale[0] + made.center[0]
    np.testing.assert_allclose(unscaled, [3, 2, 2, 4])  # the mean, before there is a value
    assert features[:, 1].tolist() == [0, 1, 1, 0]
    assert features[:, 2:].tolist() == [[0, 1], [1, 1], [0, 0], [1, 1]]
    again, _ = made.inputs(values[2:], made.inputs(values[:2])[1])
    np.testing.assert_array_equal(again, features[2:])
    np.testing.assert_allclose(last, features[-1, :2], rtol=1e-6)


def test_robust_scaling_is_not_moved_by_outliers() -> None:
    values = np.random.default_rng(0).normal(0, 1, (1000, 2))
    values[::100] = 1e6
    roles = Roles(("x", "y"), ("y",), (1,))
    made = fit_scaling(roles, [SeriesPart(Series(values, "s"))], "robust", missing=False, start_row=False)
    assert max(map(abs, made.center)) < 0.2
    assert made.scale == pytest.approx((1, 1), abs=0.2)


def test_a_column_without_any_value() -> None:
    values = np.array([[np.nan, 1.0], [np.nan, 2.0]])
    with pytest.raises(UserError, match="Column 'x' has no value in the training part"):
        frame(values, missing=True)


def test_numbers_too_large_to_reckon_with() -> None:
    values = np.array([[1.0, 1], [2, 3], [3, 2]])
    made = frame(values)
    values[1, 1] = -1e39
    with pytest.raises(
        UserError, match=r"s, row 2, column 'y': -1e\+39 is too large for the model\. Expected numbers w"
    ):
        made.steps(SeriesPart(Series(values, "s")))
    values[1, 1] = 1e308
    with pytest.raises(UserError, match=r"s, row 2, column 'y': 1e\+308 is too large\. Correct it, or leave"):
        frame(values)
