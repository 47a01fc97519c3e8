"""`recognize`: speech, pictures of lines or frames in, text out, by CTC."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, held_out
from unrolled.data.batching.feature_cache import FeatureCache
from unrolled.data.batching.prefetch import Prefetcher
from unrolled.data.batching.shapes import Padding
from unrolled.data.batching.sharing import in_turn
from unrolled.data.demo.digit_strings import DIGITS, digit_strings
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.transcripts import Transcribed
from unrolled.errors import UserError, note
from unrolled.kernels.lengths import real_steps
from unrolled.model import Model
from unrolled.models.recognizer import Recognizer
from unrolled.nn.ctc import ctc_loss
from unrolled.search.ctc import best_path
from unrolled.tasks.contract import Data, Description, Task, Training
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.recognize.batches import ExampleBatches, feature_store
from unrolled.tasks.recognize.config import RecognizeConfig
from unrolled.tasks.recognize.describe import RecognizeDescription, key_of
from unrolled.tasks.recognize.features import InputReader
from unrolled.tasks.recognize.labels import Labels, RecognizeAssets
from unrolled.tasks.recognize.options import FILE_KEYS, OPTIONS
from unrolled.tasks.recognize.predict import predict
from unrolled.tasks.recognize.run import RecognizeRunner
from unrolled.tasks.recognize.scores import error_rates, evaluate_file, read_examples
from unrolled.tasks.recognize.too_short import TooShort, tell, too_short, write_list
from unrolled.tasks.recognize.trace import RecognizeTracer
from unrolled.tasks.runner import Runner
from unrolled.tasks.shared.free_run import samples
from unrolled.tasks.tracer import Tracer
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits, consistency, hash_of

SCALED_BY = 500  # training examples whose features give the scale


class Recognize(Task):
    """Long signals, short labels."""

    name: ClassVar[str] = "recognize"
    config_class: ClassVar[type[Section]] = RecognizeConfig
    options: ClassVar[TaskOptions] = OPTIONS
    assets_class: ClassVar[Any] = RecognizeAssets
    runner: ClassVar[type[Runner]] = RecognizeRunner
    tracer: ClassVar[type[Tracer]] = RecognizeTracer
    description: ClassVar[Description] = RecognizeDescription()
    unit: ClassVar[str] = "labels"
    file_keys: ClassVar[tuple[str, ...]] = FILE_KEYS
    inherited: ClassVar[tuple[str, ...]] = (
        "kind", "level", "lowercase", "sample_rate", "bands", "deltas", "center_bands", "height", "straighten",
    )  # fmt: skip

    def traits(self, config: RecognizeConfig, assets: RecognizeAssets) -> Traits:
        return Traits(Goal(next(iter(error_rates(assets.labels, (), ())))), samples=True, padding=Padding(targets=()))

    def read(self, config: RecognizeConfig) -> Data:
        settings = config.data
        train = _embedded("train") if settings.train is None else read_examples(settings, settings.train)
        if settings.valid is not None:
            valid = read_examples(settings, settings.valid)
        elif settings.train is None:
            valid = _embedded("valid")
        else:
            if len(train) < 2:
                raise UserError(f"{settings.train} holds one example.", "Give more, or a file with data.valid.")
            first, second = held_out([key_of(example) for example in train], settings.valid_fraction)
            train, valid = [train[i] for i in first], [train[i] for i in second]
        parts = (key_of(example) + b"\0" + example.text.encode() for example in (*train, *valid))
        contents = hash_of(*(e.input.digest() for e in (*train, *valid) if isinstance(e.input, Medium)))
        mark = hash_of(b"%d" % len(train), *parts)
        return Data(Corpus(train), Corpus(valid), settings.train or DIGITS, mark, contents)

    def make_assets(self, config: RecognizeConfig, data: Data, init: RecognizeAssets | None = None) -> RecognizeAssets:
        texts = [example.text for example in data.train]
        if init is not None:
            return RecognizeAssets(init.reader, init.labels.extended(texts))
        labels = Labels.train(texts, config.data.level, config.data.lowercase)
        return RecognizeAssets(InputReader.train(config.data, data.train, not config.model.bidirectional), labels)

    def build(self, config: RecognizeConfig, assets: RecognizeAssets) -> nn.Module:
        return Recognizer(config.model, assets.reader.kind, assets.reader.shape, len(assets.labels))

    def facts(self, config: RecognizeConfig, assets: RecognizeAssets) -> dict[str, Any]:
        return {"data.kind": assets.reader.kind}

    def initialize(self, network: nn.Module, config: RecognizeConfig, assets: RecognizeAssets, data: Data) -> None:
        """Frames and spectrograms are scaled to mean 0 and deviation 1."""
        assert isinstance(network, Recognizer)
        if assets.reader.kind != "line":
            store = feature_store(config, assets, data.train)
            usual = np.flatnonzero(store.lengths <= config.data.max_steps).tolist() or range(len(store))
            some = usual[:: max(1, len(usual) // SCALED_BY)]
            frames = np.concatenate([assets.reader.features(store[i]) for i in some])
            network.input.fit(frames.mean(axis=0, dtype=np.float64), frames.std(axis=0, dtype=np.float64))

    def batches(
        self, config: RecognizeConfig, assets: RecognizeAssets, examples: Sequence[Transcribed], *, training: bool
    ) -> Any:
        store = feature_store(config, assets, examples)
        targets = [assets.labels.ids(example.text) for example in examples]
        numbers = _not_too_long(config, examples, store, "training" if training else "validation")
        short = too_short(config, assets, examples, store, targets)
        if not training:
            tell(short, "validation", "; no loss is counted there")
            return ExampleBatches(assets.reader, store, numbers, targets, None)
        tell(short, "training", " and left out")
        if config.data.too_short is not None:
            write_list(config.data.too_short, short)
        numbers = _long_enough(numbers, short)
        return Prefetcher(ExampleBatches(assets.reader, store, numbers, targets, config.train))

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        """−log P of each transcript; 0 where augmentation made an example too short for its transcript."""
        log_probs, lengths = network(batch)
        total = ctc_loss(
            log_probs, batch.targets, lengths, batch.more["target_lengths"], reduction="sum", zero_infinity=True
        )
        loss = Loss(total, batch.more["target_lengths"].sum())
        if training is None or not training.settings.consistency:
            return loss
        padding = ~real_steps(lengths, log_probs.shape[1])
        equal = log_probs.masked_fill(padding[..., None], 0.0).flatten(0, 1)  # picking rows would wait for a GPU
        return consistency.agreeing(loss, training.settings.consistency, equal)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        assert isinstance(batches, ExampleBatches)
        labels: Labels = model.assets.labels
        total, count = 0.0, 0
        outputs = [""] * len(batches.examples)

        def work(index: int) -> tuple[float, int, list[str]]:
            batch = batches[index].to(model.device)
            log_probs, lengths = (one.cpu() for one in model.network(batch))
            counts = batch.more["target_lengths"]
            losses = ctc_loss(log_probs, batch.targets, lengths, counts, reduction="none", zero_infinity=True)
            rows = (best_path(log_probs[row, : int(length)]).labels for row, length in enumerate(lengths))
            return float(losses.sum()), int(counts.sum()), [labels.text(row) for row in rows]

        for index, (loss, counted, texts) in in_turn(len(batches), work):
            total, count = total + loss, count + counted
            for number, text in zip(batches.rows(index), texts, strict=True):
                outputs[number] = text
        references = [labels.reference(batches.store.inputs[number].text) for number in batches.numbers]
        scores = error_rates(labels, outputs, references)
        return Evaluation({**scores, "nats_per_label": total / max(1, count)}, samples(references, outputs))

    def evaluate_file(self, model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
        return evaluate_file(model, path, **options)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """A `Recognized` for one input, a list of them for several: paths, or arrays. See `RecognitionOptions`.

        Samples of a recording are (samples, rate), or arrays with the option `rate`.
        """
        return predict(model, inputs, **options)


def _embedded(part: str) -> list[Transcribed]:
    return [Transcribed(image, text, f"{part} line {i}") for i, (image, text) in enumerate(digit_strings(part), 1)]


def _not_too_long(
    config: RecognizeConfig, examples: Sequence[Transcribed], store: FeatureCache, what: str
) -> list[int]:
    """The examples that a batch can hold whole."""
    limit = config.data.max_steps
    long = np.flatnonzero(store.lengths > limit).tolist()
    if long:
        note(
            f"{len(long):,} {what} examples have more than {limit:,} steps and are left out, the first at "
            f"{examples[long[0]].place}. Cut them, or raise data.max_steps."
        )
    kept: list[int] = np.flatnonzero(store.lengths <= limit).tolist()
    if not kept:
        raise UserError(f"No {what} example is left.", "Cut them into shorter ones, or raise data.max_steps.")
    return kept


def _long_enough(numbers: Sequence[int], short: Sequence[TooShort]) -> list[int]:
    """Those of the examples whose transcripts fit into the frames that come out of the network."""
    left_out = {one.number for one in short}
    kept = [number for number in numbers if number not in left_out]
    if not kept:
        raise UserError("No training example is left.", "Check that every transcript belongs to its file.")
    return kept
