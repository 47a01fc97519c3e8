"""`Forecaster`: numbers for each row of a series, or the rows that come next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import validate_data

from unrolled.errors import UserError
from unrolled.sklearn.estimator import Estimator


class Forecaster(RegressorMixin, Estimator):  # type: ignore[misc]
    """Numbers for each row of a series; the task `forecast`. Rows are in the order of time: no split may shuffle them.

    With y, (N,) or (N, K), it predicts y of each row from this row and those before it. Without y, it predicts the rows
    themselves, `horizon` steps ahead. Scaling is the model's own.

    >>> import numpy as np
    >>> from unrolled.sklearn import Forecaster
    >>> wave = np.sin(np.arange(200) / 5)[:, None]
    >>> model = Forecaster(max_steps=20, hidden_size=8).fit(wave)
    >>> model.predict(wave).shape, model.forecast(wave, steps=3).shape
    ((200, 1), (3, 1))
    """

    task: ClassVar[str] = "forecast"

    def __init__(
        self,
        *,
        horizon: int = 1,
        epochs: float | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        hidden_size: int | None = None,
        num_layers: int | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        super().__init__(
            epochs=epochs,
            max_steps=max_steps,
            batch_size=batch_size,
            lr=lr,
            hidden_size=hidden_size,
            num_layers=num_layers,
            settings=settings,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.horizon = horizon

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train a new model; the last fifth of the rows is held out to choose the best."""
        if y is None:
            rows = np.asarray(validate_data(self, X, dtype=np.float64, ensure_min_samples=2))
            self._one = False
            return self._trained({"inputs": rows, "lengths": np.array([len(rows)])}, **{"data.horizon": self.horizon})
        rows, targets = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, multi_output=True, ensure_min_samples=2
        )
        self._one = targets.ndim == 1
        arrays = {"inputs": rows, "targets": np.asarray(targets, dtype=np.float64), "lengths": np.array([len(rows)])}
        return self._trained(arrays, **{"data.horizon": 0})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.required = False
        return tags

    def predict(self, X: Any) -> NDArray[np.float64]:
        """A prediction for each row, (N,) or (N, K): of y, or of the row `horizon` steps later."""
        model = self._fitted()
        rows = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        with self._notes():
            found = np.asarray(model.stream().feed(rows), dtype=np.float64).reshape(len(rows), -1)
        return found[:, 0] if self._one else found

    def forecast(self, X: Any, steps: int) -> NDArray[np.float64]:
        """The `steps` rows after the last, (steps, K), of a model that was fitted without y."""
        model = self._fitted()
        rows = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        with self._notes():
            return np.asarray(model.predict(rows, steps=steps), dtype=np.float64)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R² of `predict`: against y, or, without y, against the rows of X themselves."""
        if y is not None:
            return float(r2_score(y, self.predict(X), sample_weight=sample_weight))
        found, rows = self.predict(X), np.asarray(X, dtype=np.float64)
        if len(rows) <= self.horizon:
            raise UserError(f"X has {len(rows)} rows, and the horizon is {self.horizon}.", "Give more rows.")
        return float(r2_score(rows[self.horizon :], found[: -self.horizon]))
