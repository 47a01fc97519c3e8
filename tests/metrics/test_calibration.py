"""Calibration against scikit-learn's curves and by search over all values."""

from __future__ import annotations

import numpy as np
import pytest

from unrolled.metrics.calibration import (
    calibration_error,
    fit_temperature,
    fit_temperature_of_labels,
    fit_thresholds,
)


@pytest.mark.parametrize("bins", [5, 15])
def test_the_error_is_that_of_scikit_learns_curve(bins: int) -> None:
    from sklearn.calibration import calibration_curve

    random = np.random.default_rng(0)
    confidence = random.random(500)
    right = random.random(500) < confidence**2
    shares, means = calibration_curve(right, confidence, n_bins=bins)
    counts = np.histogram(confidence, np.linspace(0, 1, bins + 1))[0]
    expected = (counts[counts > 0] * np.abs(shares - means)).sum() / 500
    assert calibration_error(confidence, right, bins) == pytest.approx(expected)


def test_sure_and_right_has_no_error() -> None:
    assert calibration_error(np.ones(4), np.ones(4, bool)) == 0
    assert calibration_error(np.ones(4), np.zeros(4, bool)) == 1
    assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0


def drawn(temperature: float, number: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and classes drawn from their softmax at a temperature."""
    random = np.random.default_rng(1)
    scores = 3 * random.normal(size=(number, 4))
    chances = np.exp(scores / temperature)
    chances /= chances.sum(1, keepdims=True)
    return scores, (chances.cumsum(1) > random.random((number, 1))).argmax(1)


def loss_at(scores: np.ndarray, targets: np.ndarray, log: float) -> float:
    """The summed loss at a temperature, with what is expected of it."""
    scaled = scores / np.exp(log)
    return float((np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(targets)), targets]).sum() + log**2 / 2)


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
def test_the_temperature_is_the_best_of_many(true: float) -> None:
    scores, targets = drawn(true)
    logs = np.linspace(-2, 2, 4001)
    best = np.exp(logs[np.argmin([loss_at(scores, targets, log) for log in logs])])
    found = fit_temperature(scores, targets)
    assert found == pytest.approx(best, rel=2e-3)
    assert found == pytest.approx(true, rel=0.2)


def test_unknown_labels_do_not_count() -> None:
    scores, targets = drawn(2.0)
    more = np.concatenate([scores, 9 * scores[:50]]), np.concatenate([targets, np.full(50, -1)])
    assert fit_temperature(*more) == fit_temperature(scores, targets)
    assert fit_temperature(scores, np.full(400, -1)) == 1


def test_a_few_right_answers_do_not_make_it_cold() -> None:
    scores = np.array([[3.0, 0.0], [3.0, 0.0]])
    assert 0.3 < fit_temperature(scores, np.array([0, 0])) < 1


def test_the_temperature_of_labels_is_the_best_of_many() -> None:
    random = np.random.default_rng(2)
    scores = 4 * random.normal(size=(300, 3))
    targets = (random.random((300, 3)) < 1 / (1 + np.exp(-scores / 2))).astype(float)
    logs = np.linspace(-2, 2, 4001)
    losses = [
        (np.logaddexp(0, scores / np.exp(log)) - targets * scores / np.exp(log)).sum() + log**2 / 2 for log in logs
    ]
    assert fit_temperature_of_labels(scores, targets) == pytest.approx(np.exp(logs[np.argmin(losses)]), rel=2e-3)


def test_thresholds_are_the_best_of_all() -> None:
    from sklearn.metrics import f1_score

    random = np.random.default_rng(3)
    for number in (3, 10, 60):
        targets = random.random((number, 4)) < [0.5, 0.2, 0.9, 0.4]
        targets[0, :2] = True
        targets[:, 3] = False
        chances = np.round(random.random((number, 4)) * 0.7 + 0.3 * targets, 2)  # with ties
        found = fit_thresholds(chances, targets)
        assert found[3] == 0.5
        for label in range(3):
            if targets[:, label].any():
                every = [f1_score(targets[:, label], chances[:, label] >= cut) for cut in np.arange(0, 1.001, 0.005)]
                mine = f1_score(targets[:, label], chances[:, label] >= found[label])
                assert mine == pytest.approx(max(every))
