"""The wide path of a classifier: a linear model of hashed n-grams, fitted before the network is trained."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.data import Batch

UNSEEN = 0  # the row of n-grams that the fit did not see: zeros


class WidePath(nn.Module):
    """y = Σ_j x_j W_j + b over the n-grams j of a text, of those that the fit has seen.

    `places` has the row of W for every bucket. W stays as it was fitted.
    """

    places: Tensor

    def __init__(self, buckets: int, rows: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("places", torch.zeros(buckets, dtype=torch.int32))
        self.weight = nn.Parameter(torch.zeros(rows + 1, outputs), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(outputs), requires_grad=False)

    def forward(self, batch: Batch) -> Tensor:
        """Scores (B, C): those that came with the batch, or those of its n-grams."""
        if "wide" in batch.more:
            known: Tensor = batch.more["wide"]
            return known
        ids, starts = batch.more["wide_ngrams"], batch.more["wide_starts"]
        rows = self.places.index_select(0, ids).long()
        sums = F.embedding_bag(rows, self.weight, starts, mode="sum", per_sample_weights=batch.more["wide_weights"])
        return sums + self.bias

    @property
    def is_silent(self) -> bool:
        """True if n-grams change nothing: the fit found nothing in them that helps on the validation part."""
        return not bool(self.weight.any())


class LinearClassifier(nn.Module):
    """The wide path alone, model.kind=linear."""

    def __init__(self, wide: WidePath) -> None:
        super().__init__()
        self.wide = wide
        wide.bias.requires_grad_()  # an optimiser wants a weight, though none is updated

    def forward(self, batch: Batch) -> Tensor:
        scores: Tensor = self.wide(batch)
        return scores
