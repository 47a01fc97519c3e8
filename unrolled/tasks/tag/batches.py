"""Batches of sentences."""

from __future__ import annotations

from collections.abc import Sequence

from unrolled.data import Buckets
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.tasks.tag.assets import TagAssets
from unrolled.training import TrainSettings

AT_ONCE = 64  # sentences in a batch when there are no gradients


def tag_batches(assets: TagAssets, sentences: Sequence[Sentence], training: TrainSettings | None = None) -> Buckets:
    """Sentences of similar lengths; shuffled in training."""
    lengths = [len(sentence) for sentence in sentences]
    size, seed = (AT_ONCE, None) if training is None else (training.batch_size, training.seed)
    return Buckets(sentences, lengths, assets.collate, batch_size=size, seed=seed)
