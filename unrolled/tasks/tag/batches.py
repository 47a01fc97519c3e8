"""Batches of sentences or frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unrolled.data import RowBuckets
from unrolled.data.batching.buckets import in_tensors
from unrolled.data.readers.tagged.frames import Tagged
from unrolled.tasks.tag.assets import TagAssets

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.training import TrainSettings

AT_ONCE = 64  # sequences in a batch when there are no gradients


def unlabelled(model: Model, examples: Sequence[Tagged]) -> RowBuckets:
    """Sequences to tag, as NumPy's arrays."""
    table, lengths = model.assets.table(examples), [len(one) for one in examples]
    return RowBuckets(examples, lengths, table, batch_size=model.together(AT_ONCE))


def tag_batches(assets: TagAssets, examples: Sequence[Tagged], training: TrainSettings | None = None) -> RowBuckets:
    """Sequences of similar lengths as tensors; shuffled in training."""
    lengths = [len(one) for one in examples]
    size, seed = (AT_ONCE, None) if training is None else (training.batch_size, training.seed)
    return RowBuckets(examples, lengths, in_tensors(assets.table(examples)), batch_size=size, seed=seed)
