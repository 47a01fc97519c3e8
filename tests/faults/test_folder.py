"""A run folder belongs to one process, takes what a killed start left, and says what the disk refuses."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_resume import SETTINGS, TEXT, Killed, assert_same
from unrolled import UserError, api
from unrolled.errors import Note
from unrolled.training.folder import LOCK, STARTED, locked, new_folder
from unrolled.training.run import Run

SHORT: dict[str, Any] = {**SETTINGS, "train.max_steps": 6, "train.eval_every": 2}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "sums.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    api.train("generate", train=text, out=folder, set=SHORT, quiet=True)
    return folder


@pytest.fixture
def stopped(text: Path, whole: Path, tmp_path: Path) -> Path:
    """A run that was killed after its first checkpoint."""
    folder = tmp_path / "stopped"

    def die(run: Run, info: Any, scores: Any) -> None:
        evaluated(run, info, scores)
        raise Killed

    evaluated = Run._evaluated
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "_evaluated", die)
        with pytest.raises(Killed):
            api.train("generate", train=text, out=folder, set=SHORT, quiet=True)
    return folder


def command(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    words_ = [sys.executable, "-m", "unrolled", *map(str, words)]
    return subprocess.run(words_, capture_output=True, text=True, timeout=300, **options)


def settings(changes: dict[str, Any]) -> Sequence[str]:
    return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]


class TestLock:
    def test_a_folder_in_use_is_refused_with_its_process(self, stopped: Path, whole: Path) -> None:
        with locked(stopped), pytest.raises(UserError) as error:
            api.resume(stopped, quiet=True)
        assert str(error.value) == (
            f"{stopped} is in use: process {os.getpid()} on {os.uname().nodename} is training into it. "
            "Wait until it ends, or stop it and resume the run. For a second run choose another --out."
        )
        api.resume(stopped, quiet=True)
        assert_same(stopped, whole)

    def test_a_killed_process_leaves_no_lock(self, tmp_path: Path) -> None:
        code = (
            "import sys, time, pathlib; from unrolled.training.folder import locked\n"
            "with locked(pathlib.Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
        )
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match=f"is in use: process {process.pid} on "), locked(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert (tmp_path / LOCK).exists()  # its file stays, and means nothing
        with locked(tmp_path):
            pass
        assert not (tmp_path / LOCK).exists()

    def test_of_many_at_once_one_gets_it_at_a_time(self, tmp_path: Path) -> None:
        """Taking, removing and taking again must never let two in."""
        inside, most, taken = 0, 0, 0

        def work() -> None:
            nonlocal inside, most, taken
            for _ in range(200):
                try:
                    with locked(tmp_path):
                        inside += 1
                        most = max(most, inside)
                        taken += 1
                        time.sleep(0)
                        inside -= 1
                except UserError:
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1
        assert taken > 0

    def test_two_runs_that_start_at_once_get_two_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert [str(new_folder(None, "tag")) for _ in range(3)] == ["runs/tag-1", "runs/tag-2", "runs/tag-3"]


class TestLeftovers:
    def test_a_start_that_was_killed_can_be_made_again(self, text: Path, whole: Path, tmp_path: Path) -> None:
        """Before there is a config, --resume has nothing to go on with, and --out takes the folder."""
        folder = tmp_path / "run"
        folder.mkdir()
        for name in STARTED - {"checkpoint.new"}:
            (folder / name).write_text("half")
        (folder / "checkpoint.new").mkdir()
        with pytest.raises(UserError) as error:
            api.resume(folder, quiet=True)
        assert str(error.value) == (
            f"{folder} was stopped before its run began: there is nothing to resume. "
            f"Start it again: unrolled train TASK --out {folder}"
        )
        api.train("generate", train=text, out=folder, set=SHORT, quiet=True)
        assert_same(folder, whole)
        assert not (folder / "init.safetensors").exists()

    def test_files_that_are_not_leftovers_stay(self, text: Path, tmp_path: Path) -> None:
        (tmp_path / "config.toml.new").write_text("half")
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(UserError, match=r"exists and is not a run folder\. Choose another --out\."):
            api.train("generate", train=text, out=tmp_path, set=SHORT, quiet=True)
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_a_resumed_run_clears_what_was_half_written(self, stopped: Path, whole: Path) -> None:
        for name in ("best.safetensors.new", "config.toml.new", "curves.png.new"):
            (stopped / name).write_bytes(b"half")
        (stopped / "checkpoint.new").mkdir()
        api.resume(stopped, quiet=True)
        assert_same(stopped, whole)

    def test_out_is_refused_before_data_is_read(self, whole: Path, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="exists already"):
            api.train("generate", train=tmp_path / "nowhere.txt", out=whole, set=SHORT, quiet=True)

    def test_a_shortened_file_is_not_filled_with_zeros(self, stopped: Path, capfd: Any) -> None:
        (stopped / "metrics.jsonl").write_text("")
        api.resume(stopped)
        assert f"{stopped / 'metrics.jsonl'} is shorter than it was" in capfd.readouterr().err
        assert b"\0" not in (stopped / "metrics.jsonl").read_bytes()


class TestInit:
    def test_a_run_that_started_from_a_model_goes_on_from_it(self, text: Path, whole: Path, tmp_path: Path) -> None:
        """Its vocabulary is the older one, extended; the older model may be gone by then."""
        other, model = tmp_path / "other.txt", tmp_path / "model.safetensors"
        other.write_text(TEXT.replace("make", "MAKE"))
        keys = {key: value for key, value in SHORT.items() if not key.startswith("model.")}
        shutil.copy(whole / "best.safetensors", model)
        api.train("generate", train=other, init=model, out=tmp_path / "whole", set=keys, quiet=True)
        evaluated = Run._evaluated
        for number, when in enumerate(("before", "after")):

            def die(run: Run, info: Any, scores: Any, when: str = when) -> None:
                if when == "after":
                    evaluated(run, info, scores)
                raise Killed

            folder = tmp_path / f"run-{number}"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Run, "_evaluated", die)
                with pytest.raises(Killed):
                    api.train("generate", train=other, init=model, out=folder, set=keys, quiet=True)
        model.unlink()
        for number in range(2):
            api.resume(tmp_path / f"run-{number}", quiet=True)
            assert_same(tmp_path / f"run-{number}", tmp_path / "whole")


class TestDisk:
    def test_a_file_that_may_not_grow(self, text: Path, whole: Path, tmp_path: Path) -> None:
        """RLIMIT_FSIZE stands for a full disk: what is half-written goes, and the run can be resumed."""
        folder = tmp_path / "run"
        limit = (whole / "checkpoint" / "tensors.safetensors").stat().st_size - 1

        def small_files() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        words = ("train", "generate", "--train", text, "--out", folder, "--quiet", *settings(SHORT))
        done = command(*words, preexec_fn=small_files)
        assert done.returncode == 2
        assert done.stderr == (
            f"unrolled: {folder} could not be written: File too large. "
            f"Raise the limit on the size of files (ulimit -f), then resume with: unrolled train --resume {folder}\n"
        )
        assert not (folder / "checkpoint.new").exists()
        api.resume(folder, quiet=True)
        assert_same(folder, whole)

    @pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl", "updates.csv"])
    def test_a_full_disk_at_a_growing_file(self, name: str, stopped: Path, whole: Path) -> None:
        """/dev/full refuses every byte with ENOSPC."""
        (stopped / name).rename(stopped / "kept")
        kept = (stopped / "kept").read_bytes()
        original = Run.resume

        def full(run: Run, *arguments: Any) -> list[str]:
            notes = original(run, *arguments)
            (run.folder / name).symlink_to("/dev/full")
            return notes

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "resume", full)
            with pytest.raises(UserError) as error:
                api.resume(stopped, quiet=True)
        assert str(error.value) == (
            f"{stopped} could not be written: No space left on device. "
            f"Free some space, then resume with: unrolled train --resume {stopped}"
        )
        (stopped / name).unlink()
        (stopped / name).write_bytes(kept)
        (stopped / "kept").unlink()
        api.resume(stopped, quiet=True)
        assert_same(stopped, whole)

    def test_too_few_file_descriptors(self, stopped: Path, whole: Path) -> None:
        taken: list[int] = []
        evaluated = Run._evaluated

        def take_all(run: Run, info: Any, scores: Any) -> None:
            while True:
                try:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    break
            evaluated(run, info, scores)

        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Run, "_evaluated", take_all)
                with pytest.raises(UserError) as error:
                    api.resume(stopped, quiet=True)
        finally:
            for handle in taken:
                os.close(handle)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert str(error.value) == (
            f"{stopped} could not be written: Too many open files. "
            f"Raise the limit on open files (ulimit -n 4096), then resume with: unrolled train --resume {stopped}"
        )
        api.resume(stopped, quiet=True)
        assert_same(stopped, whole)

    def test_a_read_only_folder(self, stopped: Path, whole: Path) -> None:
        with read_only(stopped) as folder:
            with pytest.raises(UserError) as error:
                api.resume(folder, quiet=True)
            assert str(error.value) == (
                f"{folder} could not be written: Permission denied. "
                "Make it writable, then try again, or copy the run to another place."
            )
            with pytest.raises(UserError, match=r"cannot be created: Permission denied\. Choose another --out\."):
                new_folder(folder / "inside", "generate")


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """A copy that may be read only; root, who may write anywhere, becomes nobody for the while."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    copy = place / folder.name
    shutil.copytree(folder, copy)
    copy.chmod(0o555)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        yield copy
    finally:
        if root:
            os.seteuid(0)
        copy.chmod(0o755)
        shutil.rmtree(place)


def test_a_disk_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(handle: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(Note, match="is on a disk without locks"), locked(tmp_path):
        pass


def test_data_that_changed_is_named(stopped: Path, text: Path, tmp_path: Path) -> None:
    """Between a stop and --resume; put back, or given from another place, it goes on."""
    moved = tmp_path / "moved.txt"
    moved.write_text(TEXT)
    config = stopped / "config.toml"
    other = tmp_path / "sums.txt"
    other.write_text(TEXT + "\nmore")
    config.write_text(config.read_text().replace(str(text), str(other)))
    with pytest.raises(UserError) as error:
        api.resume(stopped, quiet=True)
    assert str(error.value) == (
        f"The data is not what {stopped} was trained on: {other} changed since. Restore the files, "
        f"or start a new run from its model: unrolled train generate --init {stopped}"
    )
    api.resume(stopped, set={"data.train": str(moved)}, quiet=True)
    assert f'train = "{moved}"' in config.read_text()
