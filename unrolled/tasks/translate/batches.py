"""Pairs of token ids side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unrolled.data import Batch
from unrolled.models.inputs import padded
from unrolled.tasks.shared.writing import Ids, with_targets
from unrolled.tasks.translate.assets import TranslateAssets


def source_batch(assets: TranslateAssets, sources: Sequence[Ids]) -> Batch:
    """Sources side by side, each with its end token."""
    ids = [np.append(one, assets.source.end) for one in sources]
    return Batch(padded(ids), torch.zeros(len(ids)), lengths=torch.tensor([len(one) for one in ids]))


def pair_batch(assets: TranslateAssets, pairs: Sequence[tuple[Ids, Ids]], smoothing: float = 0.0) -> Batch:
    """Pairs side by side: sources with their end; targets with their end, and what is read before each token."""
    batch = source_batch(assets, [source for source, _ in pairs])
    return with_targets(batch, assets.target, [target for _, target in pairs], smoothing)
