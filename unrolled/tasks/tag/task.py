"""`tag`: a tag for every word of a sentence, or for every frame of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, RowBuckets, held_out
from unrolled.data.batching.shapes import Padding
from unrolled.data.demo.python_source import EMBEDDED_SOURCE, embedded_sentences
from unrolled.data.readers.tagged.frames import Tagged, TaggedFrames
from unrolled.errors import UserError
from unrolled.metrics.spans import scheme_of
from unrolled.model import Model
from unrolled.models.inputs import FrameInput, WordInput
from unrolled.models.tagger import Forbidden, Tagger
from unrolled.tasks.contract import Data, Description, Task, Training
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.shared.reader import Reader, load_vectors
from unrolled.tasks.tag.assets import TagAssets, check_kind, columns_of, frame_shape, inner_tags, outer_tags, values_of
from unrolled.tasks.tag.batches import tag_batches
from unrolled.tasks.tag.config import TagConfig, check_columns
from unrolled.tasks.tag.describe import TagDescription
from unrolled.tasks.tag.options import FILE_KEYS, OPTIONS
from unrolled.tasks.tag.predict import paths_of, predict
from unrolled.tasks.tag.run import TagRunner
from unrolled.tasks.tag.scores import evaluate_file, not_empty, score_tags
from unrolled.tasks.tag.trace import TagTracer
from unrolled.tasks.tracer import Tracer
from unrolled.text.vectors import Vectors
from unrolled.text.vocabulary import UNK, Vocabulary
from unrolled.text.words import Words
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits, cross_entropy, hash_of

FOLLOWED = ("span_f1", "accuracy", "macro_f1", "overlap_f1", "unknown_word_accuracy", "tokens")  # shown in training


class Tag(Task):
    """Parts of speech, chunks, names, or any other label for each word; phones, gestures, events for each frame."""

    name: ClassVar[str] = "tag"
    config_class: ClassVar[type[Section]] = TagConfig
    options: ClassVar[TaskOptions] = OPTIONS
    assets_class: ClassVar[Any] = TagAssets
    runner: ClassVar[type[Runner]] = TagRunner
    tracer: ClassVar[type[Tracer]] = TagTracer
    description: ClassVar[Description] = TagDescription()
    inherited: ClassVar[tuple[str, ...]] = ("column", "lowercase", "feature_columns")
    file_keys: ClassVar[tuple[str, ...]] = FILE_KEYS

    def traits(self, config: TagConfig, assets: TagAssets) -> Traits:
        return Traits(
            Goal("accuracy" if assets.scheme is None else "span_f1", higher_is_better=True),
            padding=Padding(timed=("targets", "spelt", "features"), words=True),
        )

    def read(self, config: TagConfig) -> Data:
        settings = config.data
        train: Sequence[Tagged]
        valid: Sequence[Tagged] = []
        if settings.train is None:
            train, valid = embedded_sentences()
        else:
            train = not_empty(settings, settings.train)
        if settings.valid is not None:
            valid = not_empty(settings, settings.valid, columns_of(train))
        if not valid:
            kept, held = held_out([one.key for one in train], settings.valid_fraction)
            if not held:
                what = "sequence" if isinstance(train[0], TaggedFrames) else "sentence"
                raise UserError(f"{settings.train} holds one {what}.", "Give more, or a file with data.valid.")
            train, valid = [train[i] for i in kept], [train[i] for i in held]
        parts = (one.content for one in (*train, *valid))
        return Data(train, valid, settings.train or EMBEDDED_SOURCE, hash_of(b"%d" % len(train), *parts))

    def make_assets(self, config: TagConfig, data: Data, init: TagAssets | None = None) -> TagAssets:
        settings, examples = config.data, data.train
        frames = frame_shape(examples)
        columns = 0 if frames else len(settings.features)
        check_kind(data.valid, frames)
        check_columns(settings, inherited=init is not None)
        if init is not None:
            return init.extended(examples, columns)
        scheme = scheme_of(one.tags for one in examples)
        bioes = config.model.bioes and scheme in ("IOB1", "IOB2") and config.model.output != "softmax"
        tags = outer_tags(examples, spans=bioes)
        if len(tags) < 2:
            fix = "Give another column: data.column for CoNLL-U, data.tag_column for other files."
            raise UserError(
                f"Every {'frame' if frames else 'word'} of {data.source} has the tag {tags[0]!r}: there is nothing to "
                "learn.",
                "Give sequences with two tags or more." if frames else fix,
            )
        inner = Vocabulary(inner_tags(examples)) if bioes else None
        if frames:
            named = columns_of(examples)
            return TagAssets(None, (), Vocabulary(tags), scheme, inner, frames=frames, frame_columns=named)
        words = Words.train((s.words for s in examples), min_count=settings.min_count, lowercase=settings.lowercase)
        features = tuple(Vocabulary(values_of(examples, i), [UNK]) for i in range(columns))
        assets = TagAssets(words, features, Vocabulary(tags), scheme, inner)
        if settings.vectors is None:
            return assets
        vectors, first = Vectors.read(settings.vectors), len(words.vocabulary)
        known = [word for word in vectors.words if not settings.lowercase or word == word.lower()]
        words = Words(words.vocabulary.extended(known), words.letters, lowercase=settings.lowercase)
        return replace(assets, words=words, vector_size=vectors.size, untrained=(first, len(words.vocabulary)))

    def build(self, config: TagConfig, assets: TagAssets) -> nn.Module:
        settings = config.model
        forbidden = assets.forbidden() if settings.legal else None
        return Tagger(
            settings,
            Reader(assets.words, frames=assets.frames, vector_size=assets.vector_size).build(settings),
            features=[len(values) for values in assets.features],
            tags=len(assets.learnt),
            crf=settings.output == "crf" or (settings.output == "auto" and assets.scheme is not None),
            forbidden=None if forbidden is None else _tensors(*forbidden),
        )

    def facts(self, config: TagConfig, assets: TagAssets) -> dict[str, Any]:
        tags = "no spans" if assets.scheme is None else f"spans in {assets.scheme}"
        output = config.model.output
        output = output if output != "auto" else "crf" if assets.scheme else "softmax"
        return {"inputs": "frames" if assets.frames else "text", "tags": tags, "model.output": output}

    def initialize(self, network: nn.Module, config: TagConfig, assets: TagAssets, data: Data) -> None:
        assert isinstance(network, Tagger)
        if isinstance(network.input, FrameInput):
            network.input.fit_to([one.frames for one in data.train])
        elif config.data.vectors is not None:
            assert isinstance(network.input, WordInput)
            assert assets.words is not None
            load_vectors(network.input, assets.words, config.data.vectors)

    def batches(
        self, config: TagConfig, assets: TagAssets, examples: Sequence[Tagged], *, training: bool
    ) -> RowBuckets:
        return tag_batches(assets, examples, config.train if training else None, config.model.letter_hidden > 0)

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        assert isinstance(network, Tagger)
        assert batch.lengths is not None
        scores = network(batch)
        if network.crf is None:
            return cross_entropy(scores, batch)
        return Loss(-network.crf(scores, batch.targets, batch.lengths).sum(), batch.lengths.sum())

    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        assert isinstance(batches, RowBuckets)
        examples: Sequence[Any] = batches.examples
        scores, _ = score_tags(model, examples, paths_of(model, batches))
        return Evaluation({name: scores[name] for name in FOLLOWED if name in scores})

    def evaluate_file(self, model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
        return evaluate_file(model, path)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """[(word, tag), …] for a text; for a list of texts, or of lists of words, a list of those.

        With `probabilities` it is [(word, tag, probability), …]. A model with feature columns needs them too:
        {"tokens": ["He", "ran"], "pos": ["PRP", "VBD"]}. For an array of frames (T, …), a `FrameTags`.
        """
        return predict(model, inputs, **options)


def _tensors(*masks: NDArray[np.bool_]) -> Forbidden:
    transitions, first, last = (torch.from_numpy(mask) for mask in masks)
    return transitions, first, last
