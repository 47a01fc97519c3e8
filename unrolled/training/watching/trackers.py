"""The trackers of `train.log`: TensorBoard, MLflow, Weights & Biases."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any
from uuid import uuid4

from unrolled.training.checkpoint import write_atomically
from unrolled.training.watching.callback import Outcome, WatchedRun
from unrolled.training.watching.tracker import Tracker, name_of, plain

TENSORBOARD, MLFLOW, WANDB = "tensorboard", "mlflow.json", "wandb"  # of the run folder


class TensorBoard(Tracker):
    """Event files in the run folder: tensorboard --logdir runs."""

    name = "tensorboard"
    package = "tensorboard"

    def open(self, run: WatchedRun) -> None:
        """Steps after the checkpoint of a resumed run are written anew."""
        from torch.utils.tensorboard import SummaryWriter

        again = {"purge_step": run.progress.step + 1} if run.resumed else {}
        self.params = plain(run.config)
        self.writer = SummaryWriter(str(run.folder / TENSORBOARD), flush_secs=10, **again)
        if not run.resumed:
            rows = "\n".join(f"| {key} | {value} |" for key, value in self.params.items())
            self.writer.add_text("config", f"{run.data}\n\n| key | value |\n| --- | --- |\n{rows}", 0)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def write_samples(self, step: int, samples: str) -> None:
        self.writer.add_text("samples", samples, step)

    def close(self, outcome: Outcome, best: Mapping[str, float]) -> None:
        if best:
            self.writer.add_hparams(self.params, dict(best), run_name=".")
        self.writer.close()


class MLflow(Tracker):
    """A run in the store that MLFLOW_TRACKING_URI names; MLFLOW_EXPERIMENT_NAME is its experiment."""

    name = "mlflow"
    package = "mlflow"

    def open(self, run: WatchedRun) -> None:
        """A resumed run goes on under its id, which the run folder keeps."""
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self.metric, self.waiting = Metric, list[Any]()
        self.client = MlflowClient()
        kept = run.folder / MLFLOW
        if run.resumed and kept.is_file():
            self.id = json.loads(kept.read_text())["run_id"]
            self.client.update_run(self.id, status="RUNNING")
            return
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", "unrolled")
        experiment = self.client.get_experiment_by_name(title)
        number = self.client.create_experiment(title) if experiment is None else experiment.experiment_id
        tags = {"task": run.task, "data": run.data[:1000], "folder": str(run.folder.absolute())}
        self.id = self.client.create_run(number, run_name=name_of(run.folder), tags=tags).info.run_id
        write_atomically(kept, json.dumps({"run_id": self.id}) + "\n")
        self._log_params(plain(run.config))

    def _log_params(self, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        rows = [Param(key, str(value)[:6000]) for key, value in params.items()]
        for first in range(0, len(rows), 100):  # the most in one call
            self.client.log_batch(self.id, params=rows[first : first + 100])

    def write(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self.waiting += [self.metric(name, value, now, step) for name, value in values.items()]
        if len(self.waiting) > 500 or any(name.startswith("valid/") for name in values):
            self._flush()

    def _flush(self) -> None:
        rows, self.waiting = self.waiting, []
        for first in range(0, len(rows), 1000):  # the most in one call
            self.client.log_batch(self.id, metrics=rows[first : first + 1000])

    def write_samples(self, step: int, samples: str) -> None:
        self.client.log_text(self.id, samples, f"samples/{step:08d}.txt")

    def close(self, outcome: Outcome, best: Mapping[str, float]) -> None:
        self.write(0, best)
        self._flush()
        status = {"failed": "FAILED", "interrupted": "KILLED"}.get(outcome, "FINISHED")
        self.client.set_terminated(self.id, status)


class Wandb(Tracker):
    """A run of Weights & Biases, offline in the run folder unless WANDB_MODE=online; `wandb sync` uploads it."""

    name = "wandb"
    package = "wandb"

    def open(self, run: WatchedRun) -> None:
        """A resumed run goes on under its id, which the run folder keeps."""
        wandb: Any = import_module("wandb")
        folder = run.folder / WANDB
        folder.mkdir(exist_ok=True)
        kept = folder / "id.txt"
        if not (run.resumed and kept.is_file()):
            write_atomically(kept, uuid4().hex[:8] + "\n")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "unrolled"),
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(run.folder.absolute()),
            id=kept.read_text().strip(),
            name=name_of(run.folder),
            resume="allow",
            config=plain(run.config),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def close(self, outcome: Outcome, best: Mapping[str, float]) -> None:
        self.run.summary.update(dict(best))
        self.run.finish(exit_code=int(outcome == "failed"))


TRACKERS: Mapping[str, Callable[[], Tracker]] = {one.name: one for one in (TensorBoard, MLflow, Wandb)}


def trackers(names: Sequence[str]) -> list[Tracker]:
    """The trackers of `train.log`; an error if a package is missing."""
    return [TRACKERS[name]() for name in dict.fromkeys(names)]
