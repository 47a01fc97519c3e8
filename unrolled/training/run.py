"""A run on disk: its folder, its metrics, its checkpoints, and how it goes on after a stop."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from unrolled.config.stored import stored_as
from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.training import checkpoint
from unrolled.training.checkpoint import disk_errors, one_message
from unrolled.training.loop import Progress, StepInfo, Trainer
from unrolled.training.loss import map_state
from unrolled.training.updates import UpdateLog

CONFIG, METRICS, SAMPLES = "config.toml", "metrics.jsonl", "samples.jsonl"
BEST, LAST = "best.safetensors", "last.safetensors"


def new_folder(out: Path | None, name: str) -> Path:
    """Makes the folder of a new run: `out`, which must not hold a run, or the first free runs/NAME-1, -2, …"""
    if out is None:
        number = 1
        while Path("runs", f"{name}-{number}").exists():
            number += 1
        out = Path("runs", f"{name}-{number}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        run = (out / CONFIG).is_file()
        more = f", or go on with that run: unrolled train --resume {out}" if run else "."
        raise UserError(f"{out} is there already{', and is no run' * (not run)}.", f"Choose another --out{more}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be made: {error.strerror}.", "Choose another --out.") from None
    return out


class Run:
    """Drives a trainer and keeps its folder: updates and evaluations are written down, the best and last model saved.

    `save(path, scores)` writes the model as it is now. `data_hash` tells whether a resumed run has the same data.
    """

    def __init__(
        self,
        folder: Path,
        trainer: Trainer,
        save: Callable[[Path, dict[str, float]], None],
        data_hash: str,
    ) -> None:
        self.folder, self.trainer, self.save, self.data_hash = folder, trainer, save, data_hash
        self.scores: dict[str, float] = {}
        self.updates = UpdateLog(folder, trainer.clipping)
        self._sums = [0.0, 0, 0.0, 0]  # loss and tokens, largest norm and clipped updates since the last evaluation

    def steps(self) -> Iterator[StepInfo]:
        """The trainer's steps; files are written between them."""
        try:
            for info in self.trainer.steps():
                self._sums[0] += info.loss * info.tokens
                self._sums[1] += info.tokens
                self._sums[2] = max(self._sums[2], info.grad_norm)
                self._sums[3] += info.clipped
                with disk_errors(self.folder):
                    self.updates.add(info)
                    if info.scores is not None:
                        self._evaluated(info, info.scores)
                yield info
        finally:  # how a run became non-finite is worth seeing
            with disk_errors(self.folder):
                self.updates.write()

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
        with (self.folder / METRICS).open("a") as file:
            file.write(json.dumps(row) + "\n")
        with self.trainer.averaged():
            if info.is_best:
                self.save(self.folder / BEST, scores)
            self.save(self.folder / LAST, scores)
        self.checkpoint()

    def keep_samples(self, step: int, samples: list[str]) -> None:
        """Writes down what the model did after an evaluation."""
        if samples:
            with disk_errors(self.folder), (self.folder / SAMPLES).open("a") as file:
                file.write(json.dumps({"step": step, "samples": samples}, ensure_ascii=False) + "\n")

    def checkpoint(self) -> None:
        """Writes down everything needed to go on from here."""
        trainer = self.trainer
        self.updates.write()
        checkpoint.save(
            self.folder,
            {
                "network": dict(trainer.network.state_dict()),
                "optimizer": trainer.optimizer.state_dict(),
                "scaler": trainer.scaler.state_dict(),
                "average": [] if trainer.average is None else trainer.average.means,
                "progress": asdict(trainer.progress),
                "random": checkpoint.random_state(),
                "hidden": trainer.tbptt.state,
                "past": [_stored(batch, entry) for batch, entry in trainer.tbptt.past],
                "sums": self._sums,
                "scores": self.scores,
                "metrics_bytes": _size(self.folder / METRICS),
                "updates_bytes": _size(self.updates.path),
                "data_hash": self.data_hash,
                "threads": torch.get_num_threads(),
            },
        )

    @one_message
    def resume(self) -> list[str]:
        """Goes back to the last checkpoint; what the user should know about it."""
        growing = {self.folder / METRICS: "metrics_bytes", self.updates.path: "updates_bytes"}
        if not any((self.folder / name).exists() for name in (checkpoint.CURRENT, checkpoint.PREVIOUS)):
            for path in growing:
                path.unlink(missing_ok=True)
            return [f"{self.folder} was stopped before its first checkpoint: it starts from the beginning."]
        state, notes = checkpoint.load(self.folder)
        if state["data_hash"] != self.data_hash:
            raise UserError(
                f"The data is not what {self.folder} was trained on.",
                "Put the files back as they were, or start a new run with --init to go on from its model.",
            )
        if state["threads"] != torch.get_num_threads():
            notes.append(
                f"The run had {state['threads']} threads, now there are {torch.get_num_threads()}: "
                "the result can differ in the last bits. "
                f"Use train.threads={state['threads']} for the same."
            )
        trainer = self.trainer
        trainer.network.load_state_dict(state["network"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.scaler.load_state_dict(state["scaler"])
        if trainer.average is not None:
            trainer.average.load(state["average"])
        trainer.progress = stored_as(Progress, state["progress"], "progress of the run")
        trainer.tbptt.state = _on(trainer.device, state["hidden"])
        trainer.tbptt.past.clear()
        trainer.tbptt.past.extend(_restored(trainer.device, stored) for stored in state["past"])
        checkpoint.restore_random_state(state["random"])
        self._sums, self.scores = state["sums"], state["scores"]
        for path, key in growing.items():
            if path.exists():
                with path.open("rb+") as file:
                    file.truncate(state[key])
        return notes


def hash_of(*parts: bytes) -> str:
    """One fingerprint of all training data."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _stored(batch: Batch, entry: Any) -> dict[str, Any]:
    return {"batch": {k: v for k, v in vars(batch).items() if v is not None}, "entry": entry}


def _restored(device: torch.device, stored: dict[str, Any]) -> tuple[Batch, Any]:
    return Batch(**stored["batch"]).to(device), _on(device, stored["entry"])


def _on(device: torch.device, state: Any) -> Any:
    return map_state(lambda tensor: tensor.to(device), state)
