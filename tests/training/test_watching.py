"""Callbacks see every update and can stop a run; trackers hold its numbers, read back by the trackers' own readers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import unrolled
from tests import warm
from unrolled import Callback, UserError
from unrolled.training import StepInfo
from unrolled.training.watching import WatchedRun, trackers
from unrolled.training.watching.tracker import Tracker
from unrolled.training.watching.trackers import TRACKERS

TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12))
SETTINGS: dict[str, Any] = {
    "model.hidden_size": 8,
    "train.batch_size": 4,
    "train.k1": 10,
    "train.max_steps": 12,
    "train.eval_every": 4,
    "train.threads": 1,
}


class Notebook(Callback):
    """Writes down all that a run calls; stops it after update `until`."""

    def __init__(self, until: int | None = None) -> None:
        self.until, self.seen = until, list[tuple[str, int]]()
        self.losses, self.run = dict[int, float](), None

    def start(self, run: WatchedRun) -> None:
        self.seen.append(("start", run.progress.step))

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        self.seen.append(("update", info.step))
        self.losses[info.step] = info.loss
        if info.step == self.until:
            run.stop("seen enough")

    def evaluation(self, run: WatchedRun, info: StepInfo) -> None:
        assert info.scores is not None
        assert (run.folder / "best.safetensors").exists()
        self.seen.append(("evaluation", info.step))

    def end(self, run: WatchedRun) -> None:
        self.seen.append((run.outcome, run.progress.step))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "sums.txt"
    path.write_text(TEXT)
    return path


def fit(text: Path, out: Path, *callbacks: Callback, **changes: Any) -> unrolled.Model:
    settings = {**SETTINGS, **{f"train.{key}": value for key, value in changes.items()}}
    return unrolled.train("generate", train=text, out=out, set=settings, quiet=True, callbacks=callbacks)


def rows_of(folder: Path, name: str = "updates.csv") -> list[str]:
    return (folder / name).read_text().splitlines()


def test_a_callback_sees_every_update_in_order(text: Path, tmp_path: Path) -> None:
    notebook = Notebook()
    fit(text, tmp_path / "run", notebook)
    expected: list[tuple[str, int]] = [("start", 0)]
    for step in range(1, 13):
        expected.append(("update", step))
        if step % 4 == 0:
            expected.append(("evaluation", step))
    assert notebook.seen == [*expected, ("finished", 12)]
    logged = {int(row.split(",")[0]): float(row.split(",")[1]) for row in rows_of(tmp_path / "run")[1:]}
    assert logged == pytest.approx(notebook.losses, rel=1e-5)


@pytest.mark.parametrize(("until", "end"), [(4, 4), (6, 7)])
def test_a_stopped_run_is_evaluated_saved_and_goes_on(until: int, end: int, text: Path, tmp_path: Path) -> None:
    """Stopped at an evaluation it ends at once, elsewhere after one more update."""
    notebook, folder = Notebook(until), tmp_path / "run"
    fit(text, folder, notebook)
    assert notebook.seen[-2:] == [("evaluation", end), ("stopped", end)] or until == 4
    assert json.loads(rows_of(folder, "metrics.jsonl")[-1])["step"] == end
    later = Notebook()
    unrolled.resume(folder, quiet=True, callbacks=[later])
    assert later.seen[0] == ("start", end)
    assert later.seen[-1] == ("finished", 12)
    assert [int(row.split(",")[0]) for row in rows_of(folder)[1:]] == list(range(1, 13))


def test_watching_changes_no_bit(text: Path, tmp_path: Path) -> None:
    fit(text, tmp_path / "plain")
    fit(text, tmp_path / "watched", Notebook(), log="tensorboard")
    for name in ("metrics.jsonl", "updates.csv", "samples.jsonl"):
        assert rows_of(tmp_path / "watched", name) == rows_of(tmp_path / "plain", name)
    ours, plain = (load_file(tmp_path / run / "last.safetensors") for run in ("watched", "plain"))
    assert all(torch.equal(ours[name], plain[name]) for name in ours.keys() | plain.keys())


def test_an_error_of_a_callback_reaches_the_caller_and_the_run_goes_on(text: Path, tmp_path: Path) -> None:
    class Fails(Callback):
        def update(self, run: WatchedRun, info: StepInfo) -> None:
            if info.step == 6:
                raise ZeroDivisionError

    notebook = Notebook()
    with pytest.raises(ZeroDivisionError):
        fit(text, tmp_path / "run", notebook, Fails())
    assert notebook.seen[-1] == ("failed", 6)
    unrolled.resume(tmp_path / "run", quiet=True)
    assert len(rows_of(tmp_path / "run")) == 13


def test_tensorboard_reads_the_runs_numbers_also_after_a_resume(text: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    notebook, later = Notebook(6), Notebook()
    fit(text, folder, notebook, log=["tensorboard"])
    unrolled.resume(folder, quiet=True, callbacks=[later])
    found = reader.EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    losses = {event.step: event.value for event in found.Scalars("train/loss")}
    assert losses == pytest.approx(notebook.losses | later.losses, rel=1e-5)
    scores = {row["step"]: row["nats_per_token"] for row in map(json.loads, rows_of(folder, "metrics.jsonl"))}
    assert {event.step: event.value for event in found.Scalars("valid/nats_per_token")} == pytest.approx(scores)
    assert "samples/text_summary" in found.Tags()["tensors"]


def test_mlflow_holds_the_runs_numbers(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    notebook = Notebook()
    fit(text, tmp_path / "run", notebook, log="mlflow")
    number = json.loads((tmp_path / "run" / "mlflow.json").read_text())["run_id"]
    client = mlflow.MlflowClient()
    run = client.get_run(number)
    assert (run.info.status, run.data.params["train.max_steps"]) == ("FINISHED", "12")
    history = {metric.step: metric.value for metric in client.get_metric_history(number, "train/loss")}
    assert history == pytest.approx(notebook.losses)


def log_records(raw: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, W&B's format: blocks of 32 KiB, and parts of records with 7 bytes before each."""
    at, block, record = 7, 32768, b""
    while at + 7 <= len(raw):
        size, kind = struct.unpack_from("<HB", raw, at + 4)
        if block - at % block < 7 or kind == 0:
            at += block - at % block  # the rest of a block is filled with zeros
            continue
        record += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, last
            yield record
            record = b""


