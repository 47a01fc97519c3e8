"""`translate`: a sequence in, another one out: sentences, spellings to sounds, any pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, Pair, RowBuckets, held_out, read_pairs, read_parallel
from unrolled.data.batching.buckets import in_tensors
from unrolled.data.batching.shapes import Padding
from unrolled.data.demo.pronunciations import PRONUNCIATIONS, embedded_pronunciations
from unrolled.data.readers.pairs import each_target, without_empty
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.models.transformer_translator import TransformerTranslator
from unrolled.models.translator import Translator, translator
from unrolled.tasks.contract import Data, Description, Task, Training, mean_loss
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.shared.pretrained import load_token_vectors
from unrolled.tasks.shared.side import Ids, Reading
from unrolled.tasks.shared.targets import token_loss, with_guesses
from unrolled.tasks.tracer import Tracer
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import PairTable
from unrolled.tasks.translate.config import SideSettings, TranslateConfig, TranslateData
from unrolled.tasks.translate.describe import TranslateDescription
from unrolled.tasks.translate.exposure import exposure
from unrolled.tasks.translate.options import FILE_KEYS, OPTIONS
from unrolled.tasks.translate.predict import predict
from unrolled.tasks.translate.run import TranslateRunner
from unrolled.tasks.translate.scores import evaluate_file
from unrolled.tasks.translate.trace import TranslateTracer
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits, hash_of
from unrolled.training.consistency import twice

WORDS_FOR_BLEU = 6  # in a target, the mean: BLEU of fewer than four is 0 whatever they are
TOKENS_TO_MATCH = 15  # in a target, the mean: more of them are rarely all right
AT_ONCE = 8000  # target tokens in a batch when there are no gradients


class Translate(Task):
    """Encoder–decoder models on pairs of texts."""

    name: ClassVar[str] = "translate"
    config_class: ClassVar[type[Section]] = TranslateConfig
    options: ClassVar[TaskOptions] = OPTIONS
    assets_class: ClassVar[Any] = TranslateAssets
    runner: ClassVar[type[Runner]] = TranslateRunner
    tracer: ClassVar[type[Tracer]] = TranslateTracer
    description: ClassVar[Description] = TranslateDescription()
    inherited: ClassVar[tuple[str, ...]] = ("level", "joint", "lowercase")
    file_keys: ClassVar[tuple[str, ...]] = FILE_KEYS
    parallel: ClassVar[bool] = True

    def traits(self, config: TranslateConfig, assets: TranslateAssets) -> Traits:
        metric = config.train.select
        if metric == "auto":
            sentences = assets.target.tokenizer.level in ("word", "bpe") and assets.target_words >= WORDS_FOR_BLEU
            metric = "bleu" if sentences else "exact_match" if assets.target_tokens <= TOKENS_TO_MATCH else "chrf"
        return Traits(
            Goal(metric, higher_is_better=metric != "nats_per_token"),
            samples=True,
            padding=Padding(targets=("target_inputs",), rows=not config.train.consistency),  # its halves are pairs
            eager=config.train.eager_reason,
        )

    def read(self, config: TranslateConfig) -> Data:
        settings = config.data
        pairs, source = _named_pairs(settings, "train")
        if pairs is None:
            pairs, source = embedded_pronunciations(), PRONUNCIATIONS
        held, _ = _named_pairs(settings, "valid")
        train, empty = without_empty(_all_targets(pairs))
        if not train:
            raise UserError(f"{source} holds no pair with something on both sides.", "Give pairs: source TAB target.")
        if held is not None:
            valid, emptied = without_empty(_all_targets(held))
            empty += emptied
            if not valid:
                raise UserError("The validation data holds no pair with something on both sides.", "Give pairs.")
        else:
            if len(train) < 2:
                raise UserError(f"{source} holds one pair.", "Give more, or validation pairs with data.valid.")
            first, second = held_out([pair.source for pair in train], settings.valid_fraction)
            train, valid = [train[i] for i in first], [train[i] for i in second]
        if empty:
            note(f"Pairs with nothing on one side are left out: {empty:,} of them.")
        parts = (f"{pair.source}\0{pair.target}".encode() for pair in (*train, *valid))
        return Data(Corpus(train), Corpus(valid), source, hash_of(b"%d" % len(train), *parts))

    def make_assets(self, config: TranslateConfig, data: Data, init: TranslateAssets | None = None) -> TranslateAssets:
        settings = config.data
        if init is not None:
            return init.extended(data.train, settings.max_source_length)
        source, target = (_reading(settings, side) for side in (settings.source, settings.target))
        return TranslateAssets.train(data.train, source, target, settings.joint, settings.max_source_length)

    def build(self, config: TranslateConfig, assets: TranslateAssets) -> nn.Module:
        return translator(config.model, assets, assets.source.end)

    def initialize(self, network: nn.Module, config: TranslateConfig, assets: TranslateAssets, data: Data) -> None:
        """Set pretrained vectors of either side."""
        read: Any = network
        source = read.encoder if isinstance(network, Translator) else read
        width = "model.encoder.hidden_size" if config.model.kind == "transformer" else "model.embedding_size"
        if config.data.source_vectors is not None:
            embedding = source.source if isinstance(network, TransformerTranslator) else source.embedding
            key = "data.source_vectors"
            load_token_vectors(embedding, assets.source.tokenizer, config.data.source_vectors, key, width)
            embedding.weight.requires_grad_(config.model.tune_vectors)
        if config.data.target_vectors is not None:
            key = "data.target_vectors"
            load_token_vectors(read.embedding, assets.target.tokenizer, config.data.target_vectors, key, width)

    def facts(self, config: TranslateConfig, assets: TranslateAssets) -> dict[str, Any]:
        levels = dict.fromkeys([assets.source.tokenizer.level, assets.target.tokenizer.level])
        return {"levels": " and ".join(levels), "vocabularies": "one" if assets.joint else "two"}

    def batches(
        self, config: TranslateConfig, assets: TranslateAssets, examples: Sequence[Pair], *, training: bool
    ) -> RowBuckets:
        settings = config.train
        encoded = assets.encoded(examples)
        if training:
            encoded = _short_enough(encoded, config.data)

        table = PairTable(assets, encoded)
        return RowBuckets(
            encoded,
            np.maximum(table.sources.lengths, table.targets.lengths) + 1,
            in_tensors(twice(table.batch, settings.consistency) if training else table.batch),
            batch_size=settings.batch_size,
            seed=settings.seed if training else None,
            batch_tokens=settings.batch_tokens if training else AT_ONCE,
        )

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        if training is not None:
            batch = with_guesses(network, batch, training)
        return token_loss(network, network(batch).features, batch, training)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        """The loss with teacher forcing, and, for some pairs, greedy translations and the exposure gap."""
        assert isinstance(batches, RowBuckets)
        assert isinstance(model.config, TranslateConfig)
        mean, _ = mean_loss(self, model, batches)
        every = max(1, len(batches.examples) // model.config.train.valid_free)
        some: list[Any] = [batches.examples[i] for i in range(0, len(batches.examples), every)]
        free = exposure(model, some)
        return Evaluation({"nats_per_token": mean, **free.scores}, free.samples)

    def evaluate_file(self, model: Model, path: Any, **options: Any) -> dict[str, Any]:
        return evaluate_file(model, path, **options)

    def predict(self, model: Model, inputs: str | Sequence[str], **options: Any) -> Any:
        """A `Translation` of a text, or a list of them. Options: see `WritingOptions`."""
        return predict(model, inputs, **options)


def _named_pairs(settings: TranslateData, which: str) -> tuple[list[Pair] | None, str]:
    """The pairs of the config for training or validation, or None."""
    table, source, target = (getattr(settings, name) for name in (which, f"{which}_source", f"{which}_target"))
    if table is not None and (source or target):
        raise UserError(f"Both data.{which} and data.{which}_source are given.", "Give one table, or two files.")
    if (source is None) != (target is None):
        missing = f"data.{which}_target" if target is None else f"data.{which}_source"
        raise UserError(f"{missing} is missing: sources and targets are two files.", "Give both.")
    if source is not None:
        return read_parallel(source, target), f"{source} → {target}"
    if table is None:
        return None, ""
    columns = {"source_column": settings.source_column, "target_column": settings.target_column}
    return read_pairs(table, **columns), str(table)


def _all_targets(pairs: Sequence[Pair]) -> list[Pair]:
    """A pair for each target, with a note if sources have several."""
    several = sum(len(pair.targets) > 1 for pair in pairs)
    if several:
        note(f"{several:,} of {len(pairs):,} sources have several targets: each makes a pair.")
    return each_target(pairs)


def _reading(data: TranslateData, side: SideSettings) -> Reading:
    """The settings of one side: its own, else those of both."""
    return Reading(
        side.level or data.level,
        side.min_count or data.min_count,
        side.max_size or data.max_size,
        data.lowercase,
        side.normalize,
    )


def _short_enough(encoded: list[tuple[Ids, Ids]], settings: TranslateData) -> list[tuple[Ids, Ids]]:
    """Training pairs within the lengths that the config allows."""
    limits = [settings.max_source_length, settings.max_target_length]
    kept = [pair for pair in encoded if all(m is None or len(ids) <= m for ids, m in zip(pair, limits, strict=True))]
    if not kept:
        raise UserError("All training pairs are longer than data.max_source_length or data.max_target_length.")
    if len(kept) < len(encoded):
        keys = ", ".join(
            f"data.max_{side}_length={m}" for side, m in zip(("source", "target"), limits, strict=True) if m
        )
        note(
            f"{len(encoded) - len(kept):,} of {len(encoded):,} training pairs are longer than {keys}, and are left out."
        )
    return kept
