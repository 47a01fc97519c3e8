"""Scores of a classifier, and their report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import RowBuckets
from unrolled.data.readers.labelled import Labelled
from unrolled.errors import note
from unrolled.metrics import ClassScores, class_scores, label_scores
from unrolled.metrics.calibration import fit_temperature, fit_temperature_of_labels, fit_thresholds
from unrolled.search.arrays import NUMPY
from unrolled.tasks.classify.assets import ClassifyAssets, Encoded
from unrolled.tasks.classify.batches import input_batches, targets_of, wide_counts
from unrolled.tasks.classify.calibration import USUAL, Calibration, applying, error_of, probabilities
from unrolled.tasks.classify.examples import check_shape, read_examples
from unrolled.tasks.classify.predict import AT_ONCE, check_least, config_of, multi_label, numbers, scores_of
from unrolled.tasks.classify.regression import number_scores, numbers_of
from unrolled.tasks.runner import plain_scores, table_of

if TYPE_CHECKING:
    from unrolled.model import Model

MOST_CONFUSED = 20  # classes of which the report shows a confusion matrix


def judged(
    assets: ClassifyAssets, examples: Sequence[Any], chances: NDArray[np.float32], multi: bool
) -> tuple[ClassScores, NDArray[np.int64] | None, int]:
    """The scores, the confusion matrix, and the number of examples with a loss.

    Labels that training never saw are classes too, after the others: no answer is one of them.
    """
    unseen = sorted({label for example in examples for label in example.labels} - set(assets.labels))
    truth = replace(assets, labels=(*assets.labels, *unseen)).targets(examples, multi)
    if multi:
        answers = np.pad(applying(chances, assets.calibration), ((0, 0), (0, len(unseen))))
        return label_scores(truth > 0.5, answers), None, len(examples)
    known = int((truth < len(assets.labels)).sum())
    return *class_scores(truth, chances.argmax(axis=1), len(assets.labels) + len(unseen)), known


def _encoded(batches: RowBuckets) -> Sequence[Encoded]:
    examples: Any = batches.examples
    found: Sequence[Encoded] = examples
    return found


def summed_loss(scores: NDArray[np.float32], targets: NDArray[Any]) -> float:
    """Cross-entropy in nats of scores (N, C), summed over examples with a known label (−1: none), or over all labels.

    >>> round(summed_loss(np.zeros((2, 4), np.float32), np.array([3, -1])), 4)
    1.3863
    """
    if targets.ndim == 2:
        return float(NUMPY.binary_cross_entropy(scores, targets).sum(dtype=np.float64))
    known = np.flatnonzero(targets >= 0)
    return -float(NUMPY.log_softmax(scores)[known, targets[known]].sum(dtype=np.float64))


def evaluation(model: Model, batches: RowBuckets) -> dict[str, float]:
    """Scores on batches of validation examples, which also calibrate the model."""
    examples: list[Labelled] = [one.example for one in _encoded(batches)]
    if model.assets.scale is not None:
        return number_scores(numbers_of(examples), numbers(model, batches))
    multi, table = multi_label(model), scores_of(model, batches)
    targets = model.assets.targets(examples, multi)
    model.assets = replace(model.assets, calibration=calibrated(model, table, targets))
    chances = probabilities(table, multi, model.assets.calibration)
    scores, _, known = judged(model.assets, examples, chances, multi)
    result = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
    result |= {"micro_f1": scores.micro_f1} if multi else {}
    result["nll"] = summed_loss(table, targets) / max(1, known)
    return result | calibration_scores(table, targets, multi, model.assets.calibration)


def calibrated(model: Model, table: NDArray[np.float32], targets: NDArray[Any]) -> Calibration | None:
    """The calibration that suits the scores (N, C) of validation examples; None if the config wants none.

    Class weights change the probabilities on purpose: then the temperature stays 1.
    """
    settings, multi, temperature = config_of(model).train, multi_label(model), 1.0
    if settings.calibrate and settings.class_weights == "none":
        temperature = fit_temperature_of_labels(table, targets) if multi else fit_temperature(table, targets)
    found = Calibration(temperature)
    if multi and settings.thresholds == "fitted":
        found = replace(found, thresholds=tuple(fit_thresholds(probabilities(table, True, found), targets > 0.5)))
    elif multi and settings.thresholds != USUAL:
        found = replace(found, thresholds=(float(settings.thresholds),) * table.shape[1])
    return None if found == Calibration() else found


def calibration_scores(
    table: NDArray[np.float32], targets: NDArray[Any], multi: bool, calibration: Calibration | None
) -> dict[str, float]:
    """The expected calibration error of the probabilities, and before they were calibrated."""
    error = error_of(probabilities(table, multi, calibration), targets, multi)
    if calibration is None or calibration.temperature == 1:
        return {"ece": error}
    return {"ece": error, "ece_uncalibrated": error_of(probabilities(table, multi, None), targets, multi)}


def evaluate_file(model: Model, path: str | Path, *, min_probability: float | None = None) -> dict[str, Any]:
    """Scores, and tables of them, on a file; with `min_probability` also of the answers that reach it."""
    check_least(model, min_probability)
    assets: ClassifyAssets = model.assets
    config = config_of(model)
    examples = read_examples(config.data, path, assets.labels)
    check_shape(assets.reader, [e.input for e in examples], [e.place for e in examples])
    encoded = assets.encoded(examples)
    steps = [one.steps for one in encoded]
    counts = None if assets.wide is None else wide_counts(examples, assets.wide.kinds)
    inputs = input_batches(assets, [e.input for e in examples], steps, config.model, counts)
    labels = targets_of(assets, examples, config.data.multi_label)
    batches = RowBuckets(encoded, [len(one) for one in steps], lambda r: inputs(r, labels(r)), batch_size=AT_ONCE)
    return score_examples(model, examples, batches, min_probability)


def score_examples(
    model: Model, examples: list[Labelled], batches: RowBuckets, least: float | None = None
) -> dict[str, Any]:
    """Scores, and tables of them, on the examples of a file."""
    assets: ClassifyAssets = model.assets
    multi = multi_label(model)
    if empty := [e.place for e in examples if not len(e.input)]:
        note(f"Empty inputs count like all others. There are {len(empty)}, the first at {empty[0]}.")
    unknown = sum(assets.reader.unknowns(one.steps) for one in _encoded(batches))
    if assets.scale is not None:
        truth, found = numbers_of(examples), numbers(model, batches)
        usual = number_scores(truth, np.full(len(truth), assets.scale[0]))["rmse"]
        counts = {"examples": len(examples), "unknown_tokens": unknown}
        return {**number_scores(truth, found), "rmse_of_training_mean": usual, **counts}
    table, targets = scores_of(model, batches), assets.targets(examples, multi)
    chances = probabilities(table, multi, assets.calibration)
    scores, confusion, known = judged(assets, examples, chances, multi)
    unseen = [label for e in examples for label in e.labels if label not in set(assets.labels)]
    if unseen:
        first = next(e for e in examples if set(e.labels) - set(assets.labels))
        note(
            f"Labels never seen in training count as wrong. There are {len(unseen)}, the first at {first.place}: "
            f"{', '.join(sorted(set(unseen))[:5])}."
        )
    result: dict[str, Any] = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
    if multi:
        result["micro_f1"] = scores.micro_f1
    labels = (*assets.labels, *sorted(set(unseen)))
    loss = summed_loss(_cooled(table, assets.calibration), targets)
    result["nll"] = loss / known if known else None
    result |= calibration_scores(table, targets, multi, assets.calibration)
    if least is not None:
        result |= selected(chances, targets, least)
    result |= {"examples": len(examples), "unknown_labels": len(unseen)}
    result["unknown_tokens"] = unknown
    result["classes"] = per_class(labels, scores)
    if confusion is not None:
        named = [dict(zip(labels, row.tolist(), strict=True)) for row in confusion]
        result["confusion"] = dict(zip(labels, named, strict=True))
    return result


def _cooled(table: NDArray[np.float32], calibration: Calibration | None) -> NDArray[np.float32]:
    """Scores at the temperature of the model."""
    return table if calibration is None else table / np.float32(calibration.temperature)


def selected(chances: NDArray[np.float32], targets: NDArray[Any], least: float) -> dict[str, float | None]:
    """The share of the inputs that get an answer of at least this probability, and the accuracy of these answers.

    >>> selected(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1]), 0.8)
    {'coverage': 0.5, 'accuracy_answered': 1.0}
    """
    answered = chances.max(axis=1, initial=0) >= np.float32(least)
    right = (chances.argmax(axis=1) == targets)[answered]
    return {"coverage": float(answered.mean()), "accuracy_answered": float(right.mean()) if len(right) else None}


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
    """The scores of a file for a person to read: overall, by class, and a confusion matrix."""
    plain = plain_scores(scores)
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
