"""The answers of a classifier: labels with probabilities, or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import RowBuckets
from unrolled.data.batching.ngrams import NgramCounts
from unrolled.data.batching.sharing import in_turn
from unrolled.data.batching.tables import NOTHING
from unrolled.errors import UserError
from unrolled.search.arrays import arrays_of
from unrolled.tasks.classify.batches import input_batches
from unrolled.tasks.classify.calibration import applying, probabilities
from unrolled.tasks.classify.examples import checked_inputs
from unrolled.tasks.classify.regression import Numbers, PredictedNumber
from unrolled.tasks.shared.reader import Reader
from unrolled.text import split_words

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.classify.config import ClassifyConfig
    from unrolled.tasks.classify.explain import Explanation

ABSTAINED = "?"  # in place of a label
AT_ONCE = 128  # sequences in a batch when there are no gradients; fewer are padded less, more are sooner done


@dataclass(frozen=True)
class Classified:
    """The answer to one input: its label, or labels, and the probability of every label.

    With one label each the probabilities add up to 1; there is no label if none is as likely as was asked for. With
    several they are independent, and labels that reach their thresholds are the answer.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    several: bool = False  # any number of labels is possible
    explanation: Explanation | None = None  # if it was asked for

    @property
    def abstains(self) -> bool:
        """True if no label was as likely as was asked for."""
        return not self.labels and not self.several

    @property
    def label(self) -> str:
        """The one label, ? without an answer; several are joined by commas."""
        return ABSTAINED if self.abstains else ",".join(self.labels)

    def __str__(self) -> str:
        return self.label


def unlabelled(model: Model, inputs: list[Any]) -> RowBuckets:
    """Batches of inputs without labels, as NumPy's arrays."""
    reader: Reader = model.assets.reader
    steps, wide = [reader.steps(one) for one in inputs], model.assets.wide
    counts = None if wide is None else NgramCounts([split_words(text) for text in inputs], wide.kinds)
    gather = input_batches(model.assets, inputs, steps, config_of(model).model, counts)
    lengths = [len(one) for one in steps]
    return RowBuckets(inputs, lengths, lambda rows: gather(rows, NOTHING), batch_size=model.together(AT_ONCE))


def scores_of(model: Model, batches: RowBuckets) -> NDArray[np.float32]:
    """The network's scores (N, C) in the order of the examples."""
    table = np.zeros((len(batches.examples), len(model.assets.labels)), dtype=np.float32)

    def work(index: int) -> NDArray[np.float32]:
        scores = model.network(model.placed(batches[index]))
        arrays = arrays_of(scores)
        found: NDArray[np.float32] = arrays.host(arrays.float(scores))
        return found

    with model.answering():
        for index, found in in_turn(len(batches), work):
            table[batches.rows(index)] = found
    return table


def probabilities_of(model: Model, batches: RowBuckets) -> NDArray[np.float32]:
    """The calibrated probabilities (N, C) in the order of the examples."""
    return probabilities(scores_of(model, batches), multi_label(model), model.assets.calibration)


def numbers(model: Model, batches: RowBuckets) -> Numbers:
    """The answers (N,) of a model of numbers, in the order of the examples."""
    answers = np.zeros(len(batches.examples))
    mean, deviation = model.assets.scale

    def work(index: int) -> NDArray[np.float64]:
        scores = model.network(model.placed(batches[index]))[:, 0]
        arrays = arrays_of(scores)
        found: NDArray[np.float64] = arrays.host(arrays.double(scores))
        return found

    with model.answering():
        for index, found in in_turn(len(batches), work):
            answers[batches.rows(index)] = mean + deviation * found
    return answers


def multi_label(model: Model) -> bool:
    return config_of(model).data.multi_label


def config_of(model: Model) -> ClassifyConfig:
    config: Any = model.config
    found: ClassifyConfig = config
    return found


def answer_of(model: Model, row: NDArray[np.float32], least: float | None = None) -> Classified:
    """The answer for the probabilities (C,) of one input; none if its probability is below `least`."""
    labels: tuple[str, ...] = model.assets.labels
    chances = {label: float(p) for label, p in zip(labels, row, strict=True)}
    if multi_label(model):
        applies = applying(row[None], model.assets.calibration)[0]
        return Classified(
            tuple(label for label, yes in zip(labels, applies, strict=True) if yes), chances, several=True
        )
    best = int(row.argmax())
    answered = least is None or row[best] >= np.float32(least)
    return Classified((labels[best],) if answered else (), chances)


def check_least(model: Model, least: float | None) -> None:
    """An error for a probability that no answer can be held to."""
    if least is None:
        return
    if isinstance(least, bool) or not isinstance(least, (int, float)) or not 0 <= least <= 1:
        raise UserError(f"min_probability={least!r} is not a probability.", "Give a number from 0 to 1, such as 0.8.")
    if model.assets.scale is not None:
        raise UserError("min_probability is for labels, and this model answers numbers.", "Leave it out.")
    if multi_label(model):
        raise UserError(
            "min_probability is for one label each, and this model answers any number of labels.",
            "Leave it out: every label has a threshold of its own (train.thresholds).",
        )


def predict(model: Model, inputs: Any, *, min_probability: float | None = None, explain: bool = False) -> Any:
    """A `Classified` or `PredictedNumber` for one input, a list for several: texts, or arrays of frames.

    Without a label of at least `min_probability` there is no label in the answer. With `explain`, answers have an
    `Explanation`.
    """
    check_least(model, min_probability)
    alone = isinstance(inputs, str) or hasattr(inputs, "shape")
    given = checked_inputs(model, [inputs] if alone else inputs)
    batches = unlabelled(model, given)
    answers: Sequence[Classified | PredictedNumber]
    if model.assets.scale is not None:
        answers = [PredictedNumber(float(value)) for value in numbers(model, batches)]
    else:
        answers = [answer_of(model, row, min_probability) for row in probabilities_of(model, batches)]
    if explain:
        from unrolled.tasks.classify.explain import explained  # it needs torch

        answers = explained(model, given, answers)
    return answers[0] if alone else answers
