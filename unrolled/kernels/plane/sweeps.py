"""LSTMs over a plane, many pixels in one step; the same numbers as `reference`.

The pixels of a diagonal depend on those of the diagonal before alone, so a sweep from a corner takes W + R − 1 steps.
A sweep from a side takes a step for each column or row. Directions are computed side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.cells.apart import linear, pointwise, product
from unrolled.kernels.plane.reference import CORNERS


def from_corners(
    x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, peephole: Tensor | None, real: Tensor
) -> Tensor:
    """Four LSTMs (B, W, R, 4·H), one from each corner."""
    batch, columns, rows, _ = x.shape
    projected = linear(x, weight_ih.flatten(0, 1), bias.flatten())  # (B, W, R, 4·5·H)
    gates = torch.stack([_turned(one, way) for one, way in zip(projected.chunk(4, -1), CORNERS, strict=True)])
    plane = real[:, :, None, None].expand(batch, columns, rows, 1).to(x.dtype)
    there = torch.stack([_turned(plane, way) for way in CORNERS])
    across = weight_hh.transpose(2, 3).flatten(1, 2)  # (4, 2·H, 5·H)

    def cell(now: Tensor, beside: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        above = _shifted(c, 1)
        i, f_w, f_r, g, o = (now + product(beside, across)).view(4, batch, rows, -1).chunk(5, dim=-1)
        if peephole is not None:
            p_i, p_w, p_r, p_o = peephole[:, :, None, None].unbind(1)  # (4, 1, 1, H) each
            i, f_w, f_r = i + p_i * (c + above), f_w + p_w * c, f_r + p_r * above
        c = _sigmoid(f_w) * c + _sigmoid(f_r) * above + _sigmoid(i) * pointwise(torch.tanh, g)
        return (o if peephole is None else o + p_o * c), c

    found = _sweep(_skewed(gates), _skewed(there), weight_hh.shape[-1], (0, 1), cell)  # (4, B, W + R − 1, R, H)
    straight = _straightened(found, columns)
    return torch.cat([_turned(one, way) for one, way in zip(straight, CORNERS, strict=True)], dim=-1)


def from_sides(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, real: Tensor) -> Tensor:
    """Four convolutional LSTMs (B, W, R, 4·H), one from each side."""
    x = x * real[:, :, None, None]
    plane = real[:, :, None, None].expand(*x.shape[:3], 1).to(x.dtype)
    parts = (weight_ih, weight_hh, bias)
    along_columns = _pair(x, plane, *(part[:2] for part in parts))
    along_rows = _pair(x.transpose(1, 2), plane.transpose(1, 2), *(part[2:] for part in parts))
    return torch.cat([along_columns, along_rows.transpose(1, 2)], dim=-1)


def _pair(x: Tensor, plane: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor) -> Tensor:
    """Both directions along the second dimension: (B, T, N, D) → (B, T, N, 2·H)."""
    batch, _, lanes, _ = x.shape
    reach = weight_ih.shape[1] // 2
    taps = tuple(range(reach, -reach - 1, -1))
    read = weight_ih.transpose(2, 3).flatten(1, 2)  # (2, k·D, 4·H)
    seen = torch.cat([_shifted(x, tap) for tap in taps], dim=-1).flatten(0, 2)  # (B·T·N, k·D)
    projected = product(seen, read).view(2, *x.shape[:3], -1) + bias[:, None, None, None]
    gates = torch.stack([projected[0], projected[1].flip(1)])
    there = torch.stack([plane, plane.flip(1)])
    across = weight_hh.transpose(2, 3).flatten(1, 2)  # (2, k·H, 4·H)

    def cell(now: Tensor, behind: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = (now + product(behind, across)).view(2, batch, lanes, -1).chunk(4, dim=-1)
        return o, _sigmoid(f) * c + _sigmoid(i) * pointwise(torch.tanh, g)

    ahead, back = _sweep(gates, there, weight_hh.shape[-1], taps, cell)
    return torch.cat([ahead, back.flip(1)], dim=-1)


def _sweep(
    gates: Tensor,
    there: Tensor,
    hidden_size: int,
    taps: Sequence[int],
    cell: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Tensor:
    """The outputs (K, B, T, N, H) of K recurrences over T steps of N pixels.

    `cell(gates, h of the pixels behind, c)` gives the output gate, before σ, and the new c.
    """
    ways, batch, _, lanes, _ = gates.shape
    h = c = gates.new_zeros(ways, batch, lanes, hidden_size)
    outputs = []
    for now, real in zip(gates.unbind(2), there.unbind(2), strict=True):
        behind = torch.cat([_shifted(h, tap) for tap in taps], dim=-1)  # (K, B, N, taps·H)
        o, c = cell(now.flatten(1, 2), behind.flatten(1, 2), c)
        h, c = _sigmoid(o) * pointwise(torch.tanh, c) * real, c * real
        outputs.append(h)
    return torch.stack(outputs, dim=2)


def _sigmoid(x: Tensor) -> Tensor:
    return pointwise(torch.sigmoid, x)


def _shifted(plane: Tensor, by: int) -> Tensor:
    """The last dimension but one moved on by `by` places, with zeros where nothing comes from."""
    size = plane.shape[-2]
    if by == 0:
        return plane
    if by > 0:
        return F.pad(plane[..., : max(0, size - by), :], (0, 0, min(by, size), 0))
    return F.pad(plane[..., min(-by, size) :, :], (0, 0, 0, min(-by, size)))


def _turned(plane: Tensor, way: tuple[int, int]) -> Tensor:
    """A plane (B, W, R, …) turned so that its sweep goes right and down, or turned back."""
    return plane.flip([place for place, step in zip((1, 2), way, strict=True) if step < 0])


def _skewed(plane: Tensor) -> Tensor:
    """(K, B, W, R, …) → (K, B, W + R − 1, R, …): the pixels of each diagonal become a column; zeros elsewhere."""
    ways, batch, columns, rows, size = plane.shape
    by_rows = F.pad(plane.transpose(2, 3), (0, 0, 0, rows)).flatten(2, 3)  # rows of W + R places
    steps = columns + rows - 1
    return by_rows[:, :, : rows * steps].view(ways, batch, rows, steps, size).transpose(2, 3)


def _straightened(diagonals: Tensor, columns: int) -> Tensor:
    """The inverse of `_skewed`."""
    ways, batch, steps, rows, size = diagonals.shape
    by_rows = F.pad(diagonals.transpose(2, 3).flatten(2, 3), (0, 0, 0, rows))
    return by_rows.view(ways, batch, rows, steps + 1, size)[:, :, :, :columns].transpose(2, 3)
