"""`classify`: a text or a sequence of frames in, one label or several out (S20)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from unrolled.config import Section
from unrolled.data import Batch, Buckets, held_out
from unrolled.data.docstrings import DOCSTRINGS, embedded_labels
from unrolled.data.labelled import Labelled, check_frames, read_frames, read_labelled
from unrolled.data.tables import read_texts
from unrolled.errors import UserError, note
from unrolled.metrics import ClassScores, class_scores, label_scores
from unrolled.model import Model
from unrolled.models.classifier import Classifier, ClassifierSettings
from unrolled.models.inputs import FrameInput, TokenInput, WordInput, token_vectors
from unrolled.nn.checks import check_options
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.base import Data, Example, Request, Task, nth, table_of
from unrolled.tasks.classify_trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.classify_trace import trace_classifier
from unrolled.tasks.reading import LEVEL, Reader, load_vectors
from unrolled.text import split_words
from unrolled.text.ngrams import ngram_ids
from unrolled.text.vectors import Vectors
from unrolled.training import Batches, ExampleTraining, Goal, Loss, consistency, hash_of
from unrolled.training.consistency import twice

AT_ONCE = 256  # sequences in a batch when there are no gradients
MOST_CONFUSED = 20  # classes of which the report shows a confusion matrix


class ClassifyData(Section):
    """What to read, and what a token is."""

    train: str | None = Field(
        None, description="label TAB text (.tsv); .csv, .jsonl, .parquet; frames in .npz; none: docstrings in Python."
    )
    valid: str | None = Field(None, description="A file to validate on; none: a part of the training examples.")
    valid_fraction: float = Field(0.1, gt=0, lt=1, description="How large a part, if there is no valid file.")
    text_column: str | None = Field(None, description="Name or number of the text's column; none: 2 in .tsv, text.")
    label_column: str | None = Field(None, description="Name or number of the label's column; none: 1 in .tsv, label.")
    multi_label: bool = Field(False, description="Any number of labels each, separated by label_separator.")
    label_separator: str = Field(",", min_length=1, description="Between the labels of one example.")
    level: LEVEL = Field(
        "auto", description="A token is a word with its letters, a character, …; auto: word, char for one or two words."
    )
    lowercase: bool = Field(True, description="Look words up in lower case; their letters are read as they are.")
    min_count: int = Field(2, ge=1, description="Rarer words are unknown, and known by their letters only.")
    max_size: int | None = Field(None, ge=2, description="Largest vocabulary; none: everything, 8000 for bpe.")
    vectors: str | None = Field(None, description="level=word: pretrained vectors, word2vec or GloVe text, or .npz.")


class ClassifyTraining(ExampleTraining):
    """Training on separate sequences."""

    usual_epochs: ClassVar[int] = 10
    usual_updates: ClassVar[int] = 2000
    lr: float = Field(4e-3, gt=0, description="Learning rate at its highest; lr / 3 if the loss jumps about.")
    average: float = Field(
        0.99, ge=0, lt=1, description="Decay of a running mean of the weights, which is evaluated and kept; 0: none."
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: every class counts as much as any other, however rare it is."
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Share of certainty given to all classes alike.")


class ClassifyConfig(Section):
    """A config of `classify`."""

    task: Literal["classify"] = Field("classify", description="What the config is for.")
    data: ClassifyData = ClassifyData()
    model: ClassifierSettings = ClassifierSettings()
    train: ClassifyTraining = ClassifyTraining()


@dataclass(frozen=True)
class Classified:
    """The answer to one input: its label, or labels, and the probability of every label.

    Of one label each the probabilities add up to 1; of several each stands for itself, and those of 0.5 or more are
    the answer.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    several: bool = False  # whether there may be any number of labels

    @property
    def label(self) -> str:
        """The one label; several are joined by commas."""
        return ",".join(self.labels)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class ClassifyAssets:
    """What the training examples taught before training: their labels, and how a sequence is read."""

    labels: tuple[str, ...]
    counts: tuple[int, ...]  # of each label in the training examples
    reader: Reader

    def targets(self, examples: Sequence[Labelled], multi_label: bool) -> Tensor:
        """(B,) class numbers, −1 for a label that training never saw; or (B, C) of 0 and 1."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        if not multi_label:
            return torch.tensor([numbers.get(example.labels[0], -1) for example in examples])
        table = torch.zeros(len(examples), len(self.labels))
        for row, example in enumerate(examples):
            table[row, [numbers[label] for label in example.labels if label in numbers]] = 1
        return table

    def weights(self, targets: Tensor) -> Tensor:
        """What makes every class count alike: (B,) for one label each, (B, C) for several."""
        counts = torch.tensor(self.counts, dtype=torch.float32).clamp(min=1)
        if targets.dim() == 1:
            return (counts.sum() / len(counts) / counts)[targets]
        return torch.where(targets > 0, counts.mean() / counts, 1.0)


class Classify(Task):
    """One label, or several, for a text or a sequence of frames."""

    name: ClassVar[str] = "classify"
    config_class: ClassVar[type[Section]] = ClassifyConfig
    unit: ClassVar[str] = "examples"
    inherited: ClassVar[tuple[str, ...]] = ("level", "lowercase", "multi_label")
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS

    def goal(self, config: ClassifyConfig, assets: ClassifyAssets) -> Goal:
        return Goal("micro_f1" if config.data.multi_label else "accuracy", higher_is_better=True)

    def read(self, config: ClassifyConfig) -> Data:
        settings = config.data
        if settings.train is None:
            examples = [Labelled(line, (module,), "") for module, line in embedded_labels()]
        else:
            examples = self._read_file(config, settings.train)
        if settings.valid is not None:
            train, valid = examples, self._read_file(config, settings.valid)
        else:
            if len(examples) < 2:
                raise UserError(f"{settings.train} holds one example.", "Give more, or a file with data.valid.")
            first, second = held_out([_key(example.input) for example in examples], settings.valid_fraction)
            train, valid = [examples[i] for i in first], [examples[i] for i in second]
        parts = (_key(e.input) + b"\0" + "\0".join(e.labels).encode() for e in (*train, *valid))
        return Data(train, valid, settings.train or DOCSTRINGS, hash_of(b"%d" % len(train), *parts))

    def _read_file(self, config: ClassifyConfig, path: str | Path) -> list[Labelled]:
        settings = config.data
        return read_labelled(
            path,
            text_column=settings.text_column,
            label_column=settings.label_column,
            separator=settings.label_separator if settings.multi_label else None,
        )

    def make_assets(self, config: ClassifyConfig, data: Data, init: ClassifyAssets | None = None) -> ClassifyAssets:
        counts = Counter(label for example in data.train for label in example.labels)
        if len(counts) < 2 and not (counts and config.data.multi_label):
            only = next(iter(counts), "none at all")
            raise UserError(f"All training examples have one label: {only!r}.", "Give examples of two classes or more.")
        labels = tuple(sorted(counts))
        if init is not None:
            labels = (*init.labels, *(label for label in labels if label not in init.labels))
        asked = {label for example in data.valid for label in example.labels}
        if config.data.valid is not None and asked and asked.isdisjoint(labels):
            raise UserError(
                "No validation example has a label of the training examples, so that none says which network is best.",
                f"Labels in training: {', '.join(labels[:5])}.",
            )
        inputs = [example.input for example in data.train]
        reader = Reader.train(config.data, inputs) if init is None else init.reader.extended(inputs)
        return ClassifyAssets(labels, tuple(counts[label] for label in labels), reader)

    def assets_to_json(self, assets: ClassifyAssets) -> Any:
        return {"labels": list(assets.labels), "counts": list(assets.counts), "reader": assets.reader.to_json()}

    def assets_from_json(self, stored: Any) -> ClassifyAssets:
        return ClassifyAssets(tuple(stored["labels"]), tuple(stored["counts"]), Reader.from_json(stored["reader"]))

    def build(self, config: ClassifyConfig, assets: ClassifyAssets) -> nn.Module:
        inputs = assets.reader.build(config.model)
        return Classifier(config.model, inputs, len(assets.labels))

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
            more = {**batch.more, **_ngrams([example.input for example in part], config.model.ngrams)}
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
        losses = _losses(scores, batch.targets)
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
        probabilities, loss = self._probabilities(model, batches)
        multi = _multi_label(model)
        scores, _, known = _judged(model.assets, batches.examples, probabilities, multi)
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
                    total += float(_losses(scores, batch.targets).sum())
        return table, total

    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, Any]:
        assets, multi = model.assets, _multi_label(model)
        assert isinstance(model.config, ClassifyConfig)
        examples = self._read_file(model.config, path)
        _check_shape(assets.reader, [e.input for e in examples], [e.place for e in examples])
        batches = self.batches(model.config, assets, examples, training=False)
        probabilities, loss = self._probabilities(model, batches)
        scores, confusion, known = _judged(assets, examples, probabilities, multi)
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
        result["unknown_tokens"] = sum(assets.reader.unknowns(e.input) for e in examples)
        result["classes"] = _per_class(labels, scores)
        if confusion is not None:
            named = [dict(zip(labels, row.tolist(), strict=True)) for row in confusion]
            result["confusion"] = dict(zip(labels, named, strict=True))
        return result

    def report(self, scores: Mapping[str, Any]) -> str:
        plain = {name: value for name, value in scores.items() if not isinstance(value, Mapping)}
        width = max(len(label) for label in [*scores["classes"], "class"])
        lines = [f"{'class':<{width}}  precision  recall      f1   count"]
        for label, row in scores["classes"].items():
            numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['count']:6,}"
            lines.append(f"{label:<{width}}  {numbers}")
        parts = [table_of(plain), "\n".join(lines)]
        confusion = scores.get("confusion", {})
        if 0 < len(confusion) <= MOST_CONFUSED:
            parts.append(_confusion_table(confusion))
        return "\n\n".join(parts)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """A `Classified` for one input, a list of them for several: texts, or arrays of frames."""
        check_options(self.name, options, [])
        alone = isinstance(inputs, (str, np.ndarray, Tensor))
        examples = _examples(model, [inputs] if alone else inputs)
        table, _ = self._probabilities(model, self._unlabelled(model, examples))
        answers = [_answer(model, row) for row in table]
        return answers[0] if alone else answers

    @torch.no_grad()
    def embed(self, model: Model, inputs: Any) -> NDArray[np.float32]:
        alone = isinstance(inputs, (str, np.ndarray, Tensor))
        batches = self._unlabelled(model, _examples(model, [inputs] if alone else inputs))
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
        (one,) = _examples(model, [inputs])
        batch = self._unlabelled(model, [one])[0].to(model.device)
        network, reader = model.network, model.assets.reader
        assert isinstance(network, Classifier)

        def score(texts: Sequence[str]) -> Tensor:
            batches = self._unlabelled(model, list(texts))
            rows = torch.zeros(len(texts), len(model.assets.labels), device=model.device)
            for index in range(len(batches)):
                rows[torch.from_numpy(batches.rows(index))] = network(batches[index].to(model.device)).float()
            return rows

        return trace_classifier(
            network,
            batch,
            reader.tokens(one),
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
            return replace(batch, more={**batch.more, **_ngrams(part, buckets)})

        return Buckets(inputs, lengths, collate, batch_size=AT_ONCE)

    def inputs(self, model: Model, request: Request) -> Iterator[Any]:
        if not model.assets.reader.frames:
            yield from super().inputs(model, request)
            return
        if not request.files:
            raise UserError("This model reads frames, not text.", "Give a .npz file with an array `frames`.")
        for file in request.files:
            yield from read_frames(file)

    def texts(self, model: Model, file: str) -> list[str]:
        """The texts of a table like those of training, whose labels are not read; else the lines."""
        assert isinstance(model.config, ClassifyConfig)
        return read_texts(file, model.config.data.text_column, "text", 2)

    def record(self, one: Any, answer: Classified) -> dict[str, Any]:
        shown = one if isinstance(one, str) else f"{len(one)} frames"
        several = {"labels": list(answer.labels)} if answer.several else {}
        return {"input": shown, "label": answer.label, **several, "probabilities": answer.probabilities}

    def warnings(self, config: ClassifyConfig, batches: Batches) -> list[str]:
        assert isinstance(batches, Buckets)
        empty = int((batches.lengths == 0).sum())
        return [f"Note: {empty} training examples are empty."] if empty else []

    def statistics(self, config: ClassifyConfig, data: Data, assets: ClassifyAssets) -> dict[str, Any]:
        known = {_key(example.input) for example in data.train}
        lengths = [assets.reader.length(example.input) for example in data.train]
        shared = sum(_key(example.input) in known for example in data.valid)
        unseen = sum(not set(e.labels) <= set(assets.labels) for e in data.valid)
        order = sorted(zip(assets.labels, assets.counts, strict=True), key=lambda pair: -pair[1])
        shown = ", ".join(f"{label} {count}" for label, count in order[:8]) + (", …" if len(order) > 8 else "")
        return {
            "train examples": len(data.train),
            "valid examples": len(data.valid),
            "labels": f"{len(assets.labels)}: {shown}",
            "valid labels never in train": unseen,
            "reads": str(assets.reader),
            "length, mean / longest": f"{np.mean(lengths):.1f} / {max(lengths)}",
            "valid tokens unknown": sum(assets.reader.unknowns(example.input) for example in data.valid),
            "valid inputs also in train": f"{shared} of {len(data.valid)}",
        }


def _ngrams(inputs: Sequence[Any], buckets: int) -> dict[str, Tensor]:
    """The n-grams of texts, end to end, for an EmbeddingBag; a text's weights have the length 1."""
    if not buckets or not isinstance(inputs[0], str):
        return {}
    found = [ngram_ids(split_words(text), buckets) for text in inputs]
    counts = torch.tensor([len(ids) for ids in found])
    weights = (1 / counts.clamp(min=1).sqrt()).repeat_interleave(counts)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)[:-1]])
    return {"ngrams": torch.from_numpy(np.concatenate(found)), "ngram_starts": starts, "ngram_weights": weights}


