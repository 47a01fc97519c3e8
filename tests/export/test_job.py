"""`unrolled export`: the folder, its manifest, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import unrolled
from tests.cli.test_generate import call
from unrolled.export import checking, recording
from unrolled.export.graphs import GraphPlan, GraphPlans, plans_of
from unrolled.tasks.classify.task import Classify

STORED = Path(__file__).parent.parent / "compat" / "2026-11"
MODEL = STORED / "generate-gru.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exported") / "gru"
    code, out, err = call("export", MODEL, "--onnx", place)
    assert code == 0, err
    assert out.splitlines()[0].startswith("whole.onnx: 0.01 MB, differs by at most ")
    assert f"Wrote {place}. Run it: unrolled run {place}" in err
    return place


def test_manifest(folder: Path) -> None:
    said = json.loads((folder / "manifest.json").read_text())
    assert (said["format"], said["version"], said["task"], said["weights"]) == ("unrolled-onnx", 1, "generate", "fp32")
    model = unrolled.load(MODEL)
    assert said["assets"] == model.task.assets_to_json(model.assets)
    assert said["config"] == model.config.model_dump(mode="json")
    step = said["graphs"]["step"]
    assert step["sha256"] == hashlib.sha256((folder / step["file"]).read_bytes()).hexdigest()
    assert step["inputs"] == [
        {"name": "tokens", "dtype": "int64", "shape": ["batch"]},
        {"name": "state_0", "dtype": "float32", "shape": ["batch", 1, 12]},
    ]
    assert [one["name"] for one in step["outputs"]] == ["log_probs", "new_state_0"]
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "step.onnx", "whole.onnx"]


def test_step_by_step_equals_the_whole_text(folder: Path) -> None:
    whole, step = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("whole", "step"))
    tokens = np.array([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])
    expected, _ = whole.run(None, {"tokens": tokens, "lengths": np.array([5, 5])})
    first, state = whole.run(None, {"tokens": tokens[:, :2], "lengths": np.array([2, 2])})
    np.testing.assert_allclose(first, expected[:, :2], atol=1e-5)
    for place in range(2, 5):
        found, state = step.run(None, {"tokens": tokens[:, place], "state_0": state})
        np.testing.assert_allclose(found, expected[:, place], atol=1e-5)


@pytest.mark.parametrize(("weights", "most"), [("fp16", 2e-2), ("int8", 0.5)])
def test_smaller_weights(weights: str, most: float, tmp_path: Path) -> None:
    model = unrolled.load(STORED / "generate-bpe.safetensors")
    full = unrolled.export_onnx(model, tmp_path / "full")
    small = unrolled.export_onnx(model, tmp_path / "small", weights=weights)
    assert small.sizes["step"] < full.sizes["step"] * (0.75 if weights == "fp16" else 0.6)
    assert full.differences["step"] < small.differences["step"] < most
    assert json.loads((tmp_path / "small" / "manifest.json").read_text())["weights"] == weights


def test_the_score_that_smaller_weights_cost(tmp_path: Path) -> None:
    file, model = tmp_path / "sums.txt", STORED / "generate-bpe.safetensors"
    file.write_text("3 and 4 make 7\n" * 5)
    flags = ("--weights", "int8", "--no-check")
    code, out, err = call("export", model, "--onnx", tmp_path / "int8", *flags, "--score-on", file)
    assert code == 0, err
    before, after = unrolled.load(model).evaluate(file), unrolled.runtime.load(tmp_path / "int8").evaluate(file)
    assert before["perplexity"] != after["perplexity"]
    for name in ("nats_per_token", "perplexity"):
        line = f"{name}: {before[name]:.4f} the model, {after[name]:.4f} exported ({after[name] - before[name]:+.4f})"
        assert line in out.splitlines()
    code, _, err = call("export", model, "--onnx", tmp_path / "other", *flags)
    assert f"What int8 weights cost: unrolled eval {tmp_path / 'other'} FILE, or --score-on FILE." in err
    code, _, err = call("export", model, "--onnx", tmp_path / "none", "--score-on", tmp_path / "none.txt")
    assert (code, (tmp_path / "none").exists()) == (2, False)


def test_a_folder_in_the_way(folder: Path, tmp_path: Path) -> None:
    code, _, err = call("export", MODEL, "--onnx", folder)
    assert code == 2
    assert f"{folder} holds an exported model. Choose another folder, or replace it with --force." in err
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = call("export", MODEL, "--onnx", tmp_path, "--force")
    assert code == 2
    assert f"{tmp_path} exists and is not an exported model. Choose another folder." in err
    assert (tmp_path / "notes.txt").read_text() == "mine"
    before = (folder / "step.onnx").read_bytes()
    assert call("export", MODEL, "--onnx", folder, "--no-check", "--force")[0] == 0
    assert (folder / "step.onnx").read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_unknown_weights(tmp_path: Path) -> None:
    code, _, err = call("export", MODEL, "--onnx", tmp_path / "new", "--weights", "int4")
    assert code == 2
    assert "Unknown weights 'int4'" in err
    assert "fp16, fp32, int8" in err or "fp32, fp16, int8" in err


def test_a_graph_that_differs_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = unrolled.load(MODEL)
    right, error = plans_of(model).graphs[0], 0.0
    wrong = GraphPlan(
        right.name,
        lambda tokens, lengths: tuple(part + error for part in right.compute(tokens, lengths)),
        right.draw,
        right.inputs,
        right.outputs,
        right.free,
    )
    monkeypatch.setattr(type(model.task), "graphs", lambda task, given: GraphPlans([wrong]), raising=False)
    unrolled.export_onnx(model, tmp_path / "right")
    shutil.rmtree(tmp_path / "right")

    def recorded(*given: Any) -> Any:
        nonlocal error
        found = recording.record(*given)
        error = 0.01  # of the network, after the graph was recorded
        return found

    monkeypatch.setattr("unrolled.export.job.record", recorded)
    message = r"The graph whole differs from the network by 1\.0e-02; allowed is 1e-04"
    with pytest.raises(unrolled.UserError, match=message):
        unrolled.export_onnx(model, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_models_without_graphs(tmp_path: Path) -> None:
    class Mine(Classify):
        name = "mine"

    model = unrolled.load(STORED / "classify-letters.safetensors")
    model.task = Mine()
    message = r"The task 'mine' has no graphs to export\. Give it a method graphs\(model\) that returns GraphPlans"
    with pytest.raises(unrolled.UserError, match=message):
        unrolled.export_onnx(model, tmp_path / "new")
    message = r"score_on runs the exported model, and the runtime does not know the task 'mine'\. Leave it out\."
    with pytest.raises(unrolled.UserError, match=message):
        unrolled.export_onnx(model, tmp_path / "new", score_on="x.tsv")


def test_networks_without_graphs(tmp_path: Path) -> None:
    pictures = STORED.with_name("2026-11-kinds") / "recognize-mdlstm.safetensors"
    code, _, err = call("export", pictures, "--onnx", tmp_path / "new")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert err == (
        "unrolled: model.kind=mdlstm sweeps over a picture along its diagonals, which has no graph in ONNX. "
        "Train with model.kind=recurrent or transformer.\n"
    )
    writer = unrolled.load(STORED / "generate-transformer.safetensors")
    writer.network.positions.kind = "fraction"  # type: ignore[union-attr]
    with pytest.raises(unrolled.UserError) as caught:
        unrolled.export_onnx(writer, tmp_path / "new")
    assert str(caught.value) == (
        "A Transformer with model.positions=fraction reads its text anew for every token: it has no step. "
        "Train with model.positions=sinusoidal."
    )


def test_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(unrolled.UserError, match="onnxruntime is not installed: it checks the exported graphs"):
            checking.session_of(b"")


@torch.no_grad()
def test_the_check_sees_a_wrong_weight(folder: Path) -> None:
    model = unrolled.load(MODEL)
    model.network.get_parameter("scores.bias")[0] += 0.01
    (plan,) = [plan for plan in plans_of(model).graphs if plan.name == "step"]
    assert checking.largest_difference(plan, (folder / "step.onnx").read_bytes(), batches=3) > 1e-4
