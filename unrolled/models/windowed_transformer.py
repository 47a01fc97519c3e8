"""A Transformer's encoder for long series: attention reaches over a window, and a series can be cut anywhere.

The steps are in blocks of context / 2. A causal encoder reads each block together with the one before it, so that a
step sees at least context / 2 earlier steps where the series has them, and less than `context`. An encoder of both
directions reads a block with the steps on both sides, `context` in all. Positions count from the beginning of the
window. A window depends on the place in the series alone: reading row by row, in pieces or as a whole gives the same
numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unrolled.kernels.lengths import real_steps
from unrolled.models.encoder_layers import EncoderLayerSettings, TransformerLayers
from unrolled.models.recurrent_settings import State


class _Windows(NamedTuple):
    """The windows of a batch: their vectors, which of them are real, and the place of each wanted step in them."""

    vectors: Tensor  # (B, K, C, D)
    mask: Tensor | None  # (B, K, C); None: a causal encoder needs none
    starts: Tensor  # (B, K), the first step of each window
    places: Tensor  # (B, T), the index of a step's output among all K · C

    def chosen(self, outputs: Tensor) -> Tensor:
        """The outputs of the wanted steps (B, T, H) among those of all windows, (B · K, C, H)."""
        return rows_of(outputs.reshape(self.places.shape[0], -1, outputs.shape[-1]), self.places)


class WindowedTransformer(TransformerLayers):
    """Vectors (B, T, D) → (B, T, H). The state has the last `context` vectors and the number of steps so far."""

    def __init__(self, settings: EncoderLayerSettings, input_size: int, context: int) -> None:
        self.block = context // 2
        self.context = 2 * self.block
        super().__init__(settings, input_size, longest=self.context)

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        lengths: Tensor | None = None,
        resets: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """The output, and the state after the last step; both directions need whole series and have no state."""
        ends = _ends(x, lengths)
        if not self.causal:
            windows = self._around(x, ends)
            return self._cleared(self._encoded(windows), lengths), ()
        before, count = self._entered(x, state, resets)
        seen = torch.cat([before, x], dim=1)  # (B, C + T, D)
        output = self._encoded(self._behind(seen, count, x.shape[1]))
        last = ends[:, None] + torch.arange(self.context, device=x.device)
        return self._cleared(output, lengths), (rows_of(seen, last), count + ends)

    def visible(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`forward` on whole series without the fused attention, and the weights of all blocks, (B, L, N, T, T)."""
        ends, steps = _ends(x, lengths), x.shape[1]
        if self.causal:
            before, count = self._entered(x, None, None)
            windows = self._behind(torch.cat([before, x], dim=1), count, steps)
        else:
            windows = self._around(x, ends)
        mask = None if windows.mask is None else windows.mask.flatten(0, 1)
        outputs, weights = self.encoder.visible(self._placed(windows.vectors.flatten(0, 1)), mask)
        stacked = torch.stack(weights, dim=1)
        inside = stacked.view(*windows.starts.shape, *stacked.shape[1:])  # (B, K, L, N, C, C)
        whole = x.new_zeros(len(x), *inside.shape[2:4], steps, steps)
        for row, starts in enumerate(windows.starts.tolist()):
            for block, start in enumerate(starts):
                begin, stop = block * self.block, min(start + self.context, steps)
                end = min(begin + self.block, steps)
                part = inside[row, block, :, :, begin - start : end - start, : stop - start]
                whole[row, :, :, begin:end, start:stop] = part
        return self._cleared(windows.chosen(outputs), lengths), whole

    def _encoded(self, windows: _Windows) -> Tensor:
        mask = None if windows.mask is None else windows.mask.flatten(0, 1)
        return windows.chosen(self.encoder(self._placed(windows.vectors.flatten(0, 1)), mask))

    def _entered(self, x: Tensor, state: State | None, resets: Tensor | None) -> State:
        """The last vectors (B, C, D) and the number of steps (B,) before x."""
        if state is None:
            none = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
            return x.new_zeros(x.shape[0], self.context, x.shape[-1]), none
        before, count = state
        return before, count if resets is None else torch.where(resets, 0, count)

    def _behind(self, seen: Tensor, count: Tensor, steps: int) -> _Windows:
        """The windows of the last `steps` of seen (B, C + T, D), which come after `count` others: block and past."""
        wanted = count[:, None] + torch.arange(steps, device=seen.device)  # (B, T)
        block = wanted // self.block
        first, number = block[:, :1], (steps + self.block - 2) // self.block + 1  # the most blocks that steps touch
        if not torch.compiler._is_exporting_flag:
            number = int((block[:, -1] - block[:, 0]).max()) + 1
        starts = (first + torch.arange(number, device=seen.device) - 1).clamp(min=0) * self.block  # (B, K)
        inside = torch.arange(self.context, device=seen.device)
        columns = (starts[..., None] + inside - count[:, None, None] + self.context).clamp(max=seen.shape[1] - 1)
        vectors = rows_of(seen, columns.flatten(1)).view(*columns.shape, -1)
        at = block - first  # (B, T)
        return _Windows(vectors, None, starts, at * self.context + wanted - starts.gather(1, at))

    def _around(self, x: Tensor, ends: Tensor) -> _Windows:
        """The windows of whole series x (B, T, D): each block with the steps on both sides."""
        steps = torch.arange(x.shape[1], device=x.device)
        number = -(-x.shape[1] // self.block)
        begin = torch.arange(number, device=x.device) * self.block - self.block // 2
        latest = (ends - self.context).clamp(min=0)[:, None]  # (B, 1)
        starts = torch.minimum(begin.clamp(min=0)[None], latest)  # (B, K)
        columns = starts[..., None] + torch.arange(self.context, device=x.device)  # (B, K, C)
        vectors = rows_of(x, columns.flatten(1).clamp(max=x.shape[1] - 1)).view(*columns.shape, -1)
        at = (steps // self.block).expand(x.shape[0], -1)
        places = at * self.context + (steps - starts.gather(1, at)).clamp(max=self.context - 1)
        return _Windows(vectors, columns < ends[:, None, None], starts, places)

    def _cleared(self, output: Tensor, lengths: Tensor | None) -> Tensor:
        """Zero in the padding."""
        if lengths is None:
            return output
        return torch.where(real_steps(lengths, output.shape[1])[..., None], output, 0.0)


def rows_of(x: Tensor, places: Tensor) -> Tensor:
    """The rows of x (B, S, D) at places (B, T)."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


def _ends(x: Tensor, lengths: Tensor | None) -> Tensor:
    return torch.full((x.shape[0],), x.shape[1], device=x.device) if lengths is None else lengths
