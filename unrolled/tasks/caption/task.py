"""`caption`: a picture in, words out, with a look at the regions of the picture for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, RowBuckets, held_out
from unrolled.data.batching.buckets import in_tensors
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.data.batching.shapes import Padding
from unrolled.data.demo.glyphs import GLYPHS, embedded_glyphs
from unrolled.data.readers.media.captions import Captioned, shape_for
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.captioner import captioner, resolved_attention
from unrolled.models.picture_encoder import MakeEncoder
from unrolled.nn.vision import shifted
from unrolled.tasks.caption.assets import CaptionAssets, view_arrays
from unrolled.tasks.caption.batches import PictureCaption, caption_loss, fitted, view_batch
from unrolled.tasks.caption.config import CaptionConfig
from unrolled.tasks.caption.describe import CaptionDescription
from unrolled.tasks.caption.exposure import AT_ONCE, exposure
from unrolled.tasks.caption.options import FILE_KEYS, OPTIONS
from unrolled.tasks.caption.predict import predict
from unrolled.tasks.caption.run import CaptionRunner
from unrolled.tasks.caption.scores import evaluate_file, read_examples
from unrolled.tasks.caption.trace import CaptionTracer
from unrolled.tasks.contract import Data, Description, Task, Training, mean_loss
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.shared.levels import caption_level
from unrolled.tasks.shared.side import Reading, trained_side, with_targets
from unrolled.tasks.shared.targets import with_guesses
from unrolled.tasks.tracer import Tracer
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits, hash_of
from unrolled.training.consistency import twice

WORDS_FOR_BLEU = 6  # in a caption, the mean: BLEU of fewer than four is 0 whatever they are
ENOUGH = 2000  # pictures to know how their numbers are spread


class Caption(Task):
    """Captions of pictures; `encoder` makes a network of your own that reads them, for pictures of a shape."""

    name: ClassVar[str] = "caption"
    config_class: ClassVar[type[Section]] = CaptionConfig
    options: ClassVar[TaskOptions] = OPTIONS
    assets_class: ClassVar[Any] = CaptionAssets
    runner: ClassVar[type[Runner]] = CaptionRunner
    tracer: ClassVar[type[Tracer]] = CaptionTracer
    description: ClassVar[Description] = CaptionDescription()
    inherited: ClassVar[tuple[str, ...]] = ("level", "lowercase", "size")
    file_keys: ClassVar[tuple[str, ...]] = FILE_KEYS
    parallel: ClassVar[bool] = True

    def __init__(self, encoder: MakeEncoder | None = None) -> None:
        self._make = encoder

    def traits(self, config: CaptionConfig, assets: CaptionAssets) -> Traits:
        metric = config.train.select
        if metric == "auto":
            sentences = assets.words >= WORDS_FOR_BLEU and assets.target.tokenizer.level != "char"
            metric = "cider" if assets.references >= 2 else "bleu4" if sentences else "chrf"
        return Traits(
            Goal(metric, higher_is_better=metric != "nats_per_token"),
            samples=True,
            padding=Padding(targets=("target_inputs",)),
            eager=config.train.eager_reason,
        )

    def read(self, config: CaptionConfig) -> Data:
        settings = config.data
        if settings.train is None and settings.images is not None:
            raise UserError(
                f"There are pictures, data.images={settings.images}, and no captions of them.",
                "Give the captions with --train (data.train), or leave --images out to train on the built-in letters.",
            )
        source = str(settings.train or GLYPHS)
        given = (
            _letters(settings.size)
            if settings.train is None
            else read_examples(settings, settings.train, settings.images)
        )
        if settings.valid is not None:
            images = settings.valid_images or settings.images
            train, valid = given, read_examples(settings, settings.valid, images, given[0].view.shape)
        else:
            if len(given) < 2:
                raise UserError(f"{source} holds one picture.", "Give more, or validation pictures with data.valid.")
            first, second = held_out([_key(one) for one in given], settings.valid_fraction)
            train, valid = [given[i] for i in first], [given[i] for i in second]
        parts = (_key(one) + b"\0" + "\0".join(one.captions).encode() for one in (*train, *valid))
        return Data(Corpus(train), Corpus(valid), source, hash_of(b"%d" % len(train), *parts))

    def make_assets(self, config: CaptionConfig, data: Data, init: CaptionAssets | None = None) -> CaptionAssets:
        texts = [text for example in data.train for text in example.captions]
        if init is not None:
            return replace(init, target=init.target.extended(texts)).measured(data.train)
        settings = config.data
        level: str = caption_level(texts) if settings.level == "auto" else settings.level
        reading = Reading(level, settings.min_count, settings.max_size, settings.lowercase)
        side = trained_side(reading, level, texts, "")
        return CaptionAssets(side, data.train[0].view.shape, 0, 0.0, 0.0).measured(data.train)

    def build(self, config: CaptionConfig, assets: CaptionAssets) -> nn.Module:
        return captioner(config.model, assets.shape, len(assets.target.tokenizer), self._make)

    def facts(self, config: CaptionConfig, assets: CaptionAssets) -> dict[str, Any]:
        attention = resolved_attention(config.model.decoder.attention, assets.shape)
        pictures = assets.shape.kind if self._make is None else "read by a network of your own"
        return {"pictures": pictures, "model.decoder.attention": attention}

    def initialize(self, network: nn.Module, config: CaptionConfig, assets: CaptionAssets, data: Data) -> None:
        """Colours and features are scaled as those of training are spread."""
        every = max(1, len(data.train) // ENOUGH)
        some = view_batch([example.view for example in data.train[::every]])
        read: Any = network
        read.read.fit(some.inputs if assets.shape.sizes else None, some.more.get("vectors"))

    def batches(
        self, config: CaptionConfig, assets: CaptionAssets, examples: Sequence[Captioned], *, training: bool
    ) -> RowBuckets:
        settings = config.train
        pictures = fitted(examples, assets.shape)  # the shape of a model to start from may differ
        captions = [
            PictureCaption(one, ids, is_first=number == 0)
            for one, several in zip(pictures, assets.encoded(examples), strict=True)
            for number, ids in enumerate(several)
        ]

        views, tokens = [one.example.view for one in captions], Ragged.of(one.ids for one in captions)

        def gather(rows: Rows) -> Batch:
            return with_targets(view_arrays([views[row] for row in rows]), assets.target, tokens, rows)

        size = settings.batch_size if training else AT_ONCE
        made = twice(gather, settings.consistency) if training else gather
        seed = settings.seed if training else None
        return RowBuckets(captions, tokens.lengths + 1, in_tensors(made), batch_size=size, seed=seed)

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        """Cross-entropy of the captions. In training pictures are shifted, and attention adds its penalties."""
        if training is not None:
            if training.settings.shift and batch.inputs.dtype == torch.uint8:
                batch = replace(batch, inputs=shifted(batch.inputs, training.settings.shift))
            batch = with_guesses(network, batch, training)
        return caption_loss(network, batch, training)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        """The loss with teacher forcing, and, for some pictures, greedy captions and the exposure gap."""
        assert isinstance(batches, RowBuckets)
        assert isinstance(model.config, CaptionConfig)
        mean, _ = mean_loss(self, model, batches)
        captions: list[Any] = list(batches.examples)
        pictures = [one for one in captions if one.is_first]
        every = max(1, len(pictures) // model.config.train.valid_free)
        free = exposure(model, pictures[::every])
        return Evaluation({"nats_per_token": mean, **free.scores}, free.samples)

    def evaluate_file(self, model: Model, path: Any, **options: Any) -> dict[str, Any]:
        return evaluate_file(model, path, **options)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """A `Description` of a picture (a path, a PIL image, an array), or a list of them. See `WritingOptions`."""
        return predict(model, inputs, **options)


def _letters(size: int | None) -> list[Captioned]:
    letters = embedded_glyphs()
    return fitted(letters, shape_for(letters[0].view, size))


def _key(example: Captioned) -> bytes:
    """The picture itself: one that comes under two names is still one."""
    parts = (example.view.values, example.view.vector)
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts if part is not None)
