"""Batches of sentences or frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unrolled.data import Buckets
from unrolled.data.readers.tagged.frames import Tagged
from unrolled.tasks.tag.assets import TagAssets

if TYPE_CHECKING:
    from unrolled.training import TrainSettings

AT_ONCE = 64  # sequences in a batch when there are no gradients


def unlabelled(assets: TagAssets, examples: Sequence[Tagged]) -> Buckets:
    """Sequences to tag, as NumPy's arrays."""
    return Buckets(examples, [len(one) for one in examples], assets.arrays, batch_size=AT_ONCE)


def tag_batches(assets: TagAssets, examples: Sequence[Tagged], training: TrainSettings | None = None) -> Buckets:
    """Sequences of similar lengths; shuffled in training."""
    lengths = [len(one) for one in examples]
    size, seed = (AT_ONCE, None) if training is None else (training.batch_size, training.seed)
    return Buckets(examples, lengths, assets.collate, batch_size=size, seed=seed)
