"""A run stopped at any instant and resumed ends with the same bits as one never stopped."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from tests import warm
from unrolled import UserError, api
from unrolled.training import checkpoint
from unrolled.training.loop import StepInfo
from unrolled.training.run import Run
from unrolled.training.updates import UpdateLog

TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12))

# small, with everything that has a state: dropout, a carried hidden state, windows that reach back, a schedule
SETTINGS: dict[str, Any] = {
    "model.hidden_size": 8,
    "model.num_layers": 2,
    "model.dropout": 0.2,
    "model.zoneout": 0.1,
    "train.batch_size": 4,
    "train.k1": 10,
    "train.k2": 15,
    "train.teacher_forcing": "linear",
    "train.max_steps": 20,
    "train.eval_every": 4,
    "train.threads": 1,
}
KEPT = ("best.safetensors", "last.safetensors", "metrics.jsonl", "updates.csv", "samples.jsonl", "config.toml")


class Killed(BaseException):
    """Stands for SIGKILL inside the process: nothing of ours may catch it."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "sums.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that is never stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    api.train("generate", train=text, out=folder, set=SETTINGS, quiet=True)
    return folder


def assert_nothing_unfinished(folder: Path) -> None:
    assert [path.name for path in folder.iterdir() if path.suffix == ".new" or path.name == ".lock"] == []


def assert_same(folder: Path, whole: Path) -> None:
    assert_nothing_unfinished(folder)
    for name in KEPT:
        if name == "samples.jsonl" and not (whole / name).exists():
            continue
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def assert_resumed_is_as_if_never_stopped(
    task: str, train: Path, settings: dict[str, Any], work: Path, stops: Sequence[int] = (1,)
) -> None:
    """Runs that are killed right after one of their first checkpoints, and go on, beside one that is not."""
    api.train(task, train=train, out=work / "whole", set=settings, quiet=True)
    for last in stops:
        folder, done, original = work / f"run-{last}", 0, Run.checkpoint

        def kept(run: Run, last: int = last, original: Callable[[Run], None] = original) -> None:
            nonlocal done
            original(run)
            done += 1
            if done == last:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "checkpoint", kept)
            with pytest.raises(Killed):
                api.train(task, train=train, out=folder, set=settings, quiet=True)
        api.resume(folder, quiet=True)
        assert_same(folder, work / "whole")


