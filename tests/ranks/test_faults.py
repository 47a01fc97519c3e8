"""Processes that are killed, stopped, late, or given other files: one clear message, and no update lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_resume import SETTINGS, TEXT, assert_same
from tests.ranks.faulty import AT, KILL, Signaller
from tests.ranks.launch import LIMIT, ROOT, environment, said, torchrun, torchrun_words
from unrolled import Callback, api
from unrolled.training import StepInfo
from unrolled.training.watching import WatchedRun

FAULTY = Path(__file__).with_name("faulty.py")
CHANGED: dict[str, Any] = {**SETTINGS, "train.device": "cpu", "train.timeout": 20}
SET = [word for key, value in CHANGED.items() for word in ("--set", f"{key}={value}")]


SLOW = pytest.mark.skipif("UNROLLED_SLOW" not in os.environ, reason="slow; `make kill` runs it")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "sums.txt"
    path.write_text(TEXT)
    return path


def words(text: Path | str, out: Path, *more: str) -> list[str]:
    return ["unrolled", "train", "generate", "--train", str(text), "--out", str(out), "--quiet", *SET, *more]


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of two processes that nothing happens to."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done = torchrun(words(text, folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("killed", ["0", pytest.param("1", marks=SLOW), pytest.param("0 1", marks=SLOW)])
def test_killed_processes_are_started_again(killed: str, text: Path, whole: Path, tmp_path: Path) -> None:
    """torchrun starts the command anew, which goes on from its checkpoint."""
    command = words(text, tmp_path / "run", "--callback", f"{FAULTY}:Killer")
    done = torchrun(command, options=("--standalone", "--max-restarts", "1"), variables={KILL: killed})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run.killed").exists()
    assert_same(tmp_path / "run", whole)


@SLOW
def test_without_restarts_one_process_tells_and_the_run_can_resume(text: Path, whole: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    done = torchrun(words(text, tmp_path / "run", "--callback", f"{FAULTY}:Killer"), variables={KILL: "1"})
    assert done.returncode != 0
    assert time.monotonic() - began < 60
    assert len(said(done.stderr)) <= 1  # torchrun may end the others before they notice
    resumed = torchrun(["unrolled", "train", "--resume", str(tmp_path / "run"), "--quiet"])
    assert resumed.returncode == 0, resumed.stderr
    assert_same(tmp_path / "run", whole)


def test_processes_without_their_agent_end(text: Path, whole: Path, tmp_path: Path) -> None:
    done = torchrun(words(text, tmp_path / "run", "--callback", f"{FAULTY}:Killer"), variables={KILL: "agent"})
    assert done.returncode == -signal.SIGKILL
    until = time.monotonic() + 30
    while trainers(tmp_path / "run"):
        assert time.monotonic() < until, "they still run"
        time.sleep(0.1)
    resumed = torchrun(["unrolled", "train", "--resume", str(tmp_path / "run"), "--quiet"])
    assert resumed.returncode == 0, resumed.stderr
    assert_same(tmp_path / "run", whole)


def trainers(folder: Path) -> list[str]:
    """The commands that run for a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it ended
            continue
        found += [line] if f"--out {folder}" in line else []
    return found


@SLOW
def test_ctrl_c_in_one_process_stops_all_after_the_same_update(text: Path, whole: Path, tmp_path: Path) -> None:
    done = torchrun(words(text, tmp_path / "run", "--callback", f"{FAULTY}:Signaller"))
    assert done.returncode != 0
    assert said(done.stderr) == []
    resumed = torchrun(["unrolled", "train", "--resume", str(tmp_path / "run"), "--quiet"])
    assert resumed.returncode == 0, resumed.stderr
    assert_same(tmp_path / "run", whole)


