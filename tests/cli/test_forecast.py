"""`forecast` from the command line: training with --horizon, rows in and predictions out, and what mistakes say."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_generate import call
from unrolled import load
from unrolled.errors import Note

SMALL = [
    *("--set", "model.hidden_size=8", "--set", "train.batch_size=4", "--set", "train.window=20"),
    *("--set", "train.max_steps=4", "--quiet"),
]
T = np.arange(200)
VALUES = np.stack([3 * np.sin(T / 4), np.cos(T / 4)], axis=1)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "waves.csv"
    np.savetxt(path, VALUES, delimiter=",", header="a,b", comments="", fmt="%.9g")
    return path


@pytest.fixture(scope="module")
def folder(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "waves"
    assert call("train", "forecast", "--train", file, "--out", path, *SMALL)[0] == 0
    return path


def csv_of(values: np.ndarray) -> str:
    return "\n".join(",".join(f"{v:.9g}" for v in row) for row in values) + "\n"


def test_the_command_of_the_readme(file: Path, tmp_path: Path) -> None:
    words: list[str | Path] = [
        "--train",
        file,
        "--set",
        "data.target_columns=b",
        "--horizon",
        "1",
        "--out",
        tmp_path / "run",
        *SMALL,
    ]
    assert call("train", "forecast", *words)[0] == 0
    roles = load(tmp_path / "run").assets.roles
    assert (roles.inputs, roles.targets, roles.horizons) == (("a", "b"), ("b",), (1,))
    scores = json.loads(call("eval", tmp_path / "run", file, "--json")[1])
    assert {"mse", "mae", "last_mse", "mean_mse", "skill", "columns", "exposure_gap"} <= set(scores)


def test_several_horizons(file: Path, tmp_path: Path) -> None:
    words: list[str | Path] = ["--train", file, "--horizon", "1", "--horizon", "5", "--out", tmp_path / "run", *SMALL]
    assert call("train", "forecast", *words)[0] == 0
    code, out, _ = call("run", tmp_path / "run", file, "--format", "csv")
    assert code == 0
    assert out.splitlines()[0] == "a+1,b+1,a+5,b+5"
    assert len(out.splitlines()) == 201


def test_a_horizon_of_zero_and_of_another_task(file: Path, tmp_path: Path) -> None:
    words: list[str | Path] = [
        "--train",
        file,
        "--set",
        "data.target_columns=b",
        "--horizon",
        "0",
        "--out",
        tmp_path / "run",
        *SMALL,
    ]
    assert call("train", "forecast", *words)[0] == 0
    assert load(tmp_path / "run").assets.roles.inputs == ("a",)
    code, _, err = call("train", "generate", "--horizon", "1")
    assert code == 2
    assert "--horizon is not for generate." in err


def test_a_line_out_for_each_line_in(folder: Path) -> None:
    expected = load(folder).stream().feed(VALUES[:20])
    for header in ("", "a,b\n"):
        code, out, _ = call("run", folder, given=header + csv_of(VALUES[:20]))
        assert code == 0
        got = [[float(cell) for cell in line.split("\t")] for line in out.splitlines()]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    turned = "b,more,a\n" + "\n".join(f"{b:.9g},x,{a:.9g}" for a, b in VALUES[:20]) + "\n"
    assert call("run", folder, given=turned)[1] == out


def test_lines_may_begin_with_blanks_and_have_other_separators(folder: Path) -> None:
    plain = call("run", folder, given="a,b\n1.5,2\n3,4.25\n")
    assert plain[0] == 0
    blank = "\n  \na,b\n1.5,2\n3,4.25\n"
    semicolons, commas = "a;b\n1.5;2\n3;4.25\n", "a;b\n1,5;2\n3;4,25\n"
    unnamed, marked = "1,5;2\n3;4,25\n", "\ufeffa,b\n1.5,2\n3,4.25\n"
    for given in (blank, semicolons, commas, unnamed, marked):
        assert call("run", folder, given=given) == plain
    assert call("run", folder, "--text", "a,b\n1.5,2\n3,4.25") == plain


def test_a_number_too_large_in_a_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,1\n1e39,1\n")
    code, out, err = call("run", folder, tmp_path / "a.csv", "--json")
    assert (code, out) == (2, "")
    assert "a.csv:3, column 'a': 1e+39 is too large for the model. Expected numbers within" in err


def test_predictions_come_before_the_input_ends(folder: Path) -> None:
    """A control loop: write a row, read its answer, write the next."""
    process = subprocess.Popen(
        [sys.executable, "-m", "unrolled", "run", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for row in VALUES[:3]:
        process.stdin.write(csv_of(row[None]))
        process.stdin.flush()
        answers.append(process.stdout.readline())
    process.stdin.close()
    assert process.wait() == 0
    assert "".join(answers) == call("run", folder, given=csv_of(VALUES[:3]))[1]


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_a_roll_out_continues(folder: Path, form: str) -> None:
    expected = load(folder).predict(VALUES[:50], steps=4)
    code, out, _ = call("run", folder, "--steps", "4", "--format", form, given=csv_of(VALUES[:50]))
    assert code == 0
    lines = out.splitlines()
    if form == "jsonl":
        assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]
        got = [list(json.loads(line).values())[1:] for line in lines]
    elif form == "csv":
        assert lines[0] == "step,a,b"
        got = [[float(cell) for cell in line.split(",")[1:]] for line in lines[1:]]
    else:
        got = [[float(cell) for cell in line.split("\t")] for line in lines]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def of_several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model with a sequence column, and its table: rows of x and y by turns."""
    folder = tmp_path_factory.mktemp("several")
    rows = [f"{'xy'[i % 2]},{(1 + i % 2) * a:.9g},{b:.9g}" for i, (a, b) in enumerate(VALUES)]
    path = folder / "two.csv"
    path.write_text("s,a,b\n" + "\n".join(rows) + "\n")
    words = ["--set", "data.sequence_column=s", "--set", "data.input_columns=a,b", *SMALL]
    assert call("train", "forecast", "--train", path, *words, "--out", folder / "run")[0] == 0
    return folder / "run", path


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_rows_of_several_series_may_alternate(of_several: tuple[Path, Path], form: str) -> None:
    """A state for each, answers in the order of the rows, and the same from a file and from standard input."""
    folder, path = of_several
    code, out, _ = call("run", folder, path, "--format", form)
    assert code == 0
    assert call("run", folder, "--format", form, given=path.read_text())[1] == out
    model = load(folder)
    expected = np.zeros((200, 2))
    for which in (0, 1):
        with model.stream() as stream:
            expected[which::2] = stream.feed(VALUES[which::2] * [1 + which, 1])
    lines = out.splitlines()
    if form == "csv":
        assert lines.pop(0) == "s,a+1,b+1"
    cells: list[list[str]] = [
        list(map(str, json.loads(line).values())) if form == "jsonl" else line.replace("\t", ",").split(",")
        for line in lines
    ]
    if form != "text":
        assert [row.pop(0) for row in cells] == ["x", "y"] * 100
    np.testing.assert_allclose(np.array(cells, dtype=float), expected, rtol=1e-4, atol=1e-5)


