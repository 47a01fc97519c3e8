"""Multi-dimensional LSTM: a recurrence over pictures, in four directions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from unrolled.errors import UserError, unknown_name
from unrolled.kernels.lengths import check_lengths, real_steps
from unrolled.kernels.plane import reference, sweeps

FORMS = ("diagonal", "parallel")
ENGINES = {"sweeps": sweeps, "reference": reference}


class MDLSTM(nn.Module):
    """An LSTM over planes: (B, W, R, D) → (B, W, R, 4·H), H units for each of four directions.

    With form="diagonal" (Graves & Schmidhuber 2009) a sweep starts in each corner. A pixel has two pixels before it,
    in its row (w) and in its column (r), and a forget gate for each:

        i = σ(W_i x + U_i h_w + V_i h_r + p_i∘(c_w + c_r) + b_i)      p: peepholes, if any
        f_w = σ(W_w x + U_w h_w + V_w h_r + p_w∘c_w + b_w)
        f_r = σ(W_r x + U_r h_w + V_r h_r + p_r∘c_r + b_r)
        g = tanh(W_g x + U_g h_w + V_g h_r + b_g)
        c = f_w∘c_w + f_r∘c_r + i∘g
        o = σ(W_o x + U_o h_w + V_o h_r + p_o∘c + b_o)
        h = o∘tanh(c)

    The rows of W, U, V and b are in the order i, f_w, f_r, g, o; `weight_hh` holds U, then V.

    With form="parallel" (PyraMiD-LSTM, Stollenga et al. 2015) a sweep starts at each side. All pixels of a column, or
    of a row, are computed at once: they read `kernel_size` pixels of the input and of the column or row before (∗ is a
    convolution across the direction), and the c of the one behind:

        i, f, o = σ(W ∗ x + U ∗ h + b)      g = tanh(W_g ∗ x + U_g ∗ h + b_g)
        c = f∘c_behind + i∘g      h = o∘tanh(c)

    `lengths` are the real columns of each plane; the rest changes no result and gives zeros.

    >>> layer = MDLSTM(1, 8)
    >>> layer(torch.zeros(2, 20, 12, 1), lengths=[20, 13]).shape
    torch.Size([2, 20, 12, 32])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        form: Literal["diagonal", "parallel"] = "diagonal",
        peephole: bool = False,
        kernel_size: int = 3,
        engine: str = "sweeps",
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.output_size = input_size, hidden_size, 4 * hidden_size
        self.form, self.peephole, self.kernel_size, self.engine = form, peephole, kernel_size, engine
        self._check()
        if form == "diagonal":
            gates, shape = 5 * hidden_size, (2,)
            self.weight_ih = nn.Parameter(torch.empty(4, gates, input_size))
        else:
            gates, shape = 4 * hidden_size, (kernel_size,)
            self.weight_ih = nn.Parameter(torch.empty(4, kernel_size, gates, input_size))
        self.weight_hh = nn.Parameter(torch.empty(4, *shape, gates, hidden_size))
        self.bias = nn.Parameter(torch.empty(4, gates))
        self.weight_peephole = nn.Parameter(torch.empty(4, 4, hidden_size)) if peephole else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size))

    def _check(self) -> None:
        for name in ("input_size", "hidden_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} is not above 0.", "Use 1 or more.")
        if self.form not in FORMS:
            raise unknown_name("form", self.form, FORMS)
        if self.engine not in ENGINES:
            raise unknown_name("engine", self.engine, ENGINES)
        if self.form == "parallel" and self.peephole:
            raise UserError("peephole=True is for form='diagonal'.", "The parallel form has no peepholes.")
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise UserError(f"kernel_size={self.kernel_size} is not odd.", "Use 1, 3, 5 or more: it has a middle.")

    def forward(self, x: Tensor, lengths: Tensor | Iterable[int] | None = None) -> Tensor:
        """The four directions of each pixel, side by side."""
        if x.dim() != 4 or x.shape[-1] != self.input_size:
            raise UserError(
                f"The input has shape {tuple(x.shape)}.",
                f"Expected (batch, columns, rows, {self.input_size}): four dimensions, features last.",
            )
        batch, columns = x.shape[:2]
        if lengths is None:
            lengths = torch.full((batch,), columns)
        real = real_steps(check_lengths(lengths, batch, columns, x.device), columns)
        x = torch.where(real[:, :, None, None], x, 0)  # a NaN in the padding must not reach the weights' gradients
        engine, weights = ENGINES[self.engine], (self.weight_ih, self.weight_hh, self.bias)
        output: Tensor
        if self.form == "parallel":
            output = engine.from_sides(x, *weights, real)
        else:
            output = engine.from_corners(x, *weights, self.weight_peephole, real)
        return output

    def extra_repr(self) -> str:
        changed = [f"form={self.form!r}"] if self.form != "diagonal" else []
        changed += ["peephole=True"] if self.peephole else []
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])
