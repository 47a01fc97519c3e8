"""Sweeps of several processes, and of processes that are killed or interrupted."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unrolled
from tests import warm
from tests.sharing import made_once
from tests.sweeps.tiny import SETTINGS, SPACES, words, write_words
from unrolled.errors import Note
from unrolled.sweeps.alive import Worker
from unrolled.sweeps.processes import Processes

LONGER = ("--set", "train.max_steps=300", "--set", "train.eval_every=20", "--pruner", "none")
DEADLINE = 120.0


@pytest.fixture(scope="module")
def data() -> Path:
    return made_once("sweep-words.tsv", write_words)


def operations(folder: Path) -> list[dict[str, Any]]:
    path = folder / "journal.log"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def starts_of(folder: Path) -> Counter[int]:
    """The number of processes that took each trial as their own."""
    return Counter(one["trial_id"] for one in operations(folder) if "worker" in one.get("user_attr", ()))


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_processes_share_the_trials(data: Path, tmp_path: Path) -> None:
    """Started alike, as on two machines; no trial runs twice, and there are as many as were asked for."""
    out = tmp_path / "sweep"
    processes = [warm.start("-m", "unrolled", *words(data, out, "--trials", "8")) for _ in range(2)]
    done = [process.finished() for process in processes]
    assert [one.returncode for one in done] == [0, 0], done[0].stderr + done[1].stderr
    assert starts_of(out) == dict.fromkeys(range(8), 1)
    assert [row["number"] for row in table(out)] == [str(number) for number in range(8)]
    assert {row["state"] for row in table(out)} <= {"complete", "pruned"}
    assert not list(out.glob("*.lock"))


def test_a_killed_sweep_goes_on(data: Path, tmp_path: Path) -> None:
    """Killed in the middle of its second trial, which goes on from its checkpoint under a new number."""
    out, command = tmp_path / "sweep", words(data, tmp_path / "sweep", *LONGER, "--trials", "3")
    process = warm.start("-m", "unrolled", *command)
    wait_for((out / "trials" / "0001" / "checkpoint").exists)
    process.kill(signal.SIGKILL)
    assert process.finished().returncode == -signal.SIGKILL
    done = warm.unrolled(*command)
    assert done.returncode == 0, done.stderr
    assert "1 trials have ended already; the sweep goes on." in done.stderr
    rows = table(out)
    assert [(row["state"], row["note"]) for row in rows] == [
        ("complete", ""),
        ("killed", "goes on as 2"),
        ("complete", ""),
        ("complete", ""),
    ]
    assert rows[1]["train.lr"] == rows[2]["train.lr"]
    assert max(starts_of(out).values()) == 1
    undisturbed = {**SETTINGS, "train.max_steps": 300, "train.eval_every": 20}
    chosen = {"train.lr": float(rows[2]["train.lr"]), "model.cell": rows[2]["model.cell"]}
    model = unrolled.train("classify", train=data, set={**undisturbed, **chosen}, out=tmp_path / "run", quiet=True)
    assert model.scores["accuracy"] == float(rows[2]["score"])
    short = unrolled.sweep("classify", train=data, set={**SETTINGS, **SPACES}, trials=3, out=tmp_path / "b", quiet=True)
    assert [str(row["train.lr"]) for row in short.trials] == [rows[i]["train.lr"] for i in (0, 2, 3)]


def test_ctrl_c_saves_and_the_same_command_goes_on(data: Path, tmp_path: Path) -> None:
    out, command = tmp_path / "sweep", words(data, tmp_path / "sweep", *LONGER, "--trials", "2")
    process = warm.start("-m", "unrolled", *command)
    wait_for((out / "trials" / "0001" / "checkpoint").exists)
    process.kill(signal.SIGINT)
    stopped = process.finished()
    assert stopped.returncode == 130
    assert stopped.stderr.endswith("Stopped. The same command goes on.\n")
    assert "Traceback" not in stopped.stderr
    assert [row["state"] for row in table(out)] == ["complete", "stopped", "waiting"]
    assert (out / "best.toml").is_file()
    done = warm.unrolled(*command)
    assert done.returncode == 0, done.stderr
    assert [row["note"] for row in table(out)] == ["", "stopped by the user; goes on as 2", ""]
    assert [row["state"] for row in table(out)][2] == "complete"


def test_workers_are_processes(data: Path, tmp_path: Path) -> None:
    """They divide the trials; the command speaks for them."""
    out = tmp_path / "sweep"
    done = warm.unrolled(*words(data, out, "--trials", "6", "--workers", "2"), env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert starts_of(out) == dict.fromkeys(range(6), 1)
    lines = [line.split() for line in done.stderr.splitlines()]
    assert sorted(line[0] for line in lines if line[1:2] in (["complete"], ["pruned"])) == list("012345")
    assert "2 processes" in lines[0] or " 2 processes, " in done.stderr
    owners = {one["user_attr"]["worker"] for one in operations(out) if "worker" in one.get("user_attr", ())}
    assert all(str(os.getpid()) not in owner for owner in owners)


def started(monkeypatch: pytest.MonkeyPatch, code: str) -> Processes:
    """Two processes that run some code in place of trials."""
    monkeypatch.setattr("unrolled.sweeps.processes.COMMAND", [sys.executable, "-S", "-c", code])
    monkeypatch.setattr("unrolled.sweeps.processes.LOOK", 0.02)
    return Processes(2, {}, gpus=0)


def test_the_error_of_a_process_is_that_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    said = json.dumps(["All 2 trials failed.", "Change the ranges."])
    with pytest.raises(unrolled.UserError, match=r"^All 2 trials failed\. Change the ranges\.$"):
        started(monkeypatch, f"print('{said}'); raise SystemExit(2)").wait(lambda: None)
    with pytest.raises(unrolled.UserError, match=r"^A process of the sweep ended with exit code 3\."):
        started(monkeypatch, "raise SystemExit(3)").wait(lambda: None)


def test_a_killed_process_gets_a_successor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first to make the file kills itself; the one in its place ends well."""
    code = (
        "import os, signal, time\n"
        f"try: os.close(os.open({str(tmp_path / 'first')!r}, os.O_CREAT | os.O_EXCL))\n"
        "except FileExistsError: time.sleep(0.5)\n"
        "else: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    processes = started(monkeypatch, code)
    before = {process.pid for process in processes.running}
    with pytest.warns(Note, match="was killed by signal 9; another one begins"):
        processes.wait(lambda: None)
    assert len({process.pid for process in processes.running} - before) == 1
    assert [process.returncode for process in processes.running] == [0, 0]


def test_ctrl_c_reaches_every_process_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # where tests run in the background, signals of the keyboard are ignored at first
    code = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try: time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(130)"
    )

    def interrupted() -> None:
        raise KeyboardInterrupt

    processes = started(monkeypatch, code)
    time.sleep(0.5)
    with pytest.raises(KeyboardInterrupt):
        processes.wait(interrupted)
    assert [process.returncode for process in processes.running] == [130, 130]


