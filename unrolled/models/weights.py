"""Weights of one network in another: copies, and tied weights counted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


def copy_weights(
    source: nn.Module, target: nn.Module, chosen: Mapping[str, int] | None = None, rows: Sequence[int] = ()
) -> None:
    """Copy weights; where the target has more rows (a longer vocabulary), the rows of the source.

    chosen: weights of which only some `rows` are copied, each with the dimension of these rows.
    """
    old = source.state_dict()
    with torch.no_grad():
        for name, value in target.state_dict().items():
            copied = old[name]
            if chosen is not None and name in chosen:
                copied = copied.index_select(chosen[name], torch.tensor(rows, dtype=torch.int64, device=copied.device))
            value[tuple(slice(0, size) for size in copied.shape)].copy_(copied)


def unique_weights(network: nn.Module) -> dict[str, Tensor]:
    """The state without the second names of tied weights."""
    seen: set[int] = set()
    unique = {}
    for name, value in network.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen.add(id(value))
            unique[name] = value.data
    return unique