def _key(one: Any) -> bytes:
    return one.encode() if isinstance(one, str) else np.ascontiguousarray(one).tobytes()


def _multi_label(model: Model) -> bool:
    assert isinstance(model.config, ClassifyConfig)
    return model.config.data.multi_label


def _losses(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats: (B,), or (B, C) where every label stands for itself."""
    if targets.dim() == 2:
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    # −1 stands for a label that training never saw: there is no score to compare it with
    return F.cross_entropy(scores, targets, ignore_index=-1, reduction="none")


def _judged(
    assets: ClassifyAssets, examples: Sequence[Any], probabilities: NDArray[np.float32], multi: bool
) -> tuple[ClassScores, NDArray[np.int64] | None, int]:
    """The scores, what was taken for what, and how many examples have a loss.

    Labels that training never saw are classes too, after the others: no answer is ever one of them.
    """
    unseen = sorted({label for example in examples for label in example.labels} - set(assets.labels))
    truth = replace(assets, labels=(*assets.labels, *unseen)).targets(examples, multi).numpy()
    if multi:
        answers = np.pad(probabilities >= 0.5, ((0, 0), (0, len(unseen))))
        return label_scores(truth > 0.5, answers), None, len(examples)
    known = int((truth < len(assets.labels)).sum())
    return *class_scores(truth, probabilities.argmax(axis=1), len(assets.labels) + len(unseen)), known


def _per_class(labels: Sequence[str], scores: ClassScores) -> dict[str, dict[str, float]]:
    columns = zip(labels, scores.precision, scores.recall, scores.f1, scores.support, strict=True)
    return {
        label: {"precision": float(p), "recall": float(r), "f1": float(f), "count": int(n)}
        for label, p, r, f, n in columns
    }


def _confusion_table(confusion: Mapping[str, Mapping[str, int]]) -> str:
    labels = list(confusion)
    width = max(map(len, labels))
    cells = [[str(confusion[truth][answer]) for answer in labels] for truth in labels]
    wide = [max(len(f"{i + 1}"), *(len(row[i]) for row in cells)) for i in range(len(labels))]
    lines = [" " * (width + 4) + "  ".join(f"{i + 1:>{w}}" for i, w in enumerate(wide)) + "   answered"]
    for number, (label, row) in enumerate(zip(labels, cells, strict=True), 1):
        lines.append(f"{number:>2} {label:<{width}} " + "  ".join(f"{c:>{w}}" for c, w in zip(row, wide, strict=True)))
    return "\n".join(lines)


def _answer(model: Model, row: NDArray[np.float32]) -> Classified:
    labels: tuple[str, ...] = model.assets.labels
    probabilities = {label: float(p) for label, p in zip(labels, row, strict=True)}
    if _multi_label(model):
        return Classified(tuple(label for label, p in probabilities.items() if p >= 0.5), probabilities, several=True)
    return Classified((labels[int(row.argmax())],), probabilities)


def _examples(model: Model, inputs: Any) -> list[Any]:
    reader: Reader = model.assets.reader
    if not isinstance(inputs, (list, tuple)):
        raise UserError(f"The input is {type(inputs).__name__}.", f"Expected {reader.expects}, or a list of them.")
    if reader.frames:
        given = [one.cpu().numpy() if isinstance(one, Tensor) else np.asarray(one) for one in inputs]
        checked = [check_frames(one, f"Input {number}") for number, one in enumerate(given, 1)]
        _check_shape(reader, checked, [f"Input {number}" for number in range(1, len(checked) + 1)])
        return checked
    for number, one in enumerate(inputs, 1):
        if not isinstance(one, str):
            raise UserError(f"Input {number} is {type(one).__name__}.", f"Expected {reader.expects}.")
    return list(inputs)


def _check_shape(reader: Reader, inputs: Sequence[Any], places: Sequence[str]) -> None:
    for one, place in zip(inputs, places, strict=True):
        if isinstance(one, str) == bool(reader.frames):
            raise UserError(
                f"{place} is {'text' if isinstance(one, str) else 'frames'}.", f"Expected {reader.expects}."
            )
        if reader.frames and one.shape[1:] != reader.frames:
            raise UserError(
                f"{place} has frames of shape {one.shape[1:]}.", f"Expected {reader.frames}, as in training."
            )
