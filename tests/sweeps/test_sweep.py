"""Sweeps: their trials as Optuna reads them, the best config again, going on, failures, limits."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import unrolled
from tests.sharing import made_once
from tests.sweeps.tiny import SETTINGS, SPACES, write_words
from unrolled import UserError
from unrolled.sweeps import Sweep

TRIALS = 7
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}


@pytest.fixture(scope="module")
def data() -> Path:
    return made_once("sweep-words.tsv", write_words)


def run(data: Path, out: Path, more: Mapping[str, Any] | None = None, *, draw: bool = False, **options: Any) -> Sweep:
    changes = {**SETTINGS, **SPACES, **(more or {})}
    with pytest.MonkeyPatch.context() as patch:
        if not draw:
            patch.setattr("unrolled.sweeps.outputs.Outputs.draw", lambda self, trials: None)
        return unrolled.sweep("classify", train=data, set=changes, out=out, quiet=True, **options)


@pytest.fixture(scope="module")
def finished(data: Path) -> Path:
    return made_once("sweep", lambda folder: run(data, folder, trials=TRIALS, draw=True))


@pytest.fixture(scope="module")
def result(data: Path, finished: Path) -> Sweep:
    """The same call again: nothing is left to do."""
    return run(data, finished, trials=TRIALS)


def study_of(folder: Path) -> optuna.Study:
    return optuna.load_study(
        study_name="sweep", storage=JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    )


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def test_optuna_reads_the_trials_of_the_table(finished: Path) -> None:
    study, rows = study_of(finished), table(finished)
    assert study.direction.name == "MAXIMIZE"
    assert len(study.trials) == len(rows) == TRIALS
    for trial, row in zip(study.trials, rows, strict=True):
        assert (str(trial.number), STATES[trial.state.name]) == (row["number"], row["state"])
        assert trial.value == float(row["score"])
        params = {key: row[key] for key in SPACES if row[key]}
        assert {key: str(value) for key, value in trial.params.items()} == params
    best = (finished / "best.toml").read_text()
    assert best.startswith(f"# Trial {study.best_trial.number} of {finished}: accuracy ")


def test_the_journal_is_json_lines(finished: Path) -> None:
    """No pickle: what another person's sweep holds cannot run code."""
    assert all(isinstance(json.loads(line), dict) for line in (finished / "journal.log").read_text().splitlines())


def test_the_best_config_trains_the_same_file(finished: Path, tmp_path: Path) -> None:
    unrolled.train(finished / "best.toml", out=tmp_path / "again", quiet=True)
    assert (tmp_path / "again" / "best.safetensors").read_bytes() == (finished / "best.safetensors").read_bytes()


def test_the_result(result: Sweep, finished: Path, tmp_path: Path) -> None:
    assert len(result.trials) == TRIALS
    scores = [row["score"] for row in result.trials if row["state"] == "complete"]
    assert result.best_score == max(scores)
    assert result.best_model.scores["accuracy"] == result.best_score
    assert unrolled.load(finished).predict("aei").label in ("vowels", "others")
    assert result.best.keys() == {"train.lr", "model.cell"}
    result.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == (finished / "trials.csv").read_text()
    pictures = {path.name for path in finished.glob("*.png")}
    assert {"history.png", "parallel.png"} <= pictures
    left = {path.name for folder in (finished / "trials").iterdir() for path in folder.iterdir()}
    assert left == {"config.toml", "metrics.jsonl", "updates.csv"}


def test_a_sweep_goes_on_as_if_it_had_not_stopped(data: Path, finished: Path, tmp_path: Path) -> None:
    first = run(data, tmp_path / "sweep", trials=3)
    assert len(first.trials) == 3
    second = run(data, tmp_path / "sweep", trials=TRIALS)
    drop = {"seconds"}
    rows = [{key: value for key, value in row.items() if key not in drop} for row in table(finished)]
    assert [{k: v for k, v in row.items() if k not in drop} for row in table(second.folder)] == rows


