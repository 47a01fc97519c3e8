"""Bad folders, missing packages and options that an exported model lacks: what is wrong, and what to do."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.runtime.folders import exported_of, folder_of, model_of
from unrolled import api, runtime
from unrolled.cli.app import app
from unrolled.errors import UserError

AGAIN = "Export the model again: unrolled export MODEL --onnx FOLDER"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of an exported classifier, to be damaged."""
    copy = tmp_path / "mood"
    shutil.copytree(folder_of("classify"), copy)
    return copy


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes the manifest of a folder."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def error_of(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        runtime.load(folder).predict("fine")
    return str(caught.value)


def test_no_folder(tmp_path: Path) -> None:
    fix = "Give a folder written by `unrolled export MODEL --onnx FOLDER`."
    assert error_of(tmp_path / "none") == f"{tmp_path / 'none'} does not exist. {fix}"
    assert error_of(tmp_path) == f"{tmp_path} has no manifest.json: it is no exported model. {fix}"


def test_damaged_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    whole = path.read_text()
    path.write_text(whole[:1000])
    assert re.fullmatch(f"{re.escape(str(path))} is damaged: .* {re.escape(AGAIN)}", error_of(folder))
    path.write_text("[]")
    assert error_of(folder) == (
        f"{path} is not the manifest of an exported model: its format is not 'unrolled-onnx'. {AGAIN}"
    )
    path.write_text(whole)
    changed(folder, lambda manifest: manifest.pop("assets"))
    assert error_of(folder) == f"{path} is damaged: assets is missing. {AGAIN}"
    path.write_text(whole)
    changed(folder, lambda manifest: manifest["graphs"]["whole"].update(file="../elsewhere.onnx"))
    assert error_of(folder) == f"{path} is damaged: graphs.whole.file is '../elsewhere.onnx'. {AGAIN}"
    path.write_text(whole)
    changed(folder, lambda manifest: manifest["config"]["data"].pop("multi_label"))
    assert error_of(folder) == f"The config in the manifest is damaged: it has no key 'multi_label'. {AGAIN}"


def test_newer_version(folder: Path) -> None:
    changed(folder, lambda manifest: manifest.update(version=7, versions={"unrolled": "9.1"}))
    assert error_of(folder) == (
        f"{folder / 'manifest.json'} has version 7, written by unrolled 9.1; this unrolled reads versions up to 1. "
        "Update unrolled, or export the model with this one."
    )


def test_unknown_task(folder: Path) -> None:
    changed(folder, lambda manifest: manifest.update(task="juggle"))
    assert error_of(folder) == (
        f"{folder} is a model of the task 'juggle', which the runtime does not know. "
        "It knows classify, tag, forecast, recognize, generate, translate, caption."
    )


def test_altered_graph(folder: Path) -> None:
    graph = folder / "whole.onnx"
    data = bytearray(graph.read_bytes())
    data[-1] ^= 1
    graph.write_bytes(data)
    assert error_of(folder) == (
        f"{graph} is not the file that was exported: its SHA-256 is another one. "
        f"Use another copy of the folder. {AGAIN}"
    )


def test_missing_graph(folder: Path) -> None:
    (folder / "whole.onnx").unlink()
    assert error_of(folder) == f"{folder / 'whole.onnx'}, the graph 'whole' of the model, is missing. {AGAIN}"
    changed(folder, lambda manifest: manifest.update(graphs={}))
    assert error_of(folder) == f"The exported model has no graph 'whole': it has none. {AGAIN}"


def test_a_graph_that_onnxruntime_cannot_run(folder: Path) -> None:
    import hashlib

    (folder / "whole.onnx").write_bytes(b"no graph")
    digest = hashlib.sha256(b"no graph").hexdigest()
    changed(folder, lambda manifest: manifest["graphs"]["whole"].update(sha256=digest))
    message = error_of(folder)
    assert message.startswith("onnxruntime ")
    assert f"cannot run {folder / 'whole.onnx'}: " in message
    assert message.endswith("Update onnxruntime: pip install -U onnxruntime")


def test_an_input_that_the_task_does_not_have(folder: Path) -> None:
    strange = {"name": "strange", "dtype": "int64", "shape": ["batch"]}
    changed(folder, lambda manifest: manifest["graphs"]["whole"]["inputs"].append(strange))
    assert error_of(folder) == f"The graph 'whole' asks for 'strange', which this task does not have. {AGAIN}"


def test_missing_onnxruntime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert error_of(folder) == (
        "Running an exported model needs onnxruntime, which is not installed. "
        "Install it: pip install 'unrolled[runtime]'"
    )


def test_load_says_what_an_exported_model_needs(folder: Path) -> None:
    with pytest.raises(UserError) as caught:
        api.load(folder)
    assert str(caught.value) == (
        f"{folder} is an exported model, which runs without torch. "
        f"Use unrolled.runtime.load({str(folder)!r}), or `unrolled run {folder}`."
    )


TORCH = "Use the model file with unrolled.load, which needs torch."


def test_options_that_an_exported_model_lacks() -> None:
    mood, writer = exported_of("classify"), exported_of("generate-lstm")
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: mood.trace("fine"), f"An exported model has no `trace`. {TORCH}"),
        (
            lambda: writer.predict("3", weights="int8"),
            "weights='int8' is for the model file: an exported model has the weights of its graphs. "
            "Leave it out, or export the model with --weights int8 or fp16.",
        ),
        (
            lambda: exported_of("translate-luong").predict("3", precision="bf16"),
            "precision='bf16' is not for an exported model: its graphs decide. "
            "Leave it out, or export the model with --weights fp16.",
        ),
        (lambda: mood.predict("fine", beam=3), "Unknown predict option 'beam'. Choices: explain, min_probability."),
        (
            lambda: mood.read_as(["model.hidden_size=3"]),
            "model.hidden_size of a trained model cannot be set: only keys about reading a file can. "
            "For this file: data.text_column, data.label_column, data.label_separator.",
        ),
        (
            lambda: mood.read_as(["data.text_column"]),
            "--set data.text_column has no value. Expected KEY=VALUE, such as --set data.text_column=body.",
        ),
    ]
    for call, message in refused:
        with pytest.raises(UserError) as caught:
            call()
        assert message in str(caught.value)


def test_flags_that_an_exported_model_lacks() -> None:
    def said(*flags: str, kind: str = "translate-luong") -> str:
        done = CliRunner().invoke(app, ["run", str(folder_of(kind)), "--text", "3 5", *flags])
        assert isinstance(done.exception, UserError)
        return str(done.exception)

    assert said("--picture", "a.png") == f"An exported model draws no pictures. Leave out --picture. {TORCH}"
    assert said("--device", "cuda") == (
        "--device cuda is not for an exported model: it runs on the CPU, with its own task. Leave it out."
    )


def test_run_takes_the_folder(tmp_path: Path) -> None:
    table = tmp_path / "lines.csv"
    table.write_text("id,body\n1,one fine two three\n2,dull\n")
    flags = ["--set", "data.text_column=body", "--keep", "id", "--json"]
    done = CliRunner().invoke(app, ["run", str(folder_of("classify")), str(table), *flags])
    assert done.exception is None
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    expected = model_of("classify").predict(["one fine two three", "dull"])
    assert [(one["id"], one["label"]) for one in records] == [("1", expected[0].label), ("2", expected[1].label)]
