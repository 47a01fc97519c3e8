"""Batches of examples: features side by side, in training each changed by its own chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from unrolled.data import Batch, Buckets
from unrolled.data.batching.feature_cache import FeatureCache
from unrolled.models.inputs import padded
from unrolled.tasks.recognize.config import RecognizeTraining
from unrolled.tasks.recognize.features import InputReader
from unrolled.training.consistency import twice

AT_ONCE = 24_000  # steps in a batch when there are no gradients


class ExampleBatches(Buckets):
    """The examples of some numbers of a store. With `training` settings they are shuffled, and changed where these say
    so, by (seed, epoch, number of the example) alone."""

    def __init__(
        self,
        reader: InputReader,
        store: FeatureCache,
        numbers: Sequence[int],
        targets: Sequence[Sequence[int]],
        training: RecognizeTraining | None,
    ) -> None:
        self.reader, self.store, self.numbers, self.targets, self.training = reader, store, numbers, targets, training
        super().__init__(
            list(numbers),
            store.lengths[list(numbers)],
            self._collated if training is None else twice(self._collated, training.consistency),
            batch_size=1 if training is None else training.batch_size,
            seed=None if training is None else training.seed,
            batch_tokens=AT_ONCE if training is None else None,
        )

    def _collated(self, part: list[int]) -> Batch:
        return features_batch([self._features(number) for number in part], [self.targets[number] for number in part])

    def _features(self, number: int) -> NDArray[np.float32]:
        base = self.store[number]
        if self.training is None or not self.training.augment:
            return self.reader.features(base)
        random = np.random.default_rng((self.training.seed, self._epoch, number))
        return self.reader.augmented(base, self.training, random)


def features_batch(features: Sequence[NDArray[np.float32]], targets: Sequence[Sequence[int]] = ()) -> Batch:
    """Features (T, …) side by side, zeros at their ends, and the labels of each: (B, L) and how many they are."""
    lengths = torch.tensor([len(one) for one in features])
    table = np.zeros((len(features), max(1, int(lengths.max())), *features[0].shape[1:]), dtype=np.float32)
    for row, one in enumerate(features):
        table[row, : len(one)] = one
    labels = padded([np.array(one, dtype=np.int32) for one in targets] or [np.zeros(0, dtype=np.int32)])
    counts = torch.tensor([len(one) for one in targets])
    return Batch(torch.from_numpy(table), labels, lengths=lengths, more={"target_lengths": counts})
