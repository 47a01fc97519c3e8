"""Settings that may change when a run resumes: its end, early stopping, the device; not the computation."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from unrolled.config import keys
from unrolled.errors import UserError
from unrolled.training.forcing import ForcingSettings
from unrolled.training.loop import Trainer

END = ("train.epochs", "train.max_steps")
CHANGEABLE = (
    *END,
    *("train.patience", "train.eval_every"),
    *("train.lr", "train.clip_norm", "train.clip_value"),  # read at every update; to rescue runs that became non-finite
    *("train.device", "train.threads", "train.backend", "train.timeout", "train.log"),
)


def check_changes(folder: Path, old: Any, new: Any, files: Sequence[str]) -> list[str]:
    """Changed settings, a line each; an error for a setting that must stay. `files` are keys that name data."""
    changed = [key for key in keys(type(old)) if attrgetter(key)(old) != attrgetter(key)(new)]
    refused = [key for key in changed if key not in CHANGEABLE and key not in files]
    if refused:
        key = refused[0]
        fix = f"Leave it out. These can change: {', '.join(CHANGEABLE)} and the paths of the same data."
        if not key.startswith("model."):
            asked = f"--set {key}={_text(attrgetter(key)(new))}"
            fix += f" Or start a new run from this one's model: unrolled train {new.task} --init {folder} {asked}"
        raise UserError(f"{key} cannot change when a run resumes: {folder} has {_text(attrgetter(key)(old))}.", fix)
    return [f"{key} was {_text(attrgetter(key)(old))}, now {_text(attrgetter(key)(new))}" for key in changed]


def end_moved(trainer: Trainer, old_total: int) -> list[str]:
    """Effects of a new number of updates on the rest of a run; an error if the run is past it.

    A run that had stopped early continues with its patience reset.
    """
    step, total, schedule = trainer.progress.step, trainer.total_steps, trainer.settings.schedule
    if total == old_total:
        return []
    if total <= step:
        raise UserError(
            f"The run has made {step} updates and cannot end after {total}.",
            f"Ask for more than {step}, with {' or '.join(END)}.",
        )
    lines = [f"The run now ends after {total} updates instead of {old_total}; {step} are done."]
    if trainer.progress.finished and (step < old_total or trainer.stalled):
        trainer.progress.stalled = 0
        lines.append("It had stopped early (train.patience): it continues, and its patience is reset.")
    if schedule in ("cosine", "geometric"):
        before, now, last = trainer.rate(max(0, step - 1), old_total), trainer.rate(step), trainer.rate(total - 1)
        lines.append(
            f"The learning rate follows the {schedule} schedule of {total} updates from here: "
            f"it was {before:.2e}, is {now:.2e} now, and ends at {last:.2e}."
        )
    else:
        lines.append(f"The learning rate goes on as it was ({schedule}): {trainer.rate(step):.2e}.")
    if isinstance(trainer.settings, ForcingSettings) and trainer.settings.follows_the_end:
        lines.append("Teacher forcing follows the new end too.")
    return lines


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
