"""The operations of a search on torch's tensors; arrays.py says what each does."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unrolled.cells.apart import pointwise, softmax
from unrolled.kernels.vocabulary.scores import top_scores
from unrolled.search.arrays import Function


class TorchArrays:
    """Operations on tensors; new ones are made on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def tensor(self, values: Sequence[Any] | Tensor) -> Tensor:
        return torch.as_tensor(values, device=self.device)

    def indices(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def moved(self, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return torch.from_numpy(leaf).to(self.device)
        return leaf.to(self.device) if isinstance(leaf, Tensor) else leaf

    def zeros(self, shape: Sequence[int], dtype: str) -> Tensor:
        return torch.zeros(*shape, dtype=getattr(torch, dtype), device=self.device)

    def arange(self, count: int) -> Tensor:
        return torch.arange(count, device=self.device)

    def where(self, condition: Tensor, yes: Any, no: Any) -> Tensor:
        return torch.where(condition, yes, no)

    def masked_fill(self, array: Tensor, mask: Tensor, value: float) -> Tensor:
        return array.masked_fill(mask, value)

    def cat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return torch.cat(list(parts), dim=axis)

    def stack(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts))

    def copy(self, array: Tensor) -> Tensor:
        return array.clone()

    def double(self, array: Tensor) -> Tensor:
        return array.double()

    def float(self, array: Tensor) -> Tensor:
        return array.float()

    def wide(self, array: Tensor) -> Tensor:
        return array if array.dtype == torch.float64 else array.float()

    def alike(self, array: Tensor, other: Tensor) -> Tensor:
        return array.to(other.dtype)

    def full_like(self, array: Tensor, value: Any) -> Tensor:
        return torch.full_like(array, value)

    def tiny(self, array: Tensor) -> Any:
        return torch.finfo(array.dtype).tiny

    def isnan(self, array: Tensor) -> Tensor:
        return array.isnan()

    def log(self, array: Tensor) -> Tensor:
        return array.log()

    def clip(self, array: Tensor, low: Any, high: Any) -> Tensor:
        return array.clamp(low, high)

    def amax(self, array: Tensor) -> Tensor:
        return array.amax(-1)

    def best(self, array: Tensor) -> tuple[Tensor, Tensor]:
        highest, places = array.max(-1)
        return highest, places

    def gather(self, array: Tensor, places: Tensor) -> Tensor:
        return array.gather(1, places)

    def scatter(self, array: Tensor, places: Tensor, values: Tensor) -> Tensor:
        return array.scatter(-1, places, values)

    def rows(self, array: Tensor, rows: Tensor) -> Tensor:
        return array.index_select(0, rows)

    def repeat(self, array: Tensor, times: int) -> Tensor:
        return array.repeat_interleave(times)

    def expand(self, array: Tensor, shape: Sequence[int]) -> Tensor:
        return array.expand(*shape)

    def rows_of(self, mask: Tensor) -> Tensor:
        return mask.nonzero()[:, 0]

    def counted(self, places: Tensor, chosen: Tensor, width: int) -> Tensor:
        counts = torch.zeros(len(places), width, dtype=torch.int32, device=places.device)
        return counts.scatter_add_(1, places, chosen.int())

    def windows(self, array: Tensor, size: int) -> Tensor:
        return array.unfold(1, size, 1)

    def sorted(self, array: Tensor) -> tuple[Tensor, Tensor]:
        ordered, places = array.sort(dim=-1, descending=True, stable=True)
        return ordered, places

    def topk(self, array: Tensor, count: int) -> tuple[Tensor, Tensor]:
        values, places = array.topk(count, dim=-1)
        return values, places

    def first(self, array: Tensor, count: int) -> tuple[Tensor, Tensor]:
        ordered, places = self.sorted(array)
        return ordered[:, :count], places[:, :count]

    def top_scores(
        self, scores: Tensor, count: int, blocked: Tensor, *, normalised: bool = True
    ) -> tuple[Tensor, Tensor]:
        return top_scores(scores, count, blocked, normalised=normalised)

    def log_softmax(self, array: Tensor) -> Tensor:
        return array.log_softmax(-1)

    def softmax(self, array: Tensor) -> Tensor:
        return array.softmax(-1, dtype=torch.float64)

    def shares(self, array: Tensor) -> Tensor:
        return softmax(array)

    def sigmoid(self, array: Tensor) -> Tensor:
        return pointwise(torch.sigmoid, array)

    def binary_cross_entropy(self, scores: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")

    def exp(self, array: Tensor) -> Tensor:
        return pointwise(torch.exp, array)

    def ascending(self, array: Tensor) -> Tensor:
        return array.sort(-1).values

    def isfinite(self, array: Tensor) -> Tensor:
        return array.isfinite()

    def expanded(self, array: Tensor, rows: int) -> Tensor:
        return array.expand(rows, *array.shape[1:])

    def generator(self, seed: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    def normal(self, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
        return torch.randn(*shape, generator=generator).to(self.device)

    def uniform(self, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
        return torch.rand(*shape, generator=generator).to(self.device)

    def host(self, array: Tensor) -> Any:
        return array.detach().cpu().numpy()

    def seeds(self, count: int) -> list[int]:
        return [int(seed) for seed in torch.randint(2**63 - 1, (count,))]

    def without_gradients(self, function: Function) -> Function:
        return torch.no_grad()(function)


@functools.lru_cache(maxsize=16)
def torch_arrays(device: torch.device | str) -> TorchArrays:
    """The operations for tensors on a device."""
    return TorchArrays(torch.device(device))