def test_wandb_holds_the_runs_numbers(text: Path, tmp_path: Path) -> None:
    records: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    notebook = Notebook()
    fit(text, tmp_path / "run", notebook, log="wandb")
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    losses = dict[int, float]()
    for data in log_records(path.read_bytes()):
        record = records.Record.FromString(data)
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if "train/loss" in row:
            losses[int(row["_step"])] = row["train/loss"]
    assert losses == pytest.approx(notebook.losses)


def test_a_broken_tracker_is_noted_and_training_goes_on(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Tracker):
        name = "wandb"
        package = "json"

        def open(self, run: WatchedRun) -> None:
            raise OSError("the server is away")

        def write(self, step: int, values: Any) -> None:
            raise AssertionError

        def close(self, outcome: Any, best: Any) -> None:
            raise AssertionError

    monkeypatch.setitem(TRACKERS, "wandb", Broken)
    with pytest.warns(UserWarning, match="wandb tracks this run no longer: the server is away. Training goes on."):
        fit(text, tmp_path / "run", log="wandb")
    assert len(rows_of(tmp_path / "run")) == 13


def test_a_missing_tracker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRACKERS["mlflow"], "package", "no_such_package")
    with pytest.raises(UserError, match=r"train.log=mlflow needs the package no_such_package.*pip install"):
        trackers(["mlflow"])


def test_the_command_takes_a_callback(text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import unrolled\n\n\nclass Half(unrolled.Callback):\n    def update(self, run, info):\n"
        "        if info.step * 2 >= run.total_steps:\n            run.stop('half is enough')\n"
    )
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    train = ["train", "generate", "--train", str(text), "--out", str(tmp_path / "run"), *sets]
    done = warm.unrolled(*train, "--callback", f"{tmp_path}/mine.py:Half")
    assert done.returncode == 0, done.stderr
    assert "Stopped by a callback at step 7: half is enough. To train on: unrolled train --resume" in done.stderr
    wrong = warm.unrolled(*train, "--callback", f"{tmp_path}/mine.py:Haf")
    assert wrong.returncode == 2
    assert "Unknown callback" in wrong.stderr
    assert "'Half'" in wrong.stderr
