"""Position codes for Transformers: useful ones, and others for comparison."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from unrolled.errors import UserError
from unrolled.nn.checks import check_choice, check_sizes

POSITIONS = ("sinusoidal", "learned", "count", "fraction", "binary", "none")


def sinusoidal(positions: Tensor, size: int) -> Tensor:
    """Waves of falling frequency: positions (…) → codes (…, size), smooth in i and never larger than one.

        e_{i,2k} = sin(i / 10000^{2k/D}),  e_{i,2k+1} = cos(i / 10000^{2k/D})               0 ≤ k < D/2

    >>> sinusoidal(torch.tensor([0, 1]), 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    even = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device)  # 2k
    angles = positions[..., None] / 10000 ** (even / size)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (…, D or D + 1)
    return waves[..., :size].float()


def count(positions: Tensor, size: int) -> Tensor:
    """1, 2, 3, … in the first component: not normalised, and out of range for longer sequences.

    >>> count(torch.tensor([0, 1]), 3)
    tensor([[1., 0., 0.],
            [2., 0., 0.]])
    """
    return _in_first(positions + 1, size)


def fraction(positions: Tensor, lengths: Tensor, size: int) -> Tensor:
    """1/n, 2/n, …, 1 in the first component: the same step has another code at another length n.

    >>> fraction(torch.tensor([[0, 1]]), torch.tensor([[4]]), 2)
    tensor([[[0.2500, 0.0000],
             [0.5000, 0.0000]]])
    """
    return _in_first((positions + 1) / lengths.clamp(min=1), size)


def binary(positions: Tensor, size: int) -> Tensor:
    """The binary digits of i, lowest first, as −1 and 1: bounded but not continuous, as 3 and 4 show.

    >>> binary(torch.tensor([3, 4]), 4)
    tensor([[ 1.,  1., -1., -1.],
            [-1., -1.,  1., -1.]])
    """
    digits = torch.arange(min(size, 62), device=positions.device)
    code = ((positions[..., None] >> digits) & 1) * 2.0 - 1.0
    return torch.cat([code, code.new_zeros(*code.shape[:-1], size - code.shape[-1])], dim=-1)


def _in_first(values: Tensor, size: int) -> Tensor:
    code = torch.zeros(*values.shape, size, dtype=torch.float32, device=values.device)
    code[..., 0] = values
    return code


class Positions(nn.Module):
    """Adds a code of its position to each step of x.

    sinusoidal   waves (Vaswani et al. 2017); any length
    learned      a vector for each of `max_length` positions
    count, fraction, binary   for comparison; their functions name their weaknesses
    none         no code: the Transformer ignores the order of steps

    >>> positions = Positions("sinusoidal", 4)
    >>> positions(torch.zeros(1, 3, 4)).shape
    torch.Size([1, 3, 4])
    >>> bool((positions(torch.zeros(1, 1, 4), first=2) == positions(torch.zeros(1, 3, 4))[:, 2:]).all())
    True
    """

    def __init__(self, kind: str, size: int, max_length: int = 1024) -> None:
        super().__init__()
        self.kind = check_choice("position code", kind, POSITIONS)
        check_sizes(size=size, max_length=max_length)
        self.size, self.max_length = size, max_length
        if kind == "learned":
            self.weight = nn.Parameter(torch.empty(max_length, size))
            nn.init.normal_(self.weight, std=math.sqrt(0.5))  # the scale of the waves

    def forward(self, x: Tensor, first: int | Tensor = 0, lengths: Tensor | None = None) -> Tensor:
        """x (B, T, D), whose first step is number `first`; `lengths` (B,) are for the code "fraction".

        `first` (B,) is for rows that begin at different numbers; padding is below zero and gets the code of 0.
        """
        if self.kind == "none":
            return x
        if isinstance(first, Tensor):
            numbers = (first[:, None] + torch.arange(x.shape[1], device=x.device)).clamp(min=0)  # (B, T)
            return x + self._code_of(numbers, lengths).to(x.dtype)
        self._check(first, first + x.shape[1])
        positions = torch.arange(first, first + x.shape[1], device=x.device)
        full = positions.new_full((1,), first + x.shape[1]) if lengths is None else lengths
        return x + self._code_of(positions[None], full).to(x.dtype)

    def table(self, length: int, device: torch.device) -> Tensor | None:
        """The codes (length, D) of the first positions, for `step`; None: they are weights, or depend on lengths."""
        if self.kind not in ("sinusoidal", "count", "binary"):
            return None
        return self._code_of(torch.arange(length, device=device), None)

    def step(self, x: Tensor, number: Tensor, table: Tensor | None) -> Tensor:
        """One step x (B, D) of each row, of numbers (B,) from 0 up; with a `table` of codes they are looked up."""
        if table is None:
            coded: Tensor = self(x[:, None], number)[:, 0]
            return coded
        return x + table.index_select(0, number).to(x.dtype)

    def _check(self, first: int, end: int) -> None:
        if self.kind == "learned" and end > self.max_length:
            raise UserError(
                f"A sequence of {end} steps is longer than the {self.max_length} learned positions.",
                f"Use max_length={end} or more when training, or position code 'sinusoidal', which has no end.",
            )
        if self.kind == "fraction" and first > 0:
            raise UserError(
                "The position code 'fraction' needs to know a sequence's length before its first step.",
                "Use 'sinusoidal' to go step by step.",
            )

    def _code_of(self, positions: Tensor, lengths: Tensor | None) -> Tensor:
        """positions (B or 1, T) → codes (B or 1, T, D)."""
        if self.kind == "learned":
            return self.weight[positions]
        if self.kind == "fraction":
            assert lengths is not None
            return fraction(positions, lengths[:, None], self.size)
        return {"sinusoidal": sinusoidal, "count": count, "binary": binary}[self.kind](positions, self.size)

    def extra_repr(self) -> str:
        return f"{self.kind!r}, {self.size}" + (f", max_length={self.max_length}" if self.kind == "learned" else "")
