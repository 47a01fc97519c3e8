"""A recognizer's run, stopped anywhere, ends with the same bits: its batches are made ahead and changed by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from tests.fitting import fitting
from tests.tasks.recognition import SMALL, words, write_lines, write_recordings
from unrolled import UserError, api
from unrolled.jobs import TrainingJob

SETTINGS: dict[str, Any] = {
    **SMALL,
    "model.dropout": 0.2,
    "train.augment": True,
    "train.max_steps": 12,
    "train.eval_every": 4,
    "train.threads": 1,
}


@pytest.mark.parametrize("write", [write_lines, write_recordings])
def test_resumed_is_as_if_never_stopped(write: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "data", words(40))
    settings = fitting("recognize", SETTINGS, data__kind="line" if write is write_lines else "audio")
    assert_resumed_is_as_if_never_stopped("recognize", file, settings, tmp_path)


def change(folder: Path) -> Path:
    """Another recording under the same name, of the same size."""
    path = sorted(folder.rglob("*.wav"))[0]
    samples, rate = soundfile.read(path)
    size = path.stat().st_size
    soundfile.write(path, samples[::-1], rate)
    assert path.stat().st_size == size
    return path


def test_a_recording_that_changed_is_noticed(tmp_path: Path) -> None:
    """Between a stop and --resume by its content; while the run trains, where it is read again, by its time."""
    file = write_recordings(tmp_path / "data", words(12))
    keys = fitting("recognize", {**SETTINGS, "train.max_steps": 2, "train.eval_every": 1}, data__kind="audio")
    keys["data.valid"] = str(file)
    run = tmp_path / "run"
    api.train("recognize", train=file, out=run, set=keys, quiet=True)
    api.resume(run, quiet=True)
    job = TrainingJob(api.configure("recognize", [], {**keys, "data.train": str(file), "data.memory": 0.0}))
    trainer = job.trainer()
    trainer.update()
    path = change(tmp_path / "data")
    with pytest.raises(UserError, match=rf"{path.name} changed during training\. Restore it and"):
        job.task.evaluate(job.model, job.task.batches(job.config, job.assets, job.data.valid, training=False))
    with pytest.raises(UserError, match=r"The data is not what .* was trained on"):
        api.resume(run, quiet=True)
