"""The answers of a classifier: labels with probabilities, or numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch, RowBuckets
from unrolled.data.batching.sharing import in_turn
from unrolled.data.batching.tables import NOTHING
from unrolled.search.arrays import Array, arrays_of
from unrolled.tasks.classify.batches import input_batches
from unrolled.tasks.classify.examples import checked_inputs
from unrolled.tasks.classify.regression import Numbers, PredictedNumber
from unrolled.tasks.shared.reader import Reader

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.classify.config import ClassifyConfig

AT_ONCE = 128  # sequences in a batch when there are no gradients; fewer are padded less, more are sooner done


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


def unlabelled(model: Model, inputs: list[Any]) -> RowBuckets:
    """Batches of inputs without labels, as NumPy's arrays."""
    reader: Reader = model.assets.reader
    steps = [reader.steps(one) for one in inputs]
    gather = input_batches(reader, inputs, steps, config_of(model).model)
    lengths = [len(one) for one in steps]
    return RowBuckets(inputs, lengths, lambda rows: gather(rows, NOTHING), batch_size=model.together(AT_ONCE))


def probabilities_of(model: Model, batches: RowBuckets) -> NDArray[np.float32]:
    """The probabilities (N, C) in the order of the examples."""
    return probabilities_and_losses(model, batches)[0]


def probabilities_and_losses(
    model: Model, batches: RowBuckets, loss_of: Callable[[Array, Batch], float] | None = None
) -> tuple[NDArray[np.float32], list[float]]:
    """The probabilities (N, C) in the order of the examples; and the loss of each batch, if `loss_of` its scores."""
    table = np.zeros((len(batches.examples), len(model.assets.labels)), dtype=np.float32)
    multi, losses = multi_label(model), []

    def work(index: int) -> tuple[NDArray[np.float32], float]:
        batch = model.placed(batches[index])
        scores = model.network(batch)
        arrays = arrays_of(scores)
        scores = arrays.float(scores)
        found = arrays.host(arrays.sigmoid(scores) if multi else arrays.shares(scores))
        return found, 0.0 if loss_of is None else loss_of(scores, batch)

    with model.answering():
        for index, (found, loss) in in_turn(len(batches), work):
            table[batches.rows(index)] = found
            losses.append(loss)
    return table, losses


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


def answer_of(model: Model, row: NDArray[np.float32]) -> Classified:
    """The answer for the probabilities (C,) of one input."""
    labels: tuple[str, ...] = model.assets.labels
    probabilities = {label: float(p) for label, p in zip(labels, row, strict=True)}
    if multi_label(model):
        return Classified(tuple(label for label, p in probabilities.items() if p >= 0.5), probabilities, several=True)
    return Classified((labels[int(row.argmax())],), probabilities)


def predict(model: Model, inputs: Any) -> Any:
    """A `Classified` or `PredictedNumber` for one input, a list for several: texts, or arrays of frames."""
    alone = isinstance(inputs, str) or hasattr(inputs, "shape")
    batches = unlabelled(model, checked_inputs(model, [inputs] if alone else inputs))
    answers: list[Classified] | list[PredictedNumber]
    if model.assets.scale is not None:
        answers = [PredictedNumber(float(value)) for value in numbers(model, batches)]
    else:
        answers = [answer_of(model, row) for row in probabilities_of(model, batches)]
    return answers[0] if alone else answers
