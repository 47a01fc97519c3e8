"""An exported model has the scores of its model file on a file, in a process where torch cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from typer.testing import CliRunner

from tests.compat.answers import LATER
from tests.compat.answers import STORED as KINDS
from tests.compat.make import write_more
from tests.compat.test_compat import check
from tests.runtime.folders import STORED, exported_of, folder_of, model_of
from tests.runtime.test_command import BLOCKED
from tests.see.models import write_files
from tests.sharing import made_once
from unrolled.cli.app import app
from unrolled.data.readers.labelled import read_labelled
from unrolled.errors import UserError

SCORED: dict[str, list[dict[str, Any]]] = {
    "classify": [{}],
    "classify-letters": [{}],
    "classify-linear": [{}],
    "classify-wide": [{"min_probability": 0.6}],
    "tag-crf": [{}],
    "tag-softmax": [{}],
    "tag-frames": [{}],
    "tag-columns": [{}],
    "forecast": [{}],
    "forecast-lags": [{}],
    "forecast-both": [{}],
    "forecast-categories": [{}],
    "generate-lstm": [{}, {"given": 2, "beam": 2}],
    "generate-transformer": [{}],
    "translate-luong": [{"beam": 2}, {"lexicon": ["five", "three", "seven", "eight"], "beam": 3}],
    "caption": [{"beam": 2}],
    "recognize": [{}, {"lexicon": ["ab", "ba", "c", "cab", "a", "bc", "abc"], "tune": True}],
    "recognize-lines": [{"beam": 4}],
}
"""Options of `eval` for models of every task."""


def data() -> Path:
    """The folder of files of all tasks."""

    def make(folder: Path) -> None:
        write_files(folder)
        write_more(folder)

    return made_once("files-of-all-tasks", make)


def file_of(kind: str) -> str:
    """A file to score a model of this kind on."""
    return str(data() / {**KINDS, **LATER}[kind][1])


@pytest.mark.filterwarnings("ignore")
def test_equal_scores_without_torch() -> None:
    asked = {f"{kind} {n}": (kind, options) for kind, several in SCORED.items() for n, options in enumerate(several)}
    requests = {name: (str(folder_of(kind)), file_of(kind), options) for name, (kind, options) in asked.items()}
    command = [sys.executable, "-m", "tests.runtime.scored", json.dumps(requests)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=STORED.parents[2], check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name, (kind, options) in asked.items():
        expected = model_of(kind).evaluate(file_of(kind), **options)
        check(found[name], json.loads(json.dumps(expected)))


def test_series_that_end_within_a_window_and_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 7 rows: series go on from a state, and others begin in their row."""
    monkeypatch.setattr("unrolled.tasks.forecast.scores.EVALUATED_WINDOW", 7)
    monkeypatch.setattr("unrolled.tasks.forecast.scores.EVALUATED_AT_ONCE", 2)
    rows = [f"{name},{x},{x * x % 7}" for name, count in (("p", 30), ("q", 9), ("r", 19)) for x in range(count)]
    file = data().with_name("several-series.csv")
    file.write_text("\n".join(["series,a,b", *rows]))
    check(exported_of("forecast").evaluate(str(file)), model_of("forecast").evaluate(str(file)))


def test_the_command_needs_no_torch() -> None:
    file = file_of("classify")
    command = [sys.executable, "-c", BLOCKED, "eval", str(folder_of("classify")), file, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    check(json.loads(done.stdout), json.loads(json.dumps(model_of("classify").evaluate(file))))


def test_a_missing_package_of_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(UserError) as caught:
        exported_of("recognize").evaluate(file_of("recognize"))
    assert str(caught.value) == "Scoring needs jiwer, which is not installed. Install it: pip install jiwer"


def test_what_eval_of_an_exported_model_lacks() -> None:
    def said(*flags: str) -> str:
        done = CliRunner().invoke(app, ["eval", str(folder_of("translate-luong")), file_of("translate-luong"), *flags])
        assert isinstance(done.exception, UserError)
        return str(done.exception)

    assert said("--picture", "a.png") == (
        "An exported model draws no pictures. Leave out --picture. Use the model file with unrolled.load, which needs "
        "torch."
    )
    assert said("--device", "cuda") == (
        "--device cuda is not for an exported model: it runs on the CPU, with its own task. Leave it out."
    )


def test_data_in_memory_is_scored_and_answered_as_a_file() -> None:
    model, file = exported_of("classify"), file_of("classify")
    pairs = [(one.input, one.labels[0]) for one in read_labelled(file)]
    assert model.evaluate(pairs) == model.evaluate(file)
    texts: dict[str, list[Any]] = {"text": [text for text, _ in pairs], "label": [label for _, label in pairs]}
    table = pyarrow.table(texts)
    assert model.predict(table) == model.predict(texts["text"]) == model.predict(iter(texts["text"]))
