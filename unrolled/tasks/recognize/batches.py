"""Batches of examples: padded features, in training augmented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unrolled.data import Batch, RowBuckets
from unrolled.data.batching.feature_cache import FeatureCache
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.data.batching.seeds import ExampleSeeds
from unrolled.data.batching.tables import FrameSequences
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.transcripts import Frames, Transcribed
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.recognize.config import RecognizeConfig, RecognizeTraining
from unrolled.tasks.recognize.features import InputReader
from unrolled.tasks.recognize.labels import RecognizeAssets
from unrolled.tasks.recognize.predict import AT_ONCE
from unrolled.training.consistency import twice


def feature_store(config: RecognizeConfig, assets: RecognizeAssets, examples: Sequence[Transcribed]) -> FeatureCache:
    """The features of the examples, as many as fit into data.memory; those of a corpus are computed once."""
    reader = assets.reader

    def compute() -> FeatureCache:
        return FeatureCache(
            examples,
            lambda e: reader.base(reader.given(e.input, e.place), e.place),
            int(config.data.memory * 2**30),
            config.data.max_steps,
            medium=lambda e: e.input if isinstance(e.input, Medium) else None,
        )

    return examples.once("features", reader, compute) if isinstance(examples, Corpus) else compute()


class ExampleBatches(RowBuckets):
    """The examples of some numbers of a store. With `training` settings they are shuffled and augmented, by (seed,
    epoch, number of the example) alone."""

    def __init__(
        self,
        reader: InputReader,
        store: FeatureCache,
        numbers: Sequence[int],
        targets: Sequence[Sequence[int]],
        training: RecognizeTraining | None,
    ) -> None:
        self.reader, self.store, self.numbers, self.targets, self.training = reader, store, numbers, targets, training
        self._labels = Ragged.of(targets[number] for number in numbers)
        self._seeds, self._seeds_epoch = ExampleSeeds(0 if training is None else training.seed, 0, len(store)), 0
        super().__init__(
            list(numbers),
            store.lengths[list(numbers)],
            self._gathered if training is None else twice(self._gathered, training.consistency),
            batch_size=1 if training is None else training.batch_size,
            seed=None if training is None else training.seed,
            batch_tokens=AT_ONCE if training is None else None,
        )

    def _gathered(self, rows: Rows) -> Batch:
        """Features side by side, and the labels of each: (B, L) and how many they are."""
        features = [self._features(self.numbers[row]) for row in rows.tolist()]
        batch = FrameSequences(features, features[0].shape[1:]).batch(targets=self._labels.padded(rows))
        if self.reader.scale is not None:
            np.divide(batch.inputs, self.reader.scale, out=batch.inputs)
        return replace(batch, more={"target_lengths": self._labels.lengths[rows]}).to("cpu")

    def _features(self, number: int) -> Frames:
        """The features of an example, not yet divided by the reader's `scale`."""
        base = self.store[number]
        if self.training is None or not self.training.augment:
            return base if self.reader.kind == "line" else self.reader.features(base)
        return self.reader.augmented(base, self.training, self._seeds.generator(number))

    def order(self, epoch: int) -> None:
        """Switch to the batches of this epoch, and to its random numbers."""
        super().order(epoch)
        if self.training is not None and epoch != self._seeds_epoch:
            self._seeds, self._seeds_epoch = ExampleSeeds(self.training.seed, epoch, len(self.store)), epoch


def features_batch(features: Sequence[Frames]) -> Batch:
    """Features (T, …) side by side as tensors, zeros at their ends."""
    return FrameSequences(features, features[0].shape[1:]).batch().to("cpu")
