"""scikit-learn's own checks of estimators."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from unrolled.sklearn import Forecaster, SequenceClassifier

ONCE = {"train.eval_every": 100}  # one evaluation, at the end
SMALL: dict[str, Any] = {"max_steps": 20, "hidden_size": 8, "batch_size": 32, "lr": 0.05, "settings": ONCE}

OF_SERIES = "a forecaster reads rows in the order of time: each prediction depends on the rows before it"
FAILURES = {
    "Forecaster": {
        "check_methods_sample_order_invariance": OF_SERIES,
        "check_methods_subset_invariance": OF_SERIES,
    },
    "SequenceClassifier": {},
}
"""Checks that do not apply, and why."""


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SequenceClassifier(**SMALL), Forecaster(**SMALL)],
    expected_failed_checks=lambda estimator: FAILURES[type(estimator).__name__],
    xfail_strict=True,
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
