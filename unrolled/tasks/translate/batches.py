"""Batches of pairs of token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unrolled.data import Batch
from unrolled.data.batching.arrays import id_arrays
from unrolled.tasks.shared.side import Ids
from unrolled.tasks.translate.assets import TranslateAssets


def source_batch(assets: TranslateAssets, sources: Sequence[Ids]) -> Batch:
    """A batch of sources, each with its end token, as tensors."""
    return source_arrays(assets, sources).to("cpu")


def source_arrays(assets: TranslateAssets, sources: Sequence[Ids]) -> Batch:
    """The same as NumPy's arrays."""
    return id_arrays([np.append(one, assets.source.end) for one in sources])


def pair_batch(assets: TranslateAssets, pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
    """A batch of pairs: sources and targets with their ends, and the inputs of the decoder."""
    from unrolled.tasks.shared.targets import with_targets

    batch = source_batch(assets, [source for source, _ in pairs])
    return with_targets(batch, assets.target, [target for _, target in pairs])
