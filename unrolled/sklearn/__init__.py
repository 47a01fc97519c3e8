"""Estimators for scikit-learn: `SequenceClassifier`, `Tagger` and `Forecaster`. Needs scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from unrolled.errors import UserError
from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.sklearn.classifier import SequenceClassifier
    from unrolled.sklearn.forecaster import Forecaster
    from unrolled.sklearn.tagger import Tagger

if find_spec("sklearn") is None:
    raise UserError("unrolled.sklearn needs scikit-learn, which is not installed.", "pip install scikit-learn")

__all__ = ["Forecaster", "SequenceClassifier", "Tagger"]

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.sklearn.classifier": "SequenceClassifier",
        "unrolled.sklearn.forecaster": "Forecaster",
        "unrolled.sklearn.tagger": "Tagger",
    },
)
