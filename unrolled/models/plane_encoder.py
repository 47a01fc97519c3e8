"""Multi-dimensional LSTM layers over the maps of a line: a vector for each column."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from unrolled.cells.apart import total
from unrolled.nn.plane import MDLSTM


class PlaneEncoder(nn.Module):
    """MDLSTM layers over (B, T, maps · rows) → (B, T, 4·H): the four directions, summed over the rows of a column."""

    def __init__(
        self,
        maps: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        *,
        form: Literal["diagonal", "parallel"] = "diagonal",
        peephole: bool = False,
    ) -> None:
        super().__init__()
        self.maps = maps
        sizes = [maps, *[4 * hidden_size] * (num_layers - 1)]
        self.layers = nn.ModuleList(MDLSTM(size, hidden_size, form=form, peephole=peephole) for size in sizes)
        self.dropout = nn.Dropout(dropout)
        self.output_size = 4 * hidden_size

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        plane = x.view(*x.shape[:2], self.maps, -1).transpose(2, 3)  # (B, T, R, M)
        for number, layer in enumerate(self.layers):
            plane = layer(self.dropout(plane) if number else plane, lengths)
        return total(plane, 2)
