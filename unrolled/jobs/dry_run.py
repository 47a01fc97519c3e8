"""A training job tried out: facts about the data, two updates, and an estimate of time and memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from unrolled.jobs.driving import batches_per_epoch
from unrolled.jobs.engine_notes import engine_notes
from unrolled.jobs.train import TrainingJob
from unrolled.tasks import Task
from unrolled.training.devices import peak_memory
from unrolled.training.schedule import too_slow_a_rise


@dataclass(frozen=True)
class DryRun:
    """Results of a dry run, by name."""

    facts: dict[str, Any]

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.facts.items())


def dry_run(config: Any, task: Task | None = None) -> DryRun:
    """Read the data, make two updates and report."""
    job = TrainingJob(config, task=task)
    trainer = job.trainer()
    trainer.update()
    began = time.perf_counter()
    info = trainer.update()
    seconds = time.perf_counter() - began
    slow = None if job.traits.fitted else too_slow_a_rise(trainer.settings, trainer.total_steps)
    return DryRun(
        {
            "task": job.task.name,
            "data": job.data.source,
            **job.task.description.statistics(config, job.data, job.assets),
            "parameters": f"{job.model.num_parameters:,}",
            "loss of the second update": f"{info.loss:.4f}",
            "updates": f"{trainer.total_steps} ({batches_per_epoch(trainer)})",
            **({"learning rate": slow} if slow else {}),
            **({"engine": " ".join(notes)} if (notes := engine_notes(job.model.network)) else {}),
            "time, estimated": f"{seconds * trainer.total_steps / 60:.1f} minutes on {job.device}, without evaluations",
            "memory": f"{peak_memory(job.device) / 2**30:.2f} GiB at the most so far",
        }
    )