@SLOW
def test_a_process_that_is_late_ends_the_run_in_time(text: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    late = ["--callback", f"{FAULTY}:Slow", "--set", "train.timeout=2"]
    done = torchrun(words(text, tmp_path / "run", *late))
    assert done.returncode != 0
    assert time.monotonic() - began < 60
    (message,) = said(done.stderr)
    assert "lost another" in message


def test_unequal_files(text: Path, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"{rank}.txt").write_text(TEXT + f"\n{rank} more")
    done = torchrun(["tests.ranks.faulty", *words(tmp_path / "{rank}.txt", tmp_path / "run")[1:]])
    assert done.returncode != 0
    (message,) = said(done.stderr)
    assert "do not have the same data" in message
    assert f"traceback : {message}" in done.stderr  # in torchrun's own last lines
    assert not (tmp_path / "run").exists()


@SLOW
def test_a_wrong_option_is_told_once(text: Path, tmp_path: Path) -> None:
    done = torchrun(words(text, tmp_path / "run", "--bogus"))
    assert done.returncode != 0
    assert done.stderr.count("No such option: --bogus") == 1


class Counting(Callback):
    """Counts updates."""

    def __init__(self) -> None:
        self.updates = 0

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        self.updates += 1


def test_callbacks_go_on_after_a_restart(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun starts a program anew, and `train` finds the run that it had begun."""
    folder, counting = tmp_path / "run", Counting()
    with pytest.raises(KeyboardInterrupt):
        api.train("generate", train=text, out=folder, set=CHANGED, quiet=True, callbacks=[Signaller()])
    monkeypatch.setattr(api, "restarted_run", lambda: folder)
    api.train("generate", train=text, out=folder, set=CHANGED, quiet=True, callbacks=[counting])
    assert counting.updates == SETTINGS["train.max_steps"] - AT


def test_two_agents(text: Path, whole: Path, tmp_path: Path) -> None:
    """As on two machines: each agent starts one process, and torchrun's own rendezvous brings them together."""
    meeting = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}")
    command = torchrun_words(words(text, tmp_path / "run"), 1, meeting)
    both = [subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for agent in both:
        _, stderr = agent.communicate(timeout=LIMIT)
        assert agent.returncode == 0, stderr
    assert_same(tmp_path / "run", whole)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


WITHOUT_CHANCE = {**CHANGED, "model.dropout": 0.0, "model.zoneout": 0.0, "train.teacher_forcing": "always"}


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_processes_goes_on(
    before: int, after: int, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The batches are the same: without random numbers in the network, so are the losses."""
    folder = tmp_path / "run"
    api.train("generate", train=text, out=tmp_path / "first", set=WITHOUT_CHANCE, quiet=True)
    if before == 1:
        with pytest.raises(KeyboardInterrupt):
            api.train("generate", train=text, out=folder, set=WITHOUT_CHANCE, quiet=True, callbacks=[Signaller()])
        resumed = torchrun(["unrolled", "train", "--resume", str(folder)])
        assert resumed.returncode == 0, resumed.stderr
        output = resumed.stdout + resumed.stderr
    else:
        exact = [f"--set={key}={value}" for key, value in WITHOUT_CHANCE.items()]
        torchrun(words(text, folder, *exact, "--callback", f"{FAULTY}:Signaller"))
        assert len(updates(folder)) == AT + 1  # the sign to stop travels with the next update
        api.resume(folder)
        output = "".join(capfd.readouterr())
    assert "the batches are the same" in output
    rows = [updates(tmp_path / "first"), updates(folder)]
    assert len(rows[0]) == len(rows[1]) == SETTINGS["train.max_steps"]
    for one, other in zip(*rows, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def updates(folder: Path) -> list[list[float]]:
    """The numbers of each update."""
    lines = (folder / "updates.csv").read_text().splitlines()[1:]
    return [[float(number) for number in line.split(",")] for line in lines]


def alone(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in one process that is told it is one of two, as other launchers than torchrun do."""
    return subprocess.run(
        [sys.executable, "-m", "unrolled", "train", "generate", "--quiet", *words],
        env=environment(WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", **more),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = alone("--out", str(tmp_path / "run"), RANK="0", MASTER_PORT=str(port))
    assert done.returncode == 2
    assert said(done.stderr) == [f"unrolled: 127.0.0.1:{port} is in use. Choose another port: torchrun --master-port."]


def test_nobody_else_comes(tmp_path: Path) -> None:
    began, port = time.monotonic(), free_port()
    short = ("--out", str(tmp_path / "run"), "--set", "train.timeout=2")
    done = alone(*short, RANK="0", MASTER_PORT=str(port))
    assert done.returncode == 2
    assert time.monotonic() - began < 30
    (message,) = said(done.stderr)
    assert f"Process 0 of 2 did not meet the others at 127.0.0.1:{port}" in message


def test_nccl_without_gpus(tmp_path: Path) -> None:
    done = alone("--set", "train.backend=nccl", "--set", "train.device=cpu", RANK="0", MASTER_PORT=str(free_port()))
    assert done.returncode == 2
    (message,) = said(done.stderr)
    assert "train.backend=nccl adds up on GPUs" in message
    assert os.listdir(tmp_path) == []
