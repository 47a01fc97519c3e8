"""`classify`: a text or a sequence of frames in, one label or several out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.config import Section
from unrolled.data import Batch, RowBuckets, held_out
from unrolled.data.batching.buckets import in_tensors
from unrolled.data.batching.ragged import Rows
from unrolled.data.batching.shapes import Padding
from unrolled.data.demo.docstrings import DOCSTRINGS, embedded_labels
from unrolled.data.readers.label_checks import label_warnings
from unrolled.data.readers.labelled import Labelled
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.models.classifier import Classifier
from unrolled.models.inputs import FrameInput, WordInput
from unrolled.models.weights import copy_weights
from unrolled.models.wide import LinearClassifier, WidePath
from unrolled.tasks.classify.assets import ClassifyAssets, given_weights
from unrolled.tasks.classify.batches import input_batches, targets_of, wide_counts
from unrolled.tasks.classify.config import ClassifyConfig, ClassifyTraining
from unrolled.tasks.classify.describe import ClassifyDescription
from unrolled.tasks.classify.examples import key_of, read_examples, with_old
from unrolled.tasks.classify.loss import focal, losses_of
from unrolled.tasks.classify.options import FILE_KEYS, OPTIONS
from unrolled.tasks.classify.predict import AT_ONCE, predict
from unrolled.tasks.classify.regression import numbers_of, scale_of
from unrolled.tasks.classify.run import ClassifyRunner
from unrolled.tasks.classify.scores import evaluate_file, evaluation
from unrolled.tasks.classify.start import fit_to, wide_scores, wide_shape
from unrolled.tasks.classify.trace import ClassifyTracer
from unrolled.tasks.contract import Data, Description, Task, Training
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.shared.reader import Reader, load_vectors
from unrolled.tasks.tracer import Tracer
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits, consistency, hash_of, many_to_one
from unrolled.training.consistency import twice

ENDS = ("ngrams", "ngram_weights", "wide_ngrams", "wide_weights")


class Classify(Task):
    """One label, or several, for a text or a sequence of frames."""

    name: ClassVar[str] = "classify"
    config_class: ClassVar[type[Section]] = ClassifyConfig
    options: ClassVar[TaskOptions] = OPTIONS
    assets_class: ClassVar[Any] = ClassifyAssets
    runner: ClassVar[type[Runner]] = ClassifyRunner
    tracer: ClassVar[type[Tracer]] = ClassifyTracer
    description: ClassVar[Description] = ClassifyDescription()
    unit: ClassVar[str] = "examples"
    inherited: ClassVar[tuple[str, ...]] = ("level", "lowercase", "multi_label", "kind")
    file_keys: ClassVar[tuple[str, ...]] = FILE_KEYS

    def traits(self, config: ClassifyConfig, assets: ClassifyAssets) -> Traits:
        goal = Goal("micro_f1" if config.data.multi_label else "accuracy", higher_is_better=True)
        return Traits(
            Goal("rmse") if assets.scale is not None else goal,
            judge_start=assets.wide is not None,
            fitted=config.model.kind == "linear",
            padding=Padding(timed=("spelt",), words=True, ends=ENDS),
            eager=None if config.train.k2 is None else "train.k2 depends on the lengths of the rows",
        )

    def read(self, config: ClassifyConfig) -> Data:
        settings = config.data
        if settings.train is None:
            examples = [Labelled(line, (module,), "") for module, line in embedded_labels()]
        else:
            examples = read_examples(settings, settings.train)
            labels = Counter(label for e in examples for label in e.labels)
            for doubt in [] if settings.kind == "number" else label_warnings(labels, len(examples)):
                note(doubt)
        if settings.valid is not None:
            train, valid = examples, read_examples(settings, settings.valid)
        else:
            if len(examples) < 2:
                raise UserError(f"{settings.train} holds one example.", "Give more, or a file with data.valid.")
            first, second = held_out([key_of(example.input) for example in examples], settings.valid_fraction)
            train, valid = [examples[i] for i in first], [examples[i] for i in second]
        parts = (key_of(e.input) + b"\0" + "\0".join(e.labels).encode() for e in (*train, *valid))
        mark = hash_of(b"%d" % len(train), *parts)
        return Data(Corpus(train), Corpus(valid), settings.train or DOCSTRINGS, mark)

    def make_assets(self, config: ClassifyConfig, data: Data, init: ClassifyAssets | None = None) -> ClassifyAssets:
        inputs = [example.input for example in data.train]
        reader = Reader.train(config.data, inputs) if init is None else init.reader.extended(inputs)
        if config.data.kind == "number":
            numbers_of(data.valid)  # reports a label that is not a number before training
            scale = init.scale if init is not None else scale_of(numbers_of(data.train))
            return ClassifyAssets((), (), reader, scale, wide_shape(config.model, data.train, 1, init))
        counts = Counter(label for example in data.train for label in example.labels)
        if len(counts) < 2 and not (counts and config.data.multi_label):
            only = next(iter(counts), "none at all")
            raise UserError(f"All training examples have one label: {only!r}.", "Give examples of two classes or more.")
        labels = tuple(sorted(counts))
        if init is not None:
            labels = with_old(init.labels, labels, config.data.old_labels)
        asked = {label for example in data.valid for label in example.labels}
        if config.data.valid is not None and asked and asked.isdisjoint(labels):
            raise UserError(
                "No validation example has a label of the training examples, so that none says which network is best.",
                f"Labels in training: {', '.join(labels[:5])}.",
            )
        if config.train.class_weights not in ("none", "balanced"):
            given_weights(config.train.class_weights, labels)  # reports a mistake before training
        wide = wide_shape(config.model, data.train, len(labels), init)
        return ClassifyAssets(labels, tuple(counts[label] for label in labels), reader, wide=wide)

    def transfer(self, old: Model, network: nn.Module, assets: ClassifyAssets) -> None:
        """The old weights; each class that is still there takes its scores along."""
        if assets.scale is not None:
            super().transfer(old, network, assets)
            return
        places = {label: place for place, label in enumerate(old.assets.labels)}
        rows = [places[label] for label in assets.labels if label in places]  # kept labels come first, in their order
        chosen = {"scores.weight": 0, "scores.bias": 0, "ngrams.weight": 1, "wide.weight": 1, "wide.bias": 0}
        copy_weights(old.network, network, chosen, rows)

    def build(self, config: ClassifyConfig, assets: ClassifyAssets) -> nn.Module:
        outputs = len(assets.labels) if assets.scale is None else 1
        wide = None if assets.wide is None else WidePath(assets.wide.kinds.buckets, assets.wide.rows, outputs)
        if config.model.kind == "linear":
            if wide is None:
                raise UserError("model.kind=linear is the wide path alone, and there is none.", "Use model.wide=on.")
            return LinearClassifier(wide)
        return Classifier(config.model, assets.reader.build(config.model), outputs, wide)

    def facts(self, config: ClassifyConfig, assets: ClassifyAssets) -> dict[str, Any]:
        return {**assets.reader.facts(), "model.wide": "off" if assets.wide is None else "on"}

    def initialize(self, network: nn.Module, config: ClassifyConfig, assets: ClassifyAssets, data: Data) -> None:
        assert isinstance(network, (Classifier, LinearClassifier))
        if network.wide is not None:
            fit_to(network.wide, config, assets, data, alone=isinstance(network, LinearClassifier))
        if isinstance(network, LinearClassifier):
            return
        if isinstance(network.input, FrameInput):
            network.input.fit_to([example.input for example in data.train])
        elif config.data.vectors is not None:
            assert isinstance(network.input, WordInput)
            assert assets.reader.words is not None
            load_vectors(network.input, assets.reader.words, config.data.vectors)

    def batches(
        self, config: ClassifyConfig, assets: ClassifyAssets, examples: list[Labelled], *, training: bool
    ) -> RowBuckets:
        weighted = training and config.train.class_weights != "none"
        encoded = assets.encoded(examples)
        steps = [one.steps for one in encoded]
        known = wide_scores(examples) if training else None
        counts = wide_counts(examples, assets.wide.kinds) if assets.wide is not None and known is None else None
        inputs = input_batches(assets, [one.input for one in examples], steps, config.model, counts)
        labels = targets_of(assets, examples, config.data.multi_label)

        def gather(rows: Rows) -> Batch:
            targets = labels(rows)
            batch = inputs(rows, targets)
            more = {} if known is None else {"wide": known[rows]}
            more |= {"weights": assets.weights(targets, config.train.class_weights)} if weighted else {}
            return replace(batch, more={**batch.more, **more})

        size = config.train.batch_size if training else AT_ONCE
        made = twice(gather, config.train.consistency) if training else gather
        lengths, seed = [len(one) for one in steps], config.train.seed if training else None
        return RowBuckets(encoded, lengths, in_tensors(made), batch_size=size, seed=seed)

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        settings = None if training is None else training.settings
        if settings is None or settings.k2 is None:
            return self._loss(network(batch).float(), batch, settings)
        assert isinstance(network, Classifier)

        def from_state(part: Batch, entry: Any) -> Loss:
            scores, left = network.forward_from(part, entry)
            return replace(self._loss(scores.float(), part, settings), state=left)

        last = many_to_one(from_state, batch, settings.k2, timed=network.input.timed)
        return replace(last, state=None)

    def _loss(self, scores: Tensor, batch: Batch, settings: ClassifyTraining | None) -> Loss:
        losses = losses_of(scores, batch.targets)
        if settings is not None and settings.label_smoothing and batch.targets.dim() == 1:
            smoothing = scores.new_full((), settings.label_smoothing)
            losses = torch.lerp(losses, -scores.log_softmax(-1).mean(-1), smoothing)
        if settings is not None and settings.focal_gamma:
            losses = focal(losses, settings.focal_gamma)
        if "weights" in batch.more:
            losses = losses * batch.more["weights"]
        loss = Loss(losses.sum(), torch.tensor(len(batch.targets)))
        if settings is None or not settings.consistency:
            return loss
        if batch.targets.dim() == 2:
            return consistency.agreeing(loss, settings.consistency, F.logsigmoid(scores), F.logsigmoid(-scores))
        return consistency.agreeing(loss, settings.consistency, scores.log_softmax(-1))

    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        assert isinstance(batches, RowBuckets)
        return Evaluation(evaluation(model, batches))

    def evaluate_file(self, model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
        return evaluate_file(model, path, **options)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """A `Classified` or `PredictedNumber` for one input, a list for several: texts, or arrays of frames."""
        return predict(model, inputs, **options)
