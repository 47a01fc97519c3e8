"""Batches of sentences or frames."""

from __future__ import annotations

from collections.abc import Sequence

from unrolled.data import RowBuckets
from unrolled.data.readers.tagged.frames import Tagged
from unrolled.tasks.tag.assets import TagAssets
from unrolled.training import TrainSettings

AT_ONCE = 64  # sequences in a batch when there are no gradients


def tag_batches(assets: TagAssets, examples: Sequence[Tagged], training: TrainSettings | None = None) -> RowBuckets:
    """Sequences of similar lengths; shuffled in training."""
    lengths = [len(one) for one in examples]
    size, seed = (AT_ONCE, None) if training is None else (training.batch_size, training.seed)
    return RowBuckets(examples, lengths, assets.table(examples), batch_size=size, seed=seed)