def disk_operations(monkeypatch: pytest.MonkeyPatch, act: Callable[[str, Any], None]) -> None:
    """Calls `act(name, path)` before each operation that changes the disk."""

    def hook(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def hooked(*arguments: Any, **keywords: Any) -> Any:
            act(name, arguments)
            return original(*arguments, **keywords)

        monkeypatch.setattr(owner, name, hooked)

    for owner, name in [
        (Path, "rename"),
        (Path, "write_bytes"),
        (Path, "write_text"),
        (Path, "mkdir"),
        (checkpoint, "save_file"),
        (checkpoint, "sync"),
        (shutil, "rmtree"),
    ]:
        hook(owner, name)


def count_operations(text: Path, folder: Path, settings: dict[str, Any]) -> int:
    operations: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        disk_operations(patch, lambda name, _: operations.append(name))
        api.train("generate", train=text, out=folder, set=settings, quiet=True)
    return len(operations)


def test_stopped_at_any_write(text: Path, tmp_path: Path) -> None:
    """Any operation on the disk is the last one before the end. Each run of the tests tries others."""
    settings = {**SETTINGS, "train.max_steps": 12}  # three checkpoints: one replaces another
    whole = tmp_path / "whole"
    api.train("generate", train=text, out=whole, set=settings, quiet=True)
    total = count_operations(text, tmp_path / "counted", settings)
    assert_same(tmp_path / "counted", whole)
    stride = max(1, total // 16)
    for last in range(5 + random.randrange(stride), total, stride):  # before the fifth there is no config to go on with
        folder = tmp_path / f"run-{last}"
        done = 0

        def die(name: str, arguments: Any, last: int = last) -> None:
            nonlocal done
            done += 1
            if done == last:
                if name in ("write_bytes", "save_file"):  # half of it gets there
                    target = arguments[0] if name == "write_bytes" else arguments[1]
                    with open(target, "wb") as file:
                        file.write(b"\x00" * 100)
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            disk_operations(patch, die)
            with pytest.raises(Killed):
                api.train("generate", train=text, out=folder, set=settings, quiet=True)
        api.resume(folder, quiet=True)
        assert_same(folder, whole)


@pytest.mark.usefixtures("with_curves")
def test_stopped_while_the_curves_are_written(text: Path, whole: Path, tmp_path: Path) -> None:
    def die(name: str, arguments: Any) -> None:
        if name == "write_bytes" and Path(arguments[0]).name.startswith("curves"):
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        disk_operations(patch, die)
        with pytest.raises(Killed):
            api.train("generate", train=text, out=tmp_path / "run", set=SETTINGS, quiet=True)
    assert not (tmp_path / "run" / "curves.png").exists()
    api.resume(tmp_path / "run", quiet=True)
    assert_same(tmp_path / "run", whole)
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def start(text: Path, folder: Path) -> warm.Started:
    words = ["train", "generate", "--train", str(text), "--out", str(folder), "--quiet"]
    words += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    return warm.start("-m", "unrolled", *words)


def test_killed_for_real(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL to the whole process at random instants after it has begun to train, then again while it resumes."""
    monkeypatch.setattr("unrolled.tasks.generate.task.SAMPLE_TOKENS", 200)  # as in the processes
    chance = random.Random()
    folder, whole = tmp_path / "run", tmp_path / "whole"
    api.train("generate", train=text, out=whole, set=SETTINGS, quiet=True)
    process = start(text, folder)
    try:
        for _ in range(600):
            if (folder / "metrics.jsonl").exists() or not process.running:
                break
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 0.3))
    finally:
        process.kill(signal.SIGKILL)
        process.finished()
    second = warm.start("-m", "unrolled", "train", "--quiet", "--resume", folder)
    time.sleep(chance.uniform(0, 0.6))
    second.kill(signal.SIGKILL)
    if second.finished().returncode != 0:  # on a quick machine it may have ended before
        api.resume(folder, quiet=True)
    assert_same(folder, whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(number: int, code: int, text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["train", "generate", "--train", str(text), "--out", str(folder)]
    words += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words += ["--set", "train.max_steps=100000", "--set", "train.epochs=100000"]
    process = warm.start("-m", "unrolled", *words)
    for _ in range(1200):
        if (folder / "checkpoint").exists() or not process.running:
            break
        time.sleep(0.05)
    process.kill(number)
    ended = process.finished()
    assert ended.returncode == code, ended.stderr
    assert f"Resume with: unrolled train --resume {folder}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (folder / "checkpoint").is_dir()
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert_nothing_unfinished(folder)


@pytest.mark.parametrize(("number", "left"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_stopped_between_two_evaluations(
    number: int, left: type[BaseException], text: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = UpdateLog.add

    def ask(log: UpdateLog, info: StepInfo) -> None:
        original(log, info)
        if info.step == 6:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(UpdateLog, "add", ask)
        with pytest.raises(left):
            api.train("generate", train=text, out=tmp_path / "run", set=SETTINGS, quiet=True)
    state, _ = checkpoint.load(tmp_path / "run")
    assert state["progress"]["step"] == 6
    api.resume(tmp_path / "run", quiet=True)
    assert_same(tmp_path / "run", whole)


def test_a_programs_own_handler_of_sigterm_stays() -> None:
    from unrolled.training.interrupts import interruptible

    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        with interruptible() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            assert stop.signal is None
        assert asked == [signal.SIGTERM]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with interruptible() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            assert stop.signal == signal.SIGTERM
            with pytest.raises(SystemExit) as left:  # the second stops at once
                os.kill(os.getpid(), signal.SIGTERM)
        assert left.value.code == 143
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_finished_run_resumed_stays_as_it_is(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    model = api.resume(copy, quiet=True)
    assert_same(copy, whole)
    assert model.scores


def test_a_broken_checkpoint_gives_way_to_the_one_before(whole: Path, tmp_path: Path, capfd: Any) -> None:
    for damage in ("truncate", "change", "remove"):
        copy = tmp_path / damage
        shutil.copytree(whole, copy)
        tensors = copy / "checkpoint" / "tensors.safetensors"
        if damage == "truncate":
            tensors.write_bytes(tensors.read_bytes()[:-10])
        elif damage == "change":
            tensors.write_bytes(tensors.read_bytes()[:-1] + b"\xff")
        else:
            tensors.unlink()
        api.resume(copy)
        assert f"{copy / 'checkpoint'} cannot be used" in capfd.readouterr().err
        assert_same(copy, whole)


def test_two_broken_checkpoints_are_an_error(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    for name in ("checkpoint", "checkpoint.previous"):
        (copy / name / "state.json").write_text("{}")
    with pytest.raises(UserError, match="There is no earlier checkpoint: train again"):
        api.resume(copy, quiet=True)


def test_other_data_is_refused(whole: Path, text: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    changed = tmp_path / "other.txt"
    changed.write_text(TEXT + "\nmore")
    config = (copy / "config.toml").read_text().replace(str(text), str(changed))
    (copy / "config.toml").write_text(config)
    with pytest.raises(UserError, match="The data is not what"):
        api.resume(copy, quiet=True)


def test_a_full_disk_is_said_and_nothing_is_lost(text: Path, whole: Path, tmp_path: Path) -> None:
    folder, writes = tmp_path / "run", 0

    def refuse(name: str, arguments: Any) -> None:
        nonlocal writes
        writes += name == "save_file"
        if writes >= 3 and name == "save_file":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        disk_operations(patch, refuse)
        with pytest.raises(UserError) as error:
            api.train("generate", train=text, out=folder, set=SETTINGS, quiet=True)
    assert str(error.value) == (
        f"{folder} could not be written: No space left on device. "
        f"Free some space, then resume with: unrolled train --resume {folder}"
    )
    api.resume(folder, quiet=True)
    assert_same(folder, whole)


def test_metrics_are_one_json_object_a_line(whole: Path) -> None:
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8, 12, 16, 20]
    assert {"train_loss", "nats_per_token", "perplexity", "lr", "grad_norm_max", "tokens"} <= set(rows[0])


def test_checkpoints_hold_anything_nested(tmp_path: Path) -> None:
    import torch

    state = {"a": [1, (2.5, None)], "b": {"x": torch.arange(3), 3: torch.ones(2, dtype=torch.bool)}, "c": "text"}
    checkpoint.save(tmp_path, state)
    loaded, problems = checkpoint.load(tmp_path)
    assert problems == []
    assert loaded["a"] == [1, (2.5, None)]
    assert torch.equal(loaded["b"]["x"], torch.arange(3))
    assert torch.equal(loaded["b"][3], torch.ones(2, dtype=torch.bool))
    with pytest.raises(TypeError, match="cannot hold a set"):
        checkpoint.save(tmp_path, {"a": {1, 2}})


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_weights_are_not_pickled(whole: Path) -> None:
    """Whatever a user can load is safetensors or plain text."""
    for path in whole.rglob("*"):
        if path.is_file():
            assert path.suffix in {".safetensors", ".json", ".jsonl", ".csv", ".toml", ".png"}, path
    assert safetensors.torch.load_file(whole / "best.safetensors")
