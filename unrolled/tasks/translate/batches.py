"""Batches of pairs of token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unrolled.data import Batch
from unrolled.models.inputs import padded
from unrolled.tasks.shared.targets import Ids, with_targets
from unrolled.tasks.translate.assets import TranslateAssets


def source_batch(assets: TranslateAssets, sources: Sequence[Ids]) -> Batch:
    """A batch of sources, each with its end token."""
    ids = [np.append(one, assets.source.end) for one in sources]
    return Batch(padded(ids), torch.zeros(len(ids)), lengths=torch.tensor([len(one) for one in ids]))


def pair_batch(assets: TranslateAssets, pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
    """A batch of pairs: sources and targets with their ends, and the inputs of the decoder."""
    batch = source_batch(assets, [source for source, _ in pairs])
    return with_targets(batch, assets.target, [target for _, target in pairs])
