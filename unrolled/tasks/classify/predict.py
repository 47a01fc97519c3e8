"""The answers of a classifier: labels with probabilities, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import RowBuckets
from unrolled.model import Model
from unrolled.tasks.classify.batches import input_batches
from unrolled.tasks.classify.config import ClassifyConfig
from unrolled.tasks.classify.regression import Numbers
from unrolled.tasks.shared.reader import Reader

AT_ONCE = 256  # sequences in a batch when there are no gradients


@dataclass(frozen=True)
class Classified:
    """The answer to one input: its label, or labels, and the probability of every label.

    With one label each the probabilities add up to 1. With several they are independent, and labels of 0.5 or more are
    the answer.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    several: bool = False  # any number of labels is possible

    @property
    def label(self) -> str:
        """The one label; several are joined by commas."""
        return ",".join(self.labels)

    def __str__(self) -> str:
        return self.label


def losses_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats: (B,), or (B, C) where every label stands for itself; squared errors of numbers, (B,)."""
    if targets.dim() == 1 and targets.is_floating_point():
        return (scores[:, 0] - targets).square()
    if targets.dim() == 2:
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    # −1 stands for a label that training never saw: there is no score to compare it with
    return F.cross_entropy(scores, targets, ignore_index=-1, reduction="none")


def unlabelled(model: Model, inputs: list[Any]) -> RowBuckets:
    """Batches of inputs without labels."""
    reader: Reader = model.assets.reader
    steps = [reader.steps(one) for one in inputs]
    assert isinstance(model.config, ClassifyConfig)
    gather = input_batches(reader, inputs, steps, model.config.model.ngrams)
    lengths = [len(one) for one in steps]
    return RowBuckets(inputs, lengths, lambda rows: gather(rows, torch.zeros(0)), batch_size=AT_ONCE)


@torch.no_grad()
def probabilities_of(model: Model, batches: RowBuckets) -> tuple[NDArray[np.float32], float]:
    """The probabilities (N, C) in the order of the examples, and the summed loss of those with a known label."""
    table = np.zeros((len(batches.examples), len(model.assets.labels)), dtype=np.float32)
    total, multi = 0.0, multi_label(model)
    model.network.eval()
    for index in range(len(batches)):
        batch = batches[index].to(model.device)
        scores = model.network(batch).float()
        table[batches.rows(index)] = (scores.sigmoid() if multi else scores.softmax(-1)).cpu().numpy()
        if len(batch.targets):
            total += float(losses_of(scores, batch.targets).sum())
    return table, total


@torch.no_grad()
def numbers(model: Model, batches: RowBuckets) -> Numbers:
    """The answers (N,) of a model of numbers, in the order of the examples."""
    answers = np.zeros(len(batches.examples))
    mean, deviation = model.assets.scale
    model.network.eval()
    for index in range(len(batches)):
        scores = model.network(batches[index].to(model.device))[:, 0]
        answers[batches.rows(index)] = mean + deviation * scores.double().cpu().numpy()
    return answers


def multi_label(model: Model) -> bool:
    assert isinstance(model.config, ClassifyConfig)
    return model.config.data.multi_label


def answer_of(model: Model, row: NDArray[np.float32]) -> Classified:
    """The answer for the probabilities (C,) of one input."""
    labels: tuple[str, ...] = model.assets.labels
    probabilities = {label: float(p) for label, p in zip(labels, row, strict=True)}
    if multi_label(model):
        return Classified(tuple(label for label, p in probabilities.items() if p >= 0.5), probabilities, several=True)
    return Classified((labels[int(row.argmax())],), probabilities)
