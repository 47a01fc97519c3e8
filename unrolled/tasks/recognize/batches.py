"""Batches of examples: padded features, in training augmented."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch, RowBuckets
from unrolled.data.batching.buckets import in_tensors
from unrolled.data.batching.feature_cache import FeatureCache
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.data.batching.seeds import ExampleSeeds
from unrolled.data.batching.tables import FrameSequences
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.transcripts import Frames, Transcribed
from unrolled.kernels.lines.changes import changed_lines
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
            in_tensors(self._gathered if training is None else twice(self._gathered, training.consistency)),
            batch_size=1 if training is None else training.batch_size,
            seed=None if training is None else training.seed,
            batch_tokens=AT_ONCE if training is None else None,
        )

    def _gathered(self, rows: Rows) -> Batch:
        """Features side by side, and the labels of each: (B, L) and how many they are."""
        inputs, lengths = self._inputs([self.numbers[row] for row in rows.tolist()])
        more = {"target_lengths": self._labels.lengths[rows]}
        return Batch(inputs, self._labels.padded(rows), lengths=lengths, more=more)

    def _inputs(self, numbers: list[int]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The features of examples, (B, T, …), and their lengths."""
        reader, scale = self.reader, self.reader.scale
        bases = [self.store[number] for number in numbers]
        changes = self.training if self.training is not None and self.training.augment else None
        if changes is not None and scale is not None:  # lines
            return changed_lines(bases, changes.line, self._seeds, numbers, scale)
        if changes is not None:
            bases = [
                reader.augmented(base, changes, self._seeds.generator(number))
                for base, number in zip(bases, numbers, strict=True)
            ]
        elif scale is None:
            bases = [reader.features(base) for base in bases]
        batch = FrameSequences(bases, bases[0].shape[1:]).batch()
        if scale is not None:
            np.divide(batch.inputs, scale, out=batch.inputs)
        return batch.inputs, batch.lengths

    def order(self, epoch: int) -> None:
        """Switch to the batches of this epoch, and to its random numbers."""
        super().order(epoch)
        if self.training is not None and epoch != self._seeds_epoch:
            self._seeds, self._seeds_epoch = ExampleSeeds(self.training.seed, epoch, len(self.store)), epoch


def features_batch(features: Sequence[Frames]) -> Batch:
    """Features (T, …) side by side as tensors, zeros at their ends."""
    return FrameSequences(features, features[0].shape[1:]).batch().to("cpu")