def test_the_continuation_of_each_series(of_several: tuple[Path, Path]) -> None:
    folder, path = of_several
    code, out, _ = call("run", folder, path, "--steps", "3", "--json")
    assert code == 0
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["s"] for record in records] == ["x"] * 3 + ["y"] * 3
    assert call("run", folder, "--steps", "3", "--json", given=path.read_text())[1] == out
    assert call("run", folder, "--steps", "3", "--format", "csv", given=path.read_text())[1].count("s,step,a,b") == 1
    twice = call("run", folder, path, path, "--steps", "3", "--json")[1]
    assert twice == out + out
    y = load(folder).predict(VALUES[1::2] * [2, 1], steps=3)
    np.testing.assert_allclose([[record["a"], record["b"]] for record in records[3:]], y, rtol=1e-4, atol=1e-5)


def test_rows_without_the_sequence_column(of_several: tuple[Path, Path]) -> None:
    folder, _ = of_several
    with pytest.warns(Note, match=r"Standard input has no column 's': its rows are read as one series\."):
        out = call("run", folder, given="1,0\n2,1\n")[1]
    assert out == call("run", folder, given="s,a,b\nx,1,0\nx,2,1\n")[1]
    code, _, err = call("run", folder, given="a,b\n1,0\n")
    assert code == 2
    assert "Standard input, line 1 has no column 's'. Its columns: a, b." in err


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_a_table_without_names_is_the_same_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{date(2020, 1, 1) + timedelta(i)},{a:.9g},{b:.9g}\n" for i, (a, b) in enumerate(VALUES)))
    assert call("train", "forecast", "--train", path, "--out", tmp_path / "run", *SMALL)[0] == 0
    assert load(tmp_path / "run").assets.roles.inputs == ("2", "3")
    out = call("run", tmp_path / "run", path)[1]
    assert len(out.splitlines()) == 200
    assert call("run", tmp_path / "run", given=path.read_text())[1] == out
    assert call("run", tmp_path / "run", given=csv_of(VALUES))[1] == out