def test_a_worker_is_alive_until_it_leaves(tmp_path: Path) -> None:
    with Worker(tmp_path) as first, Worker(tmp_path) as second:
        assert second.sees(first.name)
        assert first.sees(first.name)
        assert not second.sees("nobody")
        elsewhere = tmp_path / "workers" / "other-1-abc"
        elsewhere.write_text('{"machine": "another one", "process": 1}')
        assert second.sees(elsewhere.name)
        os.utime(elsewhere, (time.time() - 500, time.time() - 500))
        assert not second.sees(elsewhere.name)
    with Worker(tmp_path) as third:
        assert not third.sees(first.name)


def test_a_line_that_was_cut_off_is_dropped(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    changes = {**SETTINGS, **SPACES}
    unrolled.sweep("classify", train=data, set=changes, out=out, trials=1, quiet=True)
    with (out / "journal.log").open("a") as file:
        file.write('{"op_code": 4, "worker')
    found = unrolled.sweep("classify", train=data, set=changes, out=out, trials=1, quiet=True)
    assert [row["state"] for row in found.trials] == ["complete"]
    (out / "journal.log").write_text("no journal\n")
    with pytest.raises(unrolled.UserError, match=r"journal\.log is damaged: "):
        unrolled.sweep("classify", train=data, set=changes, out=out, trials=1, quiet=True)
