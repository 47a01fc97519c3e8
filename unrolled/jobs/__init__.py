"""From a config to a trained model in its run folder, and from a model file to a model."""

from unrolled.jobs.dry_run import DryRun, dry_run
from unrolled.jobs.load import load_model
from unrolled.jobs.target import Target, configure, find_target
from unrolled.jobs.train import TrainingJob, restarted_run, resume_run

__all__ = [
    "DryRun",
    "Target",
    "TrainingJob",
    "configure",
    "dry_run",
    "find_target",
    "load_model",
    "restarted_run",
    "resume_run",
]