def test_empty_sequences_have_no_line(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(0, 1, (60, 2))
    np.savez(tmp_path / "a.npz", inputs=values, lengths=[40, 0, 20])
    path = tmp_path / "a.npz"
    assert call("train", "forecast", "--train", path, "--out", tmp_path / "run", *SMALL)[0] == 0
    with pytest.warns(Note, match=r"1 of 3 series have no row and are left out: .*a\.npz, sequence 2\."):
        assert len(call("run", tmp_path / "run", path)[1].splitlines()) == 60


def test_new_check_and_info(file: Path, folder: Path, tmp_path: Path) -> None:
    assert call("new", "forecast", tmp_path / "my.toml")[0] == 0
    text = (tmp_path / "my.toml").read_text()
    assert "# Columns to predict; none: the inputs. Text, or a list, each text, or none. Default: none." in text
    assert "steps ahead" in call("check", tmp_path / "my.toml", "--train", file, *SMALL[:-1])[1]
    assert json.loads(call("info", folder, "--json")[1])["task"] == "forecast"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("1,2\n3\n", "Standard input, line 2 has 1 columns. Expected 2: a, b."),
        ("a,c\n1,2\n", "Standard input, line 1 has no column 'b'. Its columns: a, c."),
        ("1,2\n3,four\n", "Standard input, line 2, column 'b': 'four' is not a number."),
        ("1,2\n3,\n", "Standard input, line 2, column 'b' is nan. The model was not trained with data.missing=mask."),
        ("1,2\n3,inf\n", "Standard input, line 2, column 'b' is inf. Expected finite numbers."),
        ("1,2\n1e39,1\n", "Standard input, line 2, column 'a': 1e+39 is too large for the model. Expected numbers"),
        ("1,2\n1_0,1\n", "Standard input, line 2, column 'a': '1_0' is not a number."),
        ("2020-01-01,1,2\n", "Standard input, line 1 has 3 columns. Expected 2: a, b."),
        ('1,2\n3,"4\n', "Standard input, line 2: a quote is not closed."),
        ("a,b,a\n1,2,3\n", "Standard input, line 1 has two columns 'a'. Its columns: a, b, a."),
        ("", "There are no rows. Expected the columns a, b."),
    ],
)
def test_mistakes_in_rows(given: str, message: str, folder: Path) -> None:
    code, _, err = call("run", folder, given=given)
    assert code == 2
    assert message in err


def test_options_of_other_tasks_are_refused(folder: Path) -> None:
    code, _, err = call("run", folder, "--temperature", "1", given="1,2\n")
    assert code == 2
    assert (
        "--temperature is not for a model of forecast. It takes --seed, --steps, --sample, --hold-inputs, --interval."
        in err
    )


def test_sampling_options_that_do_not_fit_are_errors(folder: Path) -> None:
    code, _, err = call("run", folder, "--steps", "3", "--sample", given="1,2\n")
    assert code == 2
    assert "This model has no distribution to sample from. Train with model.loss=gaussian." in err
    code, _, err = call("run", folder, "--sample", given="1,2\n")
    assert code == 2
    assert "sample is for a forecast of several steps. Give their number: steps (--steps)." in err
    code, _, err = call("run", folder, "--steps", "3", "--seed", "1", given="1,2\n")
    assert code == 2
    assert "seed is for samples, and none are drawn. Ask for one with sample (--sample), or leave it out." in err


def test_a_seed_draws_the_same_coins(tmp_path: Path) -> None:
    rows = "a,b\n" + "".join(f"{i % 2},{int(i % 10 > 0)}\n" for i in range(200))
    (tmp_path / "coins.csv").write_text(rows)
    assert call("train", "forecast", "--train", tmp_path / "coins.csv", "--out", tmp_path / "m", *SMALL)[0] == 0
    draw = ("run", tmp_path / "m", "--steps", "40", "--sample", "--seed")
    first, again, other = (call(*draw, seed, given=rows)[1] for seed in ("1", "1", "2"))
    assert first == again != other
    assert {number for line in first.splitlines() for number in line.split("\t")} == {"0", "1"}


def test_columns_are_kept_from_standard_input_too(tmp_path: Path) -> None:
    table = "hour,load,remark\n" + "".join(f"{hour},{50 + hour % 5},note {hour}\n" for hour in range(40))
    (tmp_path / "load.csv").write_text(table)
    keys = ["data.input_columns=load", "data.target_columns=load", "train.max_steps=2", "model.hidden_size=4"]
    sets = [word for key in keys for word in ("--set", key)]
    call("train", "forecast", "--train", tmp_path / "load.csv", *sets, "--out", tmp_path / "run", "--quiet")
    _, of_file, _ = call("run", tmp_path / "run", tmp_path / "load.csv", "--json", "--keep", "remark")
    _, of_lines, _ = call("run", tmp_path / "run", "--json", "--keep", "remark", given=table)
    assert [json.loads(line)["remark"] for line in of_file.splitlines()] == [f"note {hour}" for hour in range(40)]
    assert of_lines == of_file
