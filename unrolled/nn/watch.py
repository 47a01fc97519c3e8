"""Notices when a layer's weights are no longer those that a stepper has packed."""

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
    """Compares a layer with what was taken from it, without keeping the layer alive.

    `look()` is quick, for every step: it sees what torch counts, and every optimizer's step. The native engine does the
    same itself, from `watched` and `seen`. `check()` looks closely, also for parameters that were replaced or given
    other data, and raises if a number is not what it was. Writes to `parameter.data` in place leave no trace: neither
    sees them.
    """

    def __init__(self, layer: DropIn, kept: Mapping[str, Tensor]) -> None:
        """`kept` are copies of the layer's weights, by name."""
        self._kept = kept
        self.watched: list[Tensor] = []
        self.seen = [0]  # what their counters add up to
        watched = self.watched
        self._layer = weakref.ref(layer, lambda _: watched.clear())
        self._remember(layer)
        _listen()
        _watches.add(self)

    def _remember(self, layer: DropIn) -> None:
        self._places = _places(layer)
        self.watched[:] = [p for p in layer.parameters() if not p.is_inference()]  # which have no counter
        self.seen[0] = self._counted()

    def _counted(self) -> int:
        return sum(tensor._version for tensor in self.watched)

    def look(self) -> None:
        """Raises if a weight was written to, and has another value than the one taken."""
        if self._counted() != self.seen[0]:
            self.check()

    def check(self) -> None:
        """Raises if the layer's weights have other values than those taken."""
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
    """Once, when the first stepper is made."""
    register_optimizer_step_post_hook(_distrust)


def _distrust(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """After an optimizer's step over watched weights: fused ones write without counting."""
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
