"""The reference of LSTMs over a plane: a loop over pixels, one direction after the other.

Planes are (B, W, R, D): batch, columns from left to right, rows from top to bottom, features. `real` (B, W) is True
where a column is real; the states of other columns are 0, as those beyond the edges are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CORNERS = ((1, 1), (-1, 1), (1, -1), (-1, -1))
"""Directions of a sweep from a corner: of columns, of rows."""
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))
"""Directions of a sweep from a side: of columns, or of rows."""


def from_corners(
    x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, peephole: Tensor | None, real: Tensor
) -> Tensor:
    """Four LSTMs (B, W, R, 4·H), one from each corner: see `MDLSTM` for the equations.

    weight_ih (4, 5·H, D), weight_hh (4, 2, 5·H, H), bias (4, 5·H), peephole (4, 4, H).
    """
    _, columns, rows, _ = x.shape
    outputs = []
    for number, (right, down) in enumerate(CORNERS):
        zeros = x.new_zeros(len(x), weight_hh.shape[-1])  # (B, H), beyond the edges
        h: dict[tuple[int, int], Tensor] = {}
        c: dict[tuple[int, int], Tensor] = {}
        for w in range(columns)[::right]:
            for r in range(rows)[::down]:
                beside, above = (w - right, r), (w, r - down)
                before = c.get(beside, zeros), c.get(above, zeros)
                gates = F.linear(x[:, w, r], weight_ih[number], bias[number])
                gates = gates + F.linear(h.get(beside, zeros), weight_hh[number, 0])
                gates = gates + F.linear(h.get(above, zeros), weight_hh[number, 1])
                i, f_w, f_r, g, o = gates.chunk(5, dim=-1)
                p = zeros.new_zeros(4, 1) if peephole is None else peephole[number]
                i = torch.sigmoid(i + p[0] * (before[0] + before[1]))
                f_w = torch.sigmoid(f_w + p[1] * before[0])
                f_r = torch.sigmoid(f_r + p[2] * before[1])
                state = f_w * before[0] + f_r * before[1] + i * torch.tanh(g)
                o = torch.sigmoid(o + p[3] * state)
                c[w, r] = state * real[:, w, None]
                h[w, r] = o * torch.tanh(state) * real[:, w, None]
        outputs.append(torch.stack([torch.stack([h[w, r] for r in range(rows)], 1) for w in range(columns)], 1))
    return torch.cat(outputs, dim=-1)


def from_sides(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, real: Tensor) -> Tensor:
    """Four convolutional LSTMs (B, W, R, 4·H), one from each side: see `MDLSTM` for the equations.

    weight_ih (4, k, 4·H, D), weight_hh (4, k, 4·H, H), bias (4, 4·H); k pixels across the direction, the middle one
    first reached.
    """
    _, columns, rows, _ = x.shape
    x = x * real[:, :, None, None]
    reach = weight_ih.shape[1] // 2
    outputs = []
    for number, (right, down) in enumerate(SIDES):
        zeros = x.new_zeros(len(x), weight_hh.shape[-1])
        h: dict[tuple[int, int], Tensor] = {}
        c: dict[tuple[int, int], Tensor] = {}
        across = (0, 1) if right else (1, 0)
        order = [(w, r) for w in range(columns)[:: right or 1] for r in range(rows)]
        if down:
            order = [(w, r) for r in range(rows)[::down] for w in range(columns)]
        for w, r in order:
            gates = bias[number]
            for tap in range(-reach, reach + 1):
                w_tap, r_tap = w + tap * across[0], r + tap * across[1]
                if 0 <= w_tap < columns and 0 <= r_tap < rows:
                    gates = gates + F.linear(x[:, w_tap, r_tap], weight_ih[number, tap + reach])
                behind = h.get((w_tap - right, r_tap - down), zeros)
                gates = gates + F.linear(behind, weight_hh[number, tap + reach])
            i, f, g, o = gates.chunk(4, dim=-1)
            state = torch.sigmoid(f) * c.get((w - right, r - down), zeros) + torch.sigmoid(i) * torch.tanh(g)
            c[w, r] = state * real[:, w, None]
            h[w, r] = torch.sigmoid(o) * torch.tanh(state) * real[:, w, None]
        outputs.append(torch.stack([torch.stack([h[w, r] for r in range(rows)], 1) for w in range(columns)], 1))
    return torch.cat(outputs, dim=-1)
