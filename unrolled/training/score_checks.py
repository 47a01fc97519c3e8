"""Checks for suspicious scores: too bad or too good to be true."""

from __future__ import annotations

from unrolled.errors import note
from unrolled.training.loop import StepInfo
from unrolled.training.traits import LOSSES, Goal

SHARES = ("accuracy", "micro_f1")  # scores that are hardly ever 0, even in short runs; BLEU and exact match may be


class ScoreChecks:
    """Checks the first evaluation of a run and its end, and reports suspicious scores."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self._first = True

    def look(self, info: StepInfo) -> None:
        """After an update; only the first evaluation matters."""
        if info.scores is None or not self._first:
            return
        self._first = False
        zero = [name for name in LOSSES if info.scores.get(name) == 0.0]
        if info.loss == 0.0 or zero:
            name = zero[0] if zero else "train loss"
            note(
                f"The {name} is exactly 0 at the first evaluation, step {info.step}: there is nothing to learn, or "
                "the wrong columns were read. See them with `unrolled check`."
            )
        if self.goal.metric == "accuracy" and info.scores["accuracy"] == 0.0:
            note(
                f"The accuracy is exactly 0 at the first evaluation, step {info.step}. If it stays so, labels and "
                "texts may be swapped, or the validation labels are not those of training."
            )

    def end(self, best: float | None) -> None:
        """After the run."""
        if self.goal.metric in SHARES and best == 0.0:
            note(
                f"The best {self.goal.metric} is 0: no validation example is right. The model is "
                "useless: train it longer, or see with `unrolled check` which data was read."
            )
