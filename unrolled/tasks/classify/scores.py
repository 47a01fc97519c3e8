"""What a classifier learnt from, what it answers, and how good that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data.readers.labelled import Labelled
from unrolled.metrics import ClassScores, class_scores, label_scores
from unrolled.tasks.classify.regression import Scale, numbers_of
from unrolled.tasks.contract import table_of
from unrolled.tasks.shared.reader import Reader

MOST_CONFUSED = 20  # classes of which the report shows a confusion matrix


@dataclass(frozen=True)
class Classified:
    """The answer to one input: its label, or labels, and the probability of every label.

    Of one label each the probabilities add up to 1; of several each stands for itself, and those of 0.5 or more are
    the answer.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    several: bool = False  # whether there may be any number of labels

    @property
    def label(self) -> str:
        """The one label; several are joined by commas."""
        return ",".join(self.labels)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class ClassifyAssets:
    """What the training examples taught before training: their labels, and how a sequence is read."""

    labels: tuple[str, ...]
    counts: tuple[int, ...]  # of each label in the training examples
    reader: Reader
    scale: Scale | None = None  # of numbers, where these stand in place of labels

    def targets(self, examples: Sequence[Labelled], multi_label: bool) -> Tensor:
        """(B,) class numbers, −1 for a label that training never saw; or (B, C) of 0 and 1; or (B,) scaled numbers."""
        if self.scale is not None:
            mean, deviation = self.scale
            return torch.from_numpy((numbers_of(examples) - mean) / deviation).float()
        numbers = {label: number for number, label in enumerate(self.labels)}
        if not multi_label:
            return torch.tensor([numbers.get(example.labels[0], -1) for example in examples])
        table = torch.zeros(len(examples), len(self.labels))
        for row, example in enumerate(examples):
            table[row, [numbers[label] for label in example.labels if label in numbers]] = 1
        return table

    def weights(self, targets: Tensor) -> Tensor:
        """What makes every class count alike: (B,) for one label each, (B, C) for several."""
        counts = torch.tensor(self.counts, dtype=torch.float32).clamp(min=1)
        if targets.dim() == 1:
            return (counts.sum() / len(counts) / counts)[targets]
        return torch.where(targets > 0, counts.mean() / counts, 1.0)


def losses_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats: (B,), or (B, C) where every label stands for itself; squared errors of numbers, (B,)."""
    if targets.dim() == 1 and targets.is_floating_point():
        return (scores[:, 0] - targets).square()
    if targets.dim() == 2:
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    # −1 stands for a label that training never saw: there is no score to compare it with
    return F.cross_entropy(scores, targets, ignore_index=-1, reduction="none")


def judged(
    assets: ClassifyAssets, examples: Sequence[Any], probabilities: NDArray[np.float32], multi: bool
) -> tuple[ClassScores, NDArray[np.int64] | None, int]:
    """The scores, what was taken for what, and how many examples have a loss.

    Labels that training never saw are classes too, after the others: no answer is ever one of them.
    """
    unseen = sorted({label for example in examples for label in example.labels} - set(assets.labels))
    truth = replace(assets, labels=(*assets.labels, *unseen)).targets(examples, multi).numpy()
    if multi:
        answers = np.pad(probabilities >= 0.5, ((0, 0), (0, len(unseen))))
        return label_scores(truth > 0.5, answers), None, len(examples)
    known = int((truth < len(assets.labels)).sum())
    return *class_scores(truth, probabilities.argmax(axis=1), len(assets.labels) + len(unseen)), known


def per_class(labels: Sequence[str], scores: ClassScores) -> dict[str, dict[str, float]]:
    columns = zip(labels, scores.precision, scores.recall, scores.f1, scores.support, strict=True)
    return {
        label: {"precision": float(p), "recall": float(r), "f1": float(f), "count": int(n)}
        for label, p, r, f, n in columns
    }


def _confusion_table(confusion: Mapping[str, Mapping[str, int]]) -> str:
    labels = list(confusion)
    width = max(map(len, labels))
    cells = [[str(confusion[truth][answer]) for answer in labels] for truth in labels]
    wide = [max(len(f"{i + 1}"), *(len(row[i]) for row in cells)) for i in range(len(labels))]
    lines = [" " * (width + 4) + "  ".join(f"{i + 1:>{w}}" for i, w in enumerate(wide)) + "   answered"]
    for number, (label, row) in enumerate(zip(labels, cells, strict=True), 1):
        lines.append(f"{number:>2} {label:<{width}} " + "  ".join(f"{c:>{w}}" for c, w in zip(row, wide, strict=True)))
    return "\n".join(lines)


def report(scores: Mapping[str, Any]) -> str:
    """The scores of a file for a person to read: all in all, of each class, and what was taken for what."""
    plain = {name: value for name, value in scores.items() if not isinstance(value, Mapping)}
    if "classes" not in scores:
        return table_of(plain)
    width = max(len(label) for label in [*scores["classes"], "class"])
    lines = [f"{'class':<{width}}  precision  recall      f1   count"]
    for label, row in scores["classes"].items():
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['count']:6,}"
        lines.append(f"{label:<{width}}  {numbers}")
    parts = [table_of(plain), "\n".join(lines)]
    confusion = scores.get("confusion", {})
    if 0 < len(confusion) <= MOST_CONFUSED:
        parts.append(_confusion_table(confusion))
    return "\n\n".join(parts)
