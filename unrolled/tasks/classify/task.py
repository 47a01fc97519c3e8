"""`classify`: a text or a sequence of frames in, one label or several out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from unrolled.config import Section
from unrolled.config.stored import DAMAGED, Finite, Positive, stored_as, stored_entry
from unrolled.data import Batch, Buckets, held_out
from unrolled.data.demo.docstrings import DOCSTRINGS, embedded_labels
from unrolled.data.readers.label_checks import doubts, look_swapped
from unrolled.data.readers.labelled import FASTTEXT, Labelled, is_fasttext, read_frames, read_labelled, without_labels
from unrolled.data.readers.tables.piped import piped_texts
from unrolled.data.readers.tables.table import Row, is_table, read_texts
from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.models.classifier import Classifier
from unrolled.models.inputs import FrameInput, TokenInput, WordInput, token_vectors
from unrolled.models.weights import copy_weights
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.classify.config import ClassifyConfig
from unrolled.tasks.classify.examples import about_answers, check_shape, checked_inputs, key_of, ngrams_of, with_old
from unrolled.tasks.classify.regression import Measured, Numbers, check_settings, number_scores, numbers_of, scale_of
from unrolled.tasks.classify.scores import Classified as Classified
from unrolled.tasks.classify.scores import ClassifyAssets, judged, losses_of, per_class, report
from unrolled.tasks.classify.trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.classify.trace import trace_classifier, trace_number
from unrolled.tasks.contract import Data, Example, Given, Request, Task, nth
from unrolled.tasks.shared.reader import Reader, load_vectors
from unrolled.text.vectors import Vectors
from unrolled.training import Batches, Goal, Loss, consistency, hash_of
from unrolled.training.consistency import twice

AT_ONCE = 256  # sequences in a batch when there are no gradients


class Classify(Task):
    """One label, or several, for a text or a sequence of frames."""

    name: ClassVar[str] = "classify"
    config_class: ClassVar[type[Section]] = ClassifyConfig
    unit: ClassVar[str] = "examples"
    inherited: ClassVar[tuple[str, ...]] = ("level", "lowercase", "multi_label", "kind")
    file_keys: ClassVar[tuple[str, ...]] = ("text_column", "label_column", "label_separator")
    keeps: ClassVar[bool] = True
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS

    def goal(self, config: ClassifyConfig, assets: ClassifyAssets) -> Goal:
        if assets.scale is not None:
            return Goal("rmse")
        return Goal("micro_f1" if config.data.multi_label else "accuracy", higher_is_better=True)

    def read(self, config: ClassifyConfig) -> Data:
        settings, numbers = config.data, config.data.kind == "number"
        if numbers:
            check_settings(config)
        if settings.train is None:
            examples = [Labelled(line, (module,), "") for module, line in embedded_labels()]
        else:
            examples = self._read_file(config, settings.train)
            labels = Counter(label for e in examples for label in e.labels)
            for doubt in [] if numbers else doubts(labels, len(examples)):
                note(doubt)
        if settings.valid is not None:
            train, valid = examples, self._read_file(config, settings.valid)
        else:
            if len(examples) < 2:
                raise UserError(f"{settings.train} holds one example.", "Give more, or a file with data.valid.")
            first, second = held_out([key_of(example.input) for example in examples], settings.valid_fraction)
            train, valid = [examples[i] for i in first], [examples[i] for i in second]
        parts = (key_of(e.input) + b"\0" + "\0".join(e.labels).encode() for e in (*train, *valid))
        return Data(train, valid, settings.train or DOCSTRINGS, hash_of(b"%d" % len(train), *parts))

    def _read_file(self, config: ClassifyConfig, path: str | Path, known: Sequence[str] = ()) -> list[Labelled]:
        """The examples of a file; `known` are the labels of a model that reads it."""
        settings = config.data
        examples = read_labelled(
            path,
            text_column=settings.text_column,
            label_column=settings.label_column,
            separator=settings.label_separator if settings.multi_label else None,
            numbers=settings.kind == "number",
        )
        if settings.kind == "label" and (why := look_swapped(examples, known)):
            said = settings.text_column or settings.label_column
            columns = [settings.text_column or "2", settings.label_column or "1"]
            keys = " ".join(f"--set data.{k}_column={c}" for k, c in zip(("label", "text"), columns, strict=True))
            if not said or known:
                raise UserError(f"The columns of {path} look swapped: {why}.", f"If they are: {keys}")
            note(f"The columns of {path} look swapped: {why}.")
        return examples

    def make_assets(self, config: ClassifyConfig, data: Data, init: ClassifyAssets | None = None) -> ClassifyAssets:
        inputs = [example.input for example in data.train]
        reader = Reader.train(config.data, inputs) if init is None else init.reader.extended(inputs)
        if config.data.kind == "number":
            numbers_of(data.valid)  # what is none is said before training
            numbers = numbers_of(data.train)
            return ClassifyAssets((), (), reader, init.scale if init is not None else scale_of(numbers))
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
        return ClassifyAssets(labels, tuple(counts[label] for label in labels), reader)

    def assets_to_json(self, assets: ClassifyAssets) -> Any:
        stored = {"labels": list(assets.labels), "counts": list(assets.counts), "reader": assets.reader.to_json()}
        return stored if assets.scale is None else {**stored, "scale": list(assets.scale)}

    def assets_from_json(self, stored: Any) -> ClassifyAssets:
        labels = stored_entry(stored, "labels", tuple[str, ...], "labels")
        counts = stored_entry(stored, "counts", tuple[int, ...], "counts of labels")
        scale = None
        if stored.get("scale") is not None:
            scale = stored_as(tuple[Finite, Positive], stored["scale"], "scale of numbers")
        if bool(labels) == (scale is not None) or len(counts) != len(labels) or len(set(labels)) < len(labels):
            raise UserError("The stored labels are damaged: expected each once, with a count.", DAMAGED)
        reader = Reader.from_json(stored_entry(stored, "reader", dict[str, Any], "model"))
        return ClassifyAssets(labels, counts, reader, scale)

    def transfer(self, old: Model, network: nn.Module, assets: ClassifyAssets) -> None:
        """The old weights; each class that is still there takes its scores along."""
        if assets.scale is not None:
            super().transfer(old, network, assets)
            return
        places = {label: place for place, label in enumerate(old.assets.labels)}
        rows = [places[label] for label in assets.labels if label in places]  # kept labels come first, in their order
        copy_weights(old.network, network, {"scores.weight": 0, "scores.bias": 0, "ngrams.weight": 1}, rows)

    def build(self, config: ClassifyConfig, assets: ClassifyAssets) -> nn.Module:
        inputs = assets.reader.build(config.model)
        return Classifier(config.model, inputs, len(assets.labels) if assets.scale is None else 1)

    def initialize(self, network: nn.Module, config: ClassifyConfig, assets: ClassifyAssets, data: Data) -> None:
        assert isinstance(network, Classifier)
        if isinstance(network.input, FrameInput):
            frames = np.concatenate([example.input for example in data.train])
            network.input.fit(frames.mean(axis=0, dtype=np.float64), frames.std(axis=0, dtype=np.float64))
        elif config.data.vectors is not None:
            assert isinstance(network.input, WordInput)
            assert assets.reader.words is not None
            load_vectors(network.input, assets.reader.words, config.data.vectors)

    def batches(
        self, config: ClassifyConfig, assets: ClassifyAssets, examples: list[Labelled], *, training: bool
    ) -> Buckets:
        balanced = training and config.train.class_weights == "balanced"
        smoothing = config.train.label_smoothing if training and not config.data.multi_label else 0.0

        def collate(part: list[Labelled]) -> Batch:
            targets = assets.targets(part, config.data.multi_label)
            batch = assets.reader.batch([example.input for example in part], targets)
            more = {**batch.more, **ngrams_of([example.input for example in part], config.model.ngrams)}
            if balanced:
                more["weights"] = assets.weights(targets)
            if smoothing:
                more["smoothing"] = torch.tensor(smoothing)
            return replace(batch, more=more)

        lengths = [assets.reader.length(example.input) for example in examples]
        size = config.train.batch_size if training else AT_ONCE
        made = twice(collate, config.train.consistency) if training else collate
        return Buckets(examples, lengths, made, batch_size=size, seed=config.train.seed if training else None)

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        scores = network(batch).float()
        losses = losses_of(scores, batch.targets)
        if "smoothing" in batch.more:
            losses = torch.lerp(losses, -scores.log_softmax(-1).mean(-1), batch.more["smoothing"])
        if "weights" in batch.more:
            losses = losses * batch.more["weights"]
        loss = Loss(losses.sum(), torch.tensor(len(batch.targets)))
        if not consistency.asked(batch):
            return loss
        if batch.targets.dim() == 2:
            return consistency.agreeing(loss, batch, F.logsigmoid(scores), F.logsigmoid(-scores))
        return consistency.agreeing(loss, batch, scores.log_softmax(-1))

    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        assert isinstance(batches, Buckets)
        if model.assets.scale is not None:
            examples: Sequence[Any] = batches.examples
            return number_scores(numbers_of(examples), self._numbers(model, batches))
        probabilities, loss = self._probabilities(model, batches)
        multi = _multi_label(model)
        scores, _, known = judged(model.assets, batches.examples, probabilities, multi)
        loss /= max(1, known)
        result = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
        return result | ({"micro_f1": scores.micro_f1} if multi else {}) | {"nll": loss}

    def _probabilities(self, model: Model, batches: Buckets) -> tuple[NDArray[np.float32], float]:
        """Of every example (N, C) in the order they were given, and the summed loss of those whose label is known."""
        table = np.zeros((len(batches.examples), len(model.assets.labels)), dtype=np.float32)
        total, multi = 0.0, _multi_label(model)
        model.network.eval()
        with torch.no_grad():
            for index in range(len(batches)):
                batch = batches[index].to(model.device)
                scores = model.network(batch).float()
                table[batches.rows(index)] = (scores.sigmoid() if multi else scores.softmax(-1)).cpu().numpy()
                if len(batch.targets):
                    total += float(losses_of(scores, batch.targets).sum())
        return table, total

    @torch.no_grad()
    def _numbers(self, model: Model, batches: Buckets) -> Numbers:
        """The answers (N,) of a model of numbers, in the order that examples were given."""
        answers = np.zeros(len(batches.examples))
        mean, deviation = model.assets.scale
        model.network.eval()
        for index in range(len(batches)):
            scores = model.network(batches[index].to(model.device))[:, 0]
            answers[batches.rows(index)] = mean + deviation * scores.double().cpu().numpy()
        return answers

    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, Any]:
        assets, multi = model.assets, _multi_label(model)
        assert isinstance(model.config, ClassifyConfig)
        examples = self._read_file(model.config, path, assets.labels)
        check_shape(assets.reader, [e.input for e in examples], [e.place for e in examples])
        if empty := [e.place for e in examples if not len(e.input)]:
            note(f"Empty inputs count like all others. There are {len(empty)}, the first at {empty[0]}.")
        unknown = sum(assets.reader.unknowns(e.input) for e in examples)
        batches = self.batches(model.config, assets, examples, training=False)
        if assets.scale is not None:
            truth, found = numbers_of(examples), self._numbers(model, batches)
            usual = number_scores(truth, np.full(len(truth), assets.scale[0]))["rmse"]
            counts = {"examples": len(examples), "unknown_tokens": unknown}
            return {**number_scores(truth, found), "rmse_of_training_mean": usual, **counts}
        probabilities, loss = self._probabilities(model, batches)
        scores, confusion, known = judged(assets, examples, probabilities, multi)
        unseen = [label for e in examples for label in e.labels if label not in set(assets.labels)]
        if unseen:
            first = next(e for e in examples if set(e.labels) - set(assets.labels))
            note(
                f"Labels never seen in training count as wrong. There are {len(unseen)}, the first at {first.place}: "
                f"{', '.join(sorted(set(unseen))[:5])}."
            )
        result: dict[str, Any] = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
        if multi:
            result["micro_f1"] = scores.micro_f1
        labels = (*assets.labels, *sorted(set(unseen)))
        result |= {"nll": loss / known if known else None, "examples": len(examples), "unknown_labels": len(unseen)}
        result["unknown_tokens"] = unknown
        result["classes"] = per_class(labels, scores)
        if confusion is not None:
            named = [dict(zip(labels, row.tolist(), strict=True)) for row in confusion]
            result["confusion"] = dict(zip(labels, named, strict=True))
        return result

    def report(self, scores: Mapping[str, Any]) -> str:
        return report(scores)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """A `Classified` for one input, a list of them for several: texts, or arrays of frames; numbers: `Measured`."""
        alone = isinstance(inputs, (str, np.ndarray, Tensor))
        examples = checked_inputs(model, [inputs] if alone else inputs)
        answers: list[Classified] | list[Measured]
        batches = self._unlabelled(model, examples)
        if model.assets.scale is not None:
            answers = [Measured(float(value)) for value in self._numbers(model, batches)]
        else:
            answers = [_answer(model, row) for row in self._probabilities(model, batches)[0]]
        return answers[0] if alone else answers

    @torch.no_grad()
    def embed(self, model: Model, inputs: Any) -> NDArray[np.float32]:
        alone = isinstance(inputs, (str, np.ndarray, Tensor))
        batches = self._unlabelled(model, checked_inputs(model, [inputs] if alone else inputs))
        network = model.network
        assert isinstance(network, Classifier)
        network.eval()
        vectors = np.zeros((len(batches.examples), network.pool.output_size), dtype=np.float32)
        for index in range(len(batches)):
            vectors[batches.rows(index)] = network.encode(batches[index].to(model.device)).float().cpu().numpy()
        return vectors[0] if alone else vectors

    def word_vectors(self, model: Model) -> Vectors:
        reader, network = model.assets.reader, model.network
        assert isinstance(network, Classifier)
        if isinstance(network.input, WordInput):
            return network.input.word_vectors(reader.words)
        if isinstance(network.input, TokenInput):
            return token_vectors(reader.tokenizer, network.input.embedding.weight)
        return super().word_vectors(model)

    def trace(self, model: Model, inputs: Any, **options: Any) -> ModelTrace:
        """Every gate and state on one input, and the loss of a label. Options: see `classify_trace.OPTIONS`."""
        chosen = read_options(self.trace_options, options)
        (one,) = checked_inputs(model, [inputs])
        batch = self._unlabelled(model, [one])[0].to(model.device)
        network, reader = model.network, model.assets.reader
        assert isinstance(network, Classifier)
        tokens = reader.tokens(one)
        if (scale := model.assets.scale) is not None:
            return trace_number(network, batch, tokens, scale, **chosen)

        def score(texts: Sequence[str]) -> Tensor:
            batches = self._unlabelled(model, list(texts))
            rows = torch.zeros(len(texts), len(model.assets.labels), device=model.device)
            for index in range(len(batches)):
                rows[torch.from_numpy(batches.rows(index))] = network(batches[index].to(model.device)).float()
            return rows

        return trace_classifier(
            network,
            batch,
            tokens,
            model.assets.labels,
            several=_multi_label(model),
            text=one if isinstance(one, str) else None,
            score=score,
            **chosen,
        )

    def example(self, examples: Any, number: int) -> Example:
        found = nth(examples, number)
        return Example(found.input, found.labels)

    def _unlabelled(self, model: Model, inputs: list[Any]) -> Buckets:
        reader: Reader = model.assets.reader
        lengths = [reader.length(one) for one in inputs]
        assert isinstance(model.config, ClassifyConfig)
        buckets = model.config.model.ngrams

        def collate(part: list[Any]) -> Batch:
            batch = reader.batch(part, torch.zeros(0))
            return replace(batch, more={**batch.more, **ngrams_of(part, buckets)})

        return Buckets(inputs, lengths, collate, batch_size=AT_ONCE)

    def inputs(self, model: Model, request: Request) -> Iterator[Any]:
        if not model.assets.reader.frames:
            yield from super().inputs(model, request)
            return
        if not request.files:
            raise UserError("This model reads frames, not text.", "Give a .npz file with an array `frames`.")
        for file in request.files:
            yield from read_frames(file)

    def piped(self, model: Model, lines: Iterable[str]) -> Iterator[str]:
        """Lines, or the texts of a table or of fastText's lines, whose labels are not read."""
        assert isinstance(model.config, ClassifyConfig)
        plain = (without_labels(line) if line.startswith(FASTTEXT) else line for line in lines)
        return piped_texts(plain, model.config.data.text_column, "text", "label")

    def rows(self, model: Model, file: str, keep: Sequence[str] = ()) -> list[Row]:
        """The texts of a table like those of training, whose labels are not read; else the lines."""
        assert isinstance(model.config, ClassifyConfig)
        column = model.config.data.text_column
        if is_fasttext(file) and not keep:
            lines = enumerate(read_lines(file), 1)
            return [Row((without_labels(line),), f"{file}:{number}") for number, line in lines]
        rows = read_texts(file, column, "text", 2, keep=keep, beside=["label"])
        texts = {row.values[0].strip() for row in rows}
        unnamed = column is None and is_table(Path(file)) and rows[0].place == f"{file}:1"  # it has no header
        if unnamed and texts <= set(model.assets.labels):
            shown = ", ".join(sorted(texts)[:3])
            raise UserError(
                f"The texts of {file} are the labels themselves: {shown}.",
                "Say which column holds the texts: --set data.text_column=1",
            )
        return rows

    def given(self, model: Model, request: Request) -> Iterator[Given]:
        empty = 0
        for one in super().given(model, request):
            empty += isinstance(one.input, str) and not one.input.strip()
            yield one
        if empty:
            note(f"{empty} inputs are empty: their answers say nothing but what is usual.")

    def record(self, one: Any, answer: Classified | Measured) -> dict[str, Any]:
        shown = one if isinstance(one, str) else f"{len(one)} frames"
        if isinstance(answer, Measured):
            return {"input": shown, "value": answer.value}
        several = {"labels": list(answer.labels)} if answer.several else {}
        return {"input": shown, "label": answer.label, **several, "probabilities": answer.probabilities}

    def warnings(self, config: ClassifyConfig, batches: Batches) -> list[str]:
        assert isinstance(batches, Buckets)
        empty = int((batches.lengths == 0).sum())
        return [f"Note: {empty} training examples are empty."] if empty else []

    def statistics(self, config: ClassifyConfig, data: Data, assets: ClassifyAssets) -> dict[str, Any]:
        known = {key_of(example.input) for example in data.train}
        lengths = [assets.reader.length(example.input) for example in data.train]
        shared = sum(key_of(example.input) in known for example in data.valid)
        return {
            "train examples": len(data.train),
            "valid examples": len(data.valid),
            **about_answers(assets, data),
            "reads": str(assets.reader),
            "length, mean / longest": f"{np.mean(lengths):.1f} / {max(lengths)}",
            "valid tokens unknown": sum(assets.reader.unknowns(example.input) for example in data.valid),
            "valid inputs also in train": f"{shared} of {len(data.valid)}",
        }


def _multi_label(model: Model) -> bool:
    assert isinstance(model.config, ClassifyConfig)
    return model.config.data.multi_label


def _answer(model: Model, row: NDArray[np.float32]) -> Classified:
    labels: tuple[str, ...] = model.assets.labels
    probabilities = {label: float(p) for label, p in zip(labels, row, strict=True)}
    if _multi_label(model):
        return Classified(tuple(label for label, p in probabilities.items() if p >= 0.5), probabilities, several=True)
    return Classified((labels[int(row.argmax())],), probabilities)
