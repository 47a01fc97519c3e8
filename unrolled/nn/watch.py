"""Detect changes of a layer's weights after a stepper has packed them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from unrolled.errors import UserError

if TYPE_CHECKING:
    from unrolled.nn.dropin import DropIn


class Watch:
    """Compares a layer with copies of its weights, without keeping the layer alive.

    `look()` is fast, for every step: it reads torch's version counters and notices every optimizer's step. The native
    engine does the same with `watched` and `seen`. `check()` also notices replaced parameters and replaced data, and
    compares all numbers. Neither notices in-place writes to `parameter.data`.
    """

    def __init__(self, layer: DropIn, kept: Mapping[str, Tensor]) -> None:
        """`kept` are copies of the layer's weights, by name."""
        self._kept = kept
        self.watched: list[Tensor] = []
        self.seen = [0]  # the sum of their version counters
        watched = self.watched
        self._layer = weakref.ref(layer, lambda _: watched.clear())
        self._remember(layer)
        _listen()
        _watches.add(self)

    def _remember(self, layer: DropIn) -> None:
        self._places = _places(layer)
        self.watched[:] = [p for p in layer.parameters() if not p.is_inference()]  # inference tensors have no counter
        self.seen[0] = self._counted()

    def _counted(self) -> int:
        return sum(tensor._version for tensor in self.watched)

    def look(self) -> None:
        """Raise an error if a weight was written to and its value has changed."""
        if self._counted() != self.seen[0]:
            self.check()

    def check(self) -> None:
        """Raise an error if the layer's weights differ from the copies."""
        layer = self._layer()
        if layer is None:
            self.seen[0] = 0
            return
        if _places(layer) == self._places and self._counted() == self.seen[0]:
            return
        if not all(_equal(kept, getattr(layer, name).detach()) for name, kept in self._kept.items()):
            raise UserError(
                "The layer's weights have changed since this stepper was made; it still has the old ones.",
                "Make a new one: layer.stepper(). To keep the old weights, make it from a copy: "
                "copy.deepcopy(layer).stepper().",
            )
        self._remember(layer)


_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


@cache
def _listen() -> None:
    """Register the optimizer hook once, for the first stepper."""
    register_optimizer_step_post_hook(_distrust)


def _distrust(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Require a check after an optimizer's step: fused optimizers do not increase the counters."""
    watches = list(_watches)
    written = {id(p) for group in optimizer.param_groups for p in group["params"]} if watches else set()
    for watch in watches:
        if any(id(p) in written for p in watch.watched):
            watch.seen[0] = -1


def _places(layer: DropIn) -> list[tuple[int, int]]:
    return [(id(p), p.data_ptr()) for p in layer.parameters()]


def _equal(old: Tensor, new: Tensor) -> bool:
    """True if two tensors hold the same numbers, on any device and in any dtype; NaN equals NaN."""
    if old.shape != new.shape or new.device.type == "meta":
        return False
    return torch.equal(old.nan_to_num(), new.to(old).nan_to_num())
