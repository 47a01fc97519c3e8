"""The arrays that a search computes with: torch's tensors, or NumPy's arrays where a model runs without torch.

Both kinds have the same operations here, `NumpyArrays` and `TorchArrays` (torch_arrays.py), and a search is written
once for both. A model says with an attribute `arrays` that it takes and gives NumPy's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Array = Any  # a tensor of torch, or an array of NumPy
Function = TypeVar("Function", bound=Callable[..., Any])


class NumpyArrays:
    """Operations on NumPy's arrays."""

    device = "cpu"

    def tensor(self, values: Sequence[Any] | Array) -> Array:
        """Python's numbers as an array; whole numbers are int64."""
        return np.asarray(values)

    def indices(self, values: Sequence[int]) -> Array:
        """Numbers of rows, of which there may be none."""
        return np.asarray(values, dtype=np.int64)

    def moved(self, leaf: Any) -> Any:
        """A part of a state as an array of this kind; what is no array stays."""
        return leaf

    def zeros(self, shape: Sequence[int], dtype: str) -> Array:
        return np.zeros(tuple(shape), dtype=dtype)

    def arange(self, count: int) -> Array:
        return np.arange(count)

    def where(self, condition: Array, yes: Any, no: Any) -> Array:
        return np.where(condition, yes, no)

    def masked_fill(self, array: Array, mask: Array, value: float) -> Array:
        """The array with a value where the mask, which may have one row for all, is True."""
        return np.where(mask, array.dtype.type(value), array)

    def cat(self, parts: Sequence[Array], axis: int) -> Array:
        return np.concatenate(parts, axis=axis)

    def stack(self, parts: Sequence[Array]) -> Array:
        return np.stack(parts)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def double(self, array: Array) -> Array:
        return array.astype(np.float64)

    def float(self, array: Array) -> Array:
        return array.astype(np.float32, copy=False)

    def wide(self, array: Array) -> Array:
        """float32, or float64 as it is."""
        return array if array.dtype == np.float64 else self.float(array)

    def alike(self, array: Array, other: Array) -> Array:
        """With the type of another array."""
        return array.astype(other.dtype, copy=False)

    def full_like(self, array: Array, value: Any) -> Array:
        return np.full_like(array, value)

    def tiny(self, array: Array) -> Any:
        """The smallest normal number of an array's type."""
        return float(np.finfo(array.dtype).tiny)

    def isnan(self, array: Array) -> Array:
        return np.isnan(array)

    def log(self, array: Array) -> Array:
        return np.log(array)

    def clip(self, array: Array, low: Any, high: Any) -> Array:
        return np.clip(array, low, high)

    def amax(self, array: Array) -> Array:
        """The highest number along the last axis."""
        return array.max(-1)

    def best(self, array: Array) -> tuple[Array, Array]:
        """The highest number along the last axis, and its place."""
        places = array.argmax(-1)
        return self.gather(array, places[:, None])[:, 0], places

    def gather(self, array: Array, places: Array) -> Array:
        """Numbers (B, k) at places (B, k) of the rows of (B, n)."""
        return np.take_along_axis(array, places, 1)

    def scatter(self, array: Array, places: Array, values: Array) -> Array:
        """A copy of (B, n) with other numbers (B, k) at places (B, k)."""
        changed = array.copy()
        np.put_along_axis(changed, places, values, 1)
        return changed

    def rows(self, array: Array, rows: Array) -> Array:
        """Rows of an array; one may be taken more than once."""
        return array[rows]

    def repeat(self, array: Array, times: int) -> Array:
        """Every number so many times, one after the other."""
        return np.repeat(array, times)

    def expand(self, array: Array, shape: Sequence[int]) -> Array:
        return np.broadcast_to(array, tuple(shape))

    def rows_of(self, mask: Array) -> Array:
        """The row of each True of a mask (B, n)."""
        return np.nonzero(mask)[0]

    def counted(self, places: Array, chosen: Array, width: int) -> Array:
        """The number of times that each of `width` places is among those chosen, (B, width)."""
        counts = np.zeros((len(places), width), dtype=np.int64)
        np.add.at(counts, (np.arange(len(places))[:, None], places), chosen)
        return counts

    def windows(self, array: Array, size: int) -> Array:
        """All windows of so many neighbours of each row: (B, T) → (B, T − size + 1, size)."""
        return np.lib.stride_tricks.sliding_window_view(array, size, axis=1)

    def sorted(self, array: Array) -> tuple[Array, Array]:
        """Each row from its highest number down, and the places; of equal ones the first comes first."""
        places = np.argsort(-array, axis=-1, kind="stable")
        return np.take_along_axis(array, places, -1), places

    def topk(self, array: Array, count: int) -> tuple[Array, Array]:
        """The highest numbers of each row from the highest down, and their places; NaN counts as the highest."""
        keys = np.where(np.isnan(array), -np.inf, -array)
        if count < array.shape[-1] // 4:  # partly sorted first: rows may be long
            some = np.sort(np.argpartition(keys, count - 1, axis=-1)[:, :count], axis=-1)
            places = np.take_along_axis(some, np.argsort(np.take_along_axis(keys, some, -1), -1, kind="stable"), -1)
        else:
            places = np.argsort(keys, axis=-1, kind="stable")[:, :count]
        return np.take_along_axis(array, places, -1), places

    def first(self, array: Array, count: int) -> tuple[Array, Array]:
        """`topk` of short rows; of equal numbers the first comes first."""
        places = np.argsort(np.where(np.isnan(array), -np.inf, -array), axis=-1, kind="stable")[:, :count]
        return np.take_along_axis(array, places, -1), places

    def top_scores(self, scores: Array, count: int, blocked: Array, *, normalised: bool = True) -> tuple[Array, Array]:
        """As `unrolled.kernels.vocabulary.scores.top_scores`."""
        log_probs = scores if normalised else self.log_softmax(scores)
        return self.topk(self.masked_fill(log_probs, blocked, -np.inf), count)

    def log_softmax(self, array: Array) -> Array:
        shifted = array - _finite(array.max(-1, keepdims=True))
        with np.errstate(divide="ignore"):
            return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    def softmax(self, array: Array) -> Array:
        """In float64."""
        array = array.astype(np.float64)
        with np.errstate(invalid="ignore"):
            powers = np.exp(array - array.max(-1, keepdims=True))
            return powers / powers.sum(-1, keepdims=True)

    def shares(self, array: Array) -> Array:
        """The softmax, in the array's own precision."""
        powers = np.exp(array - array.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def sigmoid(self, array: Array) -> Array:
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-array))

    def binary_cross_entropy(self, scores: Array, targets: Array) -> Array:
        """In nats, of each score (a log-odds) and its target from 0 to 1."""
        return np.maximum(scores, 0) - scores * targets + np.log1p(np.exp(-np.abs(scores)))

    def exp(self, array: Array) -> Array:
        return np.exp(array)

    def ascending(self, array: Array) -> Array:
        """Sorted along the last axis."""
        return np.sort(array, axis=-1)

    def isfinite(self, array: Array) -> Array:
        return np.isfinite(array)

    def expanded(self, array: Array, rows: int) -> Array:
        """A single row (1, …) as so many rows."""
        return np.repeat(array, rows, axis=0)

    def generator(self, seed: int) -> Any:
        """A random generator for `normal` and `uniform`."""
        return np.random.default_rng(seed)

    def normal(self, shape: Sequence[int], generator: Any = None) -> Array:
        return (generator or np.random.default_rng()).standard_normal(tuple(shape), dtype=np.float32)

    def uniform(self, shape: Sequence[int], generator: Any = None) -> Array:
        return (generator or np.random.default_rng()).random(tuple(shape), dtype=np.float32)

    def host(self, array: Array) -> Array:
        """The array as NumPy's."""
        return array

    def seeds(self, count: int) -> list[int]:
        """Random seeds, which `numpy.random.seed` decides."""
        return [int(seed) for seed in np.random.randint(0, 2**63 - 1, count, dtype=np.int64)]

    def without_gradients(self, function: Function) -> Function:
        return function


def _finite(highest: Array) -> Array:
    """The highest number of each row, 0 where all are −inf."""
    return np.where(np.isneginf(highest), highest.dtype.type(0), highest)


NUMPY = NumpyArrays()


def arrays_of(array: Array) -> Any:
    """The operations for the kind of an array, and for its device."""
    if isinstance(array, (np.ndarray, np.generic)):
        return NUMPY
    from unrolled.search.torch_arrays import torch_arrays

    return torch_arrays(array.device)


def arrays_for(model: object) -> Any:
    """The operations for the arrays that a model takes and gives."""
    if (own := getattr(model, "arrays", None)) is not None:
        return own
    from unrolled.search.torch_arrays import torch_arrays

    return torch_arrays(getattr(model, "device", None) or "cpu")


def host_arrays() -> Any:
    """The operations for scorers of a search without a model: torch's on the CPU where it is installed."""
    if importlib.util.find_spec("torch") is None:
        return NUMPY
    from unrolled.search.torch_arrays import torch_arrays

    return torch_arrays("cpu")
