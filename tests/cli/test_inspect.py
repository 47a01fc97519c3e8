"""`unrolled inspect` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.cli.test_generate import call
from unrolled import api
from unrolled.model_file import read_about
from unrolled.tasks import Example

Runs = Callable[[str], Path]


def test_figures(run_of: Runs, tmp_path: Path) -> None:
    code, said, _ = call("inspect", run_of("generate-gru"), "3 and 4", "--figures", tmp_path / "a", "--format", "svg")
    assert code == 0
    names = [Path(line).name for line in said.splitlines()]
    assert names == [f"{kind}.svg" for kind in ("losses", "states", "gates", "norms", "gradients", "flow")]
    assert all((tmp_path / "a" / name).stat().st_size > 1000 for name in names)


def test_several_models_side_by_side(run_of: Runs, tmp_path: Path) -> None:
    both = (run_of("generate-gru"), "3 and 4", "--with", run_of("generate-rnn"))
    code, said, _ = call("inspect", *both, "--figures", tmp_path / "a")
    assert code == 0
    assert said.splitlines()[-1] == str(tmp_path / "a" / "gradients.png")
    assert (tmp_path / "a" / "generate-rnn" / "states.png").exists()


def test_one_step_by_hand(run_of: Runs) -> None:
    code, said, _ = call("inspect", run_of("generate-rnn"), "3 and 4", "--step", "2", "--unit", "1")
    assert code == 0
    assert said.startswith("layer l0, step 2 ('␣'), unit 1\nh_t = tanh(W x + U h_{t−1} + b)  = tanh(")


def test_places_in_a_file(run_of: Runs, data: Path) -> None:
    words = ("--file", data / "book.txt", "--places", "c", "--unit", "3", "--layer", "l1")
    code, said, _ = call("inspect", run_of("generate-lstm"), *words)
    assert code == 0
    assert said.startswith("layer l1, c of unit 3, ")
    values = [float(line.split()[0]) for line in said.splitlines() if "«" in line and "here" not in line]
    assert len(values) == 40
    assert values[:20] == sorted(values[:20], reverse=True)
    assert values[20:] == sorted(values[20:])
    assert values[19] > values[39]


@pytest.mark.parametrize(
    "kind", ["generate-gru", "classify", "tag-crf", "forecast", "translate-luong", "recognize", "caption"]
)
def test_an_example_of_the_data_it_was_validated_on(kind: str, run_of: Runs, tmp_path: Path) -> None:
    """Of every task, and the same as from Python."""
    code, said, _ = call("inspect", run_of(kind), "--example", "0", "--step", "0")
    assert code == 0
    model = api.load(run_of(kind))
    found = model.tracer.example(model.task.read(model.config).valid, 0)
    given = found.input if isinstance(found, Example) else found
    assert said == f"{model.trace(given).by_hand(0, 0)}\n"
    code, _, said = call("inspect", run_of(kind), "--example", "1000", "--step", "0")
    assert code == 2
    assert said.startswith("unrolled: There is no example 1000. Expected 0 to ")


def test_an_input_from_a_file(run_of: Runs, data: Path, tmp_path: Path) -> None:
    for kind, file in (("forecast", "waves.csv"), ("tag-crf", "spans.txt"), ("generate-rnn", "book.txt")):
        words = ("inspect", run_of(kind), "--file", data / file, "--step", "1", "--set", "hide=0")
        code, said, _ = call(*words)
        assert code == 0
        assert "step 1" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--step", "1"),
            "There is no input. Give a text after the model, --file FILE, or --example N of its data.",
        ),
        (
            ("3", "--file", "a.txt", "--step", "0"),
            "There is more than one input. Give one: a text, --file FILE or --example N.",
        ),
        (("3", "--figures", "a", "--format", "gif"), "Unknown format 'gif'. Choices: pdf, png, svg."),
        (
            ("3", "--step", "0", "--set", "beam"),
            "--set 'beam' has no value. Expected NAME=VALUE, such as --set beam=8.",
        ),
        (
            ("3", "--step", "0", "--set", "beam=8"),
            "Unknown option of a trace 'beam'. Choices: hide, seed, target, ",
        ),
        (("3", "--step", "7"), "There is no step 7. Expected 0 to 0."),
        (("3", "--html", "a.html", "--unit", "99"), "There is no unit 99. Expected 0 to 11."),
        (("3", "--unit", "99", "--no-browser"), "There is no unit 99. Expected 0 to 11."),
        (("3", "--html", "a.html", "--layer", "l7"), "Unknown layer 'l7'. Choices: l0."),
        (("3", "--places", "f"), "Unknown gate or state 'f'. Choices: h."),
        (("", "--step", "0"), "There is no text to trace. Give at least one token."),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str, run_of: Runs) -> None:
    code, _, said = call("inspect", run_of("generate-rnn"), *words)
    assert code == 2
    assert said.startswith(f"unrolled: {message}")


def test_a_folder_that_is_a_file(run_of: Runs, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    code, _, said = call("inspect", run_of("generate-rnn"), "3", "--figures", tmp_path / "a")
    assert code == 2
    assert said == f"unrolled: {tmp_path / 'a'} is a file. Give a folder for the figures.\n"


def test_a_model_of_another_version(run_of: Runs, tmp_path: Path) -> None:
    """Its config has a key that this version does not know, or its format is newer."""
    file = run_of("generate-rnn") / "best.safetensors"
    about = read_about(file).model_dump(exclude={"sha256"})
    weights = load_file(file)
    about["config"]["model"]["gone"] = 1
    save_file(weights, tmp_path / "old.safetensors", {"unrolled": json.dumps(about)})
    code, _, said = call("inspect", tmp_path / "old.safetensors", "3")
    assert code == 2
    assert "whose configs this version" in said
    assert said.endswith("does not read: model.gone. Use that version, or train the model again.\n")
    save_file(weights, tmp_path / "new.safetensors", {"unrolled": json.dumps({**about, "format": 99})})
    code, _, said = call("inspect", tmp_path / "new.safetensors", "3")
    assert code == 2
    assert "has format 99; this version of unrolled reads up to" in said
