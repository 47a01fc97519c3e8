"""The parameters, training and pickling that the estimators share."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from unrolled.data.memory.arrays import as_array, is_array
from unrolled.data.memory.held import given
from unrolled.data.memory.tables import column_values
from unrolled.errors import Note, UserError
from unrolled.jobs import TrainingJob, configure, load_model

if TYPE_CHECKING:
    from unrolled.model import Model

FILE = "model.safetensors"
KEYS = {
    "epochs": "train.epochs",
    "max_steps": "train.max_steps",
    "batch_size": "train.batch_size",
    "lr": "train.lr",
    "hidden_size": "model.hidden_size",
    "num_layers": "model.num_layers",
}
"""The parameters that are keys of a config; None leaves the task's default."""


class Estimator(BaseEstimator):  # type: ignore[misc]
    """A task as an estimator of scikit-learn.

    `settings` are further keys of the task's config: {"model.cell": "gru"}. `random_state` is the seed; None: that of
    the config, so that two fits on one data set give one model. After `fit`, `model_` is the `unrolled.Model`.
    """

    task: ClassVar[str]

    def __init__(
        self,
        *,
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
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.lr = lr
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.settings = settings
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _trained(self, data: Any, **keys: Any) -> Self:
        """The estimator with a model trained on data."""
        chosen = {key: getattr(self, name) for name, key in KEYS.items() if getattr(self, name) is not None}
        if self.random_state is not None:
            chosen["train.seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        changes = {**keys, "train.device": self.device, **chosen, **(self.settings or {})}
        with self._notes(), tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            with given(train=data) as names:
                config = configure(self.task, extra={"data.train": names["train"], **changes})
                self.model_: Model = TrainingJob(config, draw=False).run(out, quiet=not self.verbose)
        return self

    @contextmanager
    def _notes(self) -> Iterator[None]:
        """A block without remarks, unless the estimator is verbose."""
        with warnings.catch_warnings():
            if not self.verbose:
                warnings.simplefilter("ignore", Note)
            yield

    def _fitted(self) -> Model:
        check_is_fitted(self, "model_")
        return self.model_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __getstate__(self) -> dict[str, Any]:
        """The model as the bytes of its file."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "model_" in state:
            with tempfile.TemporaryDirectory() as folder:
                self.model_.save(Path(folder) / FILE)
                state["model_"] = (Path(folder) / FILE).read_bytes()
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        if isinstance(state.get("model_"), bytes):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / FILE).write_bytes(state["model_"])
                state["model_"] = load_model(Path(folder) / FILE, device=self._device(state))
        super().__setstate__(state)

    @staticmethod
    def _device(state: Mapping[str, Any]) -> str:
        return str(state.get("device", "auto"))


def sequences_of(estimator: Any, X: Any, *, fitting: bool) -> list[Any]:
    """The sequences of X: texts, lists of words, or arrays of frames (T, D).

    Numbers (N, T) are N sequences of T steps with one number each; (N, T, D) are N sequences, and so is a list of
    arrays.
    """
    if isinstance(X, str):
        raise UserError("X is one text.", "Give a list of texts.")
    if (values := column_values(X)) is not None:
        X = values
    if hasattr(X, "ndim") and getattr(X, "dtype", None) is not None and X.ndim == 1 and X.dtype.kind in "OUS":
        X = X.tolist()
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], str):
        return _alike(X, str)
    if isinstance(X, (list, tuple)) and X and is_array(X[0]) and X[0].ndim > 1:
        return [as_array(one, "X") for one in X]
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], (list, tuple)) and X[0] and isinstance(X[0][0], str):
        return _alike(X, (list, tuple))
    if is_array(X) and X.ndim > 2:
        array = np.asarray(validate_data(estimator, as_array(X, "X"), reset=fitting, allow_nd=True, dtype="numeric"))
        return list(array)
    array = np.asarray(validate_data(estimator, X, reset=fitting, dtype=(np.float64, np.float32)))
    return list(array[..., None])


def _alike(values: Sequence[Any], kind: Any) -> list[Any]:
    for row, one in enumerate(values):
        if not isinstance(one, kind):
            missing = one is None or one != one
            raise UserError(
                f"X, row {row} is {'missing' if missing else type(one).__name__}, and the first is "
                f"{type(values[0]).__name__}.",
                "Give inputs of one kind.",
            )
    return list(values)


def names_for(classes: NDArray[Any]) -> list[str]:
    """A text for each class, by which the model knows it."""
    texts = [str(one).strip() for one in classes.tolist()]
    plain = len(set(texts)) == len(texts) and all(texts)
    return texts if plain else [str(number) for number in range(len(texts))]
