"""A run on disk: its metrics, samples, models and checkpoints, and resuming."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from unrolled.config import in_memory
from unrolled.config.stored import stored_as
from unrolled.errors import UserError
from unrolled.training import checkpoint
from unrolled.training.changes import end_moved
from unrolled.training.checkpoint import disk_errors, one_message, sync
from unrolled.training.folder import BEST, LAST, METRICS, SAMPLES, clear
from unrolled.training.lanes import gathered_state, restore_share
from unrolled.training.loop import Progress, StepInfo, Trainer
from unrolled.training.optimizers import stored_state
from unrolled.training.updates import UpdateLog

HANDOVER = 2e-5  # seconds that a thread which makes batches may keep Python's lock from the one that feeds a GPU


@dataclass(frozen=True)
class Origin:
    """The origin of a run: its task, hashes of its data and of its assets, and the paths of the data."""

    task: str = "TASK"
    data: str = ""
    assets: str = ""  # vocabularies, features and the like
    files: Sequence[str] = ()


class Run:
    """Drives a trainer and keeps its folder: logs updates and evaluations, saves the best and the last model.

    `save(path, scores)` writes the current model. A resumed run must have the same origin.
    """

    def __init__(
        self,
        folder: Path,
        trainer: Trainer,
        save: Callable[[Path, dict[str, float]], None],
        origin: Origin,
    ) -> None:
        self.folder, self.trainer, self.save, self.origin = folder, trainer, save, origin
        self.ranks = trainer.ranks  # of which the first writes
        self.scores: dict[str, float] = {}
        self.saved_step: int | None = None  # of the last checkpoint
        self.updates = UpdateLog(folder, trainer.clipping)
        self._sums = [0.0, 0, 0.0, 0]  # loss and tokens, largest norm and clipped updates since the last evaluation
        growing = {METRICS: "metrics_bytes", SAMPLES: "samples_bytes", self.updates.path.name: "updates_bytes"}
        self._growing = {folder / name: key for name, key in growing.items()}

    def steps(self) -> Iterator[StepInfo]:
        """The trainer's steps; files are written between them."""
        waited = sys.getswitchinterval()
        try:
            sys.setswitchinterval(min(waited, HANDOVER))
            for info in self.trainer.steps():
                self._add(info)
                if info.scores is not None:
                    with self._disk_errors():
                        self._evaluated(info, info.scores)
                yield info
        finally:  # also when the loss becomes non-finite
            sys.setswitchinterval(waited)
            with self._disk_errors():
                self.updates.write()

    def _add(self, info: StepInfo) -> None:
        self._sums[0] += info.loss * info.tokens
        self._sums[1] += info.tokens
        self._sums[2] = max(self._sums[2], info.grad_norm)
        self._sums[3] += info.clipped
        if not self.ranks.is_first:
            return
        self.updates.add(info)
        if self.updates.is_due:
            with self._disk_errors():
                self.updates.write()

    def _disk_errors(self) -> AbstractContextManager[None]:
        return disk_errors(self.folder, then=f"resume with: unrolled train --resume {self.folder}")

    def _evaluated(self, info: StepInfo, scores: dict[str, float]) -> None:
        loss, tokens, norm, clipped = self._sums
        row = {
            "step": info.step,
            "epoch": info.epoch,
            "tokens": self.trainer.progress.tokens,
            "lr": info.lr,
            "train_loss": loss / max(1, tokens),
            "grad_norm_max": norm,
            "clipped": int(clipped),
            **scores,
            "best": info.is_best,
        }
        self._sums = [0.0, 0, 0.0, 0]
        self.scores = scores
        if self.ranks.is_first:
            self._write(info, row)
        self.checkpoint()

    def _write(self, info: StepInfo, row: dict[str, Any]) -> None:
        """The row of an evaluation, and the models."""
        with (self.folder / METRICS).open("a") as file:
            file.write(json.dumps(row) + "\n")
        with self.trainer.averaged():
            if info.is_best:
                self.save(self.folder / BEST, self.scores)
            self.save(self.folder / LAST, self.scores)
        if info.samples:
            with (self.folder / SAMPLES).open("a") as file:
                file.write(json.dumps({"step": info.step, "samples": info.samples}, ensure_ascii=False) + "\n")

    def checkpoint(self) -> None:
        """Write everything needed to resume from here; updates that are under way end first."""
        for info in self.trainer.flush():
            self._add(info)
        with self._disk_errors():
            self.updates.write()
            state = self._state()
            if self.ranks.is_first:
                for path in self._growing:
                    if path.exists():
                        sync(path)
                checkpoint.save(self.folder, state)
        self.saved_step = self.trainer.progress.step

    def _state(self) -> dict[str, Any]:
        trainer = self.trainer
        return {
            "network": dict(trainer.network.state_dict()),
            "optimizer": stored_state(trainer.optimizer),
            "scaler": trainer.scaler.state_dict(),
            "average": [] if trainer.average is None else trainer.average.means,
            "progress": asdict(trainer.progress),
            **gathered_state(trainer),
            "sums": self._sums,
            "scores": self.scores,
            **{key: _size(path) for path, key in self._growing.items()},
            "data_hash": self.origin.data,
            "assets_hash": self.origin.assets,
            "threads": torch.get_num_threads(),
        }

    def resume(self, old_total: int | None = None) -> list[str]:
        """Restore the last checkpoint; returns notes for the user.

        `old_total` is the earlier number of updates, if it changed.
        """
        with one_message(self.folder):
            state, notes = self.ranks.from_first(self._stored)
            return notes if state is None else self._resume(state, notes, old_total)

    def _stored(self) -> tuple[dict[str, Any] | None, list[str]]:
        """The last checkpoint, if there is one, and notes; unfinished files are removed."""
        clear(self.folder)
        if not any((self.folder / name).exists() for name in (checkpoint.CURRENT, checkpoint.PREVIOUS)):
            for path in self._growing:
                path.unlink(missing_ok=True)
            return None, [f"{self.folder} was stopped before its first checkpoint: it starts from the beginning."]
        state, notes = checkpoint.load(self.folder)
        self._check_origin(state)
        for path, key in self._growing.items():
            written = state.get(key, _size(path))  # older checkpoints do not count samples
            if _size(path) < written:
                notes.append(f"{path} is shorter than it was at the checkpoint: rows are missing.")
            elif path.exists():
                os.truncate(path, written)
        return state, notes

    def _resume(self, state: dict[str, Any], notes: list[str], old_total: int | None) -> list[str]:
        if state["threads"] != torch.get_num_threads():
            notes.append(
                f"The run had {state['threads']} threads, now there are {torch.get_num_threads()}: "
                "the result can differ in the last bits. "
                f"Use train.threads={state['threads']} for the same."
            )
        notes += self._restore(state)
        if old_total is not None:
            notes += end_moved(self.trainer, old_total)
        self.trainer.progress.finished = self.trainer.is_over
        return notes

    def _check_origin(self, state: dict[str, Any]) -> None:
        same_assets = state.get("assets_hash", self.origin.assets) == self.origin.assets  # older checkpoints have none
        if state["data_hash"] == self.origin.data and same_assets:
            return
        places = (self.folder / name for name in (checkpoint.CURRENT, checkpoint.PREVIOUS))
        written = max(place.stat().st_mtime for place in places if place.exists())
        later = [name for name in self.origin.files if Path(name).exists() and Path(name).stat().st_mtime > written]
        raise UserError(
            f"The data is not what {self.folder} was trained on"
            + (f": {' and '.join(later)} changed since." if later else "."),
            f"{'Give the same data' if any(map(in_memory, self.origin.files)) else 'Restore the files'}, "
            "or start a new run from its model: "
            f"unrolled train {self.origin.task} --init {self.folder}",
        )

    def _restore(self, state: dict[str, Any]) -> list[str]:
        """Go on from a state; returns notes."""
        trainer = self.trainer
        trainer.network.load_state_dict(state["network"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.updater.bind()
        trainer.scaler.load_state_dict(state["scaler"])
        if trainer.average is not None:
            trainer.average.load(state["average"])
        trainer.progress = stored_as(Progress, state["progress"], "progress of the run")
        self._sums, self.scores = state["sums"], state["scores"]
        self.saved_step = trainer.progress.step
        return restore_share(trainer, state)


def hash_of(*parts: bytes) -> str:
    """One hash of several parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