def test_the_folder_of_another_sweep_is_refused(data: Path, finished: Path) -> None:
    with pytest.raises(UserError) as caught:
        run(data, finished, {"train.lr": "log(1e-3, 1)", "train.seed": 1}, trials=TRIALS, pruner="none")
    assert str(caught.value) == (
        f"{finished} holds another sweep: train.seed: 0, now 1; pruner: 'median', now 'none'; train.lr: "
        "'log(0.001, 0.1)', now 'log(0.001, 1)'. Choose another --out, or give it the same command."
    )
    with pytest.raises(UserError, match="exists and is not the folder of a sweep"):
        run(data, data.parent)


def test_other_data_is_refused(data: Path, tmp_path: Path) -> None:
    own = tmp_path / "words.tsv"
    own.write_text(data.read_text())
    run(own, tmp_path / "sweep", trials=1)
    own.write_text(data.read_text() + "vowels\taaa\n")
    with pytest.raises(UserError, match="The data here differs from that of the other trials of"):
        run(own, tmp_path / "sweep", trials=2)


def test_a_few_combinations_are_tried_once_each(data: Path, tmp_path: Path) -> None:
    spaces = {"train.lr": 0.01, "model.cell": "choice(lstm, gru)", "model.peephole": "choice(none, current)"}
    found = run(data, tmp_path / "sweep", spaces, trials=20, pruner="none")
    assert sorted((row["model.cell"], row.get("model.peephole", "")) for row in found.trials) == [
        ("gru", ""),
        ("lstm", "current"),
        ("lstm", "none"),
    ]


def test_a_trial_that_diverges_fails_with_its_reason(data: Path, tmp_path: Path) -> None:
    spaces = {"train.lr": "choice(0.01, 1e30)", "model.cell": "gru", "train.clip_norm": "none"}
    found = run(data, tmp_path / "sweep", spaces, pruner="none")
    states = {row["train.lr"]: (row["state"], row["note"].split(" at step")[0]) for row in found.trials}
    assert states == {0.01: ("complete", ""), 1e30: ("failed", "Training became non-finite")}
    assert (tmp_path / "sweep" / "best.toml").is_file()


def test_a_sweep_where_all_trials_fail_is_an_error(data: Path, tmp_path: Path) -> None:
    spaces = {"train.lr": "choice(1e29, 1e30)", "model.cell": "gru", "train.clip_norm": "none"}
    with pytest.raises(UserError) as caught:
        run(data, tmp_path / "sweep", spaces)
    text = str(caught.value)
    assert text.startswith("All 2 trials failed. The first, trial 0: Training became non-finite at step ")
    assert text.endswith("Change the ranges or the config, and begin another sweep.")
    assert [row["state"] for row in table(tmp_path / "sweep")] == ["failed", "failed"]


def test_the_data_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.tsv"):
        run(tmp_path / "nowhere.tsv", tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    with pytest.raises(UserError, match=r"Unknown key 'trails'\. Did you mean 'trials'"):
        run(tmp_path / "nowhere.tsv", tmp_path / "sweep", trails=3)


def test_a_trial_that_time_stops_goes_on_with_the_same_bits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between two evaluations, and after one more."""
    spaces = {"train.lr": "choice(0.01, 0.02)", "model.cell": "gru"}
    whole = run(data, tmp_path / "whole", spaces, keep=True)
    looks = iter(range(10_000))
    monkeypatch.setattr(
        "unrolled.sweeps.trial.SweepBounds.reached", property(lambda _: "time" if next(looks) > 5 else "")
    )
    with pytest.raises(UserError, match="is complete yet"):
        run(data, tmp_path / "cut", spaces, keep=True).best_trial  # noqa: B018
    monkeypatch.undo()
    cut = run(data, tmp_path / "cut", spaces, keep=True)
    assert [(row["state"], row["note"]) for row in cut.trials][:1] == [("stopped", "time; goes on as 2")]
    assert cut.best == whole.best
    assert (cut.folder / "best.safetensors").read_bytes() == (whole.folder / "best.safetensors").read_bytes()
    assert (cut.folder / "trials" / "0002" / "checkpoint").is_dir()  # keep=True
    assert not (cut.folder / "trials" / "0000").exists()
