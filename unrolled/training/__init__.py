"""From batches to a trained network: losses, truncated backpropagation, the loop, checkpoints, runs."""

from unrolled.training.folder import new_folder
from unrolled.training.forcing import Forcing, ForcingSettings, own_share, with_own_guesses
from unrolled.training.loop import Batches, Evaluation, Progress, StepInfo, Trainer
from unrolled.training.loss import Loss, cross_entropy, detached
from unrolled.training.run import Origin, Run, hash_of
from unrolled.training.settings import ExampleTraining, TrainSettings
from unrolled.training.tbptt import TruncatedBPTT, Update, independent_chunks, many_to_one
from unrolled.training.traits import Goal, Traits

__all__ = [
    "Batches",
    "Evaluation",
    "ExampleTraining",
    "Forcing",
    "ForcingSettings",
    "Goal",
    "Loss",
    "Origin",
    "Progress",
    "Run",
    "StepInfo",
    "TrainSettings",
    "Trainer",
    "Traits",
    "TruncatedBPTT",
    "Update",
    "cross_entropy",
    "detached",
    "hash_of",
    "independent_chunks",
    "many_to_one",
    "new_folder",
    "own_share",
    "with_own_guesses",
]
