"""The needs of a task in the training loop, and the score that it is judged by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unrolled.data.batching.shapes import Padding

LOSSES = ("nll", "nats_per_token", "nats_per_label", "loss")  # names of the validation loss among scores


@dataclass(frozen=True)
class Goal:
    """The score that decides which model is best."""

    metric: str
    higher_is_better: bool = False

    def better(self, score: float, best: float | None) -> bool:
        if best is None or not math.isfinite(best):
            return math.isfinite(score)
        return score > best if self.higher_is_better else score < best

    def loss_in(self, scores: dict[str, float]) -> tuple[str, float] | None:
        """Name and value of the validation loss that breaks ties; None if the score is a loss itself."""
        if self.metric in LOSSES:
            return None
        return next(((name, scores[name]) for name in LOSSES if name in scores), None)


@dataclass(frozen=True)
class Traits:
    """The needs of a task in the training loop."""

    goal: Goal
    stateful: bool = False  # the state of a batch is carried to the next
    window: int | None = None  # steps that gradients go back; None: all of the batch
    usual_tokens: int | None = None  # tokens of an update that train.lr is meant for; lr follows their number
    judge_start: bool = False  # a new network may be good: evaluate it before the first update
    fitted: bool = False  # a new network is fitted already: it is evaluated, and nothing is updated
    samples: bool = False  # `evaluate` returns samples
    padding: Padding | None = None  # fields that may be padded further, so that a GPU sees few shapes
    eager: str | None = None  # the reason why an update cannot be recorded in a CUDA graph
