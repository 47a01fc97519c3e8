"""From a config to a trained model in its run folder, and from a model file to a model."""

from unrolled.jobs.dry_run import DryRun, dry_run
from unrolled.jobs.load import load_model
from unrolled.jobs.target import configure, task_of
from unrolled.jobs.train import TrainingJob, resume_run

__all__ = ["DryRun", "TrainingJob", "configure", "dry_run", "load_model", "resume_run", "task_of"]
