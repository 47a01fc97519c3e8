"""Batch: sequences on their way from the data to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Sequences side by side, padded at their ends. Padding never changes a number.

    `lengths` None: every row is full. `resets` marks rows (B,) or steps (B, T) where a new sequence begins; other rows
    of a stream continue from the batch before. `counted` (B, T) marks the steps whose losses count, None: all real
    ones. `more` holds other tensors by name, such as the letters of the words. Batches are made of NumPy's arrays,
    which a model without torch reads; `to` makes tensors of them, on the CPU without a copy.
    """

    inputs: Any  # (B, T) ids or (B, T, D) frames
    targets: Any  # (B, T, …), or (B, …) where a whole sequence has one target
    lengths: Any = None  # (B,)
    resets: Any = None
    counted: Any = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mask(self) -> Tensor:
        """(B, T), True where a step is real."""
        import torch

        rows, steps = self.inputs.shape[:2]
        if self.lengths is None:
            return torch.ones(rows, steps, dtype=torch.bool, device=self.inputs.device)
        real: Tensor = torch.arange(steps, device=self.inputs.device) < self.lengths[:, None]
        return real

    @property
    def scored(self) -> Tensor:
        """(B, T), True where a step is real and its loss counts."""
        return self.mask if self.counted is None else self.mask & self.counted

    def to(self, device: torch.device | str) -> Batch:
        """The batch as tensors on a device; host memory is pinned by whoever wants copies to overlap."""
        import torch

        place = torch.device(device)

        def moved(value: Any) -> Any:
            tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            return tensor if tensor is None or tensor.device == place else tensor.to(place, non_blocking=True)

        more = {name: moved(value) for name, value in self.more.items()}
        inputs, targets, lengths = moved(self.inputs), moved(self.targets), moved(self.lengths)
        return Batch(inputs, targets, lengths, moved(self.resets), moved(self.counted), more)

    def steps(self, start: int, stop: int) -> Batch:
        """The steps from `start` up to `stop` of every row, of all fields."""
        self._check_timed("cut")
        lengths = None if self.lengths is None else (self.lengths - start).clamp(0, stop - start)
        resets = self.resets
        if resets is not None:
            resets = resets[:, start:stop] if resets.dim() == 2 else resets & (start == 0)
        return Batch(
            inputs=self.inputs[:, start:stop],
            targets=self.targets[:, start:stop],
            lengths=lengths,
            resets=resets,
            counted=None if self.counted is None else self.counted[:, start:stop],
            more={name: value[:, start:stop] for name, value in self.more.items()},
        )

    def window(self, starts: Tensor, steps: int, ends: Tensor, timed: Sequence[str] = ()) -> Batch:
        """Up to `steps` steps of every row from its own start (B,) to its own end (B,).

        `timed` are the entries of `more` with a value for each step, (B, T, …); targets belong to whole rows and stay.
        """
        import torch

        places = starts[:, None] + torch.arange(steps, device=self.inputs.device)  # (B, steps)
        places = places.clamp(max=self.inputs.shape[1] - 1)
        rows = torch.arange(len(places), device=self.inputs.device)[:, None]
        return replace(
            self,
            inputs=self.inputs[rows, places],
            lengths=(ends - starts).clamp(0, steps),
            more={name: value[rows, places] if name in timed else value for name, value in self.more.items()},
        )

    def _check_timed(self, verb: str) -> None:
        """Raise unless targets and all of `more` have the time steps of the inputs, (B, T, …)."""
        for name, value in {"targets": self.targets, **self.more}.items():
            if value.shape[:2] != self.inputs.shape[:2]:
                raise ValueError(
                    f"A batch with {name} of shape {tuple(value.shape)} cannot be {verb} in time: "
                    f"expected a value for each of {tuple(self.inputs.shape[:2])} steps."
                )


def join(batches: Sequence[Batch]) -> Batch:
    """Consecutive batches of one stream as one, longer in time, with all fields; rows must be full."""
    import torch

    names = set(batches[0].more)
    for batch in batches:
        batch._check_timed("joined")
        if batch.lengths is not None and int(batch.lengths.min()) < batch.inputs.shape[1]:
            raise ValueError("Batches with padded rows cannot be joined in time: expected full rows, without lengths.")
        if set(batch.more) != names:
            raise ValueError(f"Batches with {sorted(names)} and {sorted(batch.more)} in `more` cannot be joined.")
    resets = None
    if any(b.resets is not None for b in batches):
        resets = torch.cat([_resets(b) for b in batches], dim=1)
    counted = None
    if any(b.counted is not None for b in batches):
        counted = torch.cat([b.scored for b in batches], dim=1)
    return Batch(
        inputs=torch.cat([b.inputs for b in batches], dim=1),
        targets=torch.cat([b.targets for b in batches], dim=1),
        resets=resets,
        counted=counted,
        more={name: torch.cat([b.more[name] for b in batches], dim=1) for name in batches[0].more},
    )


def _resets(batch: Batch) -> Tensor:
    """The batch's resets for every step, (B, T)."""
    import torch

    rows, steps = batch.inputs.shape[:2]
    full = torch.zeros(rows, steps, dtype=torch.bool, device=batch.inputs.device)
    if batch.resets is None:
        return full
    if batch.resets.dim() == 1:
        full[:, 0] = batch.resets
        return full
    resets: Tensor = batch.resets
    return resets
