"""`tag`: a tag for every word of a sentence."""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, Buckets, held_out
from unrolled.data.demo.python_source import EMBEDDED_SOURCE, embedded_sentences
from unrolled.data.readers.tables.table import Row
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.data.readers.tagged.tagged import format_of, read_sentences, sentence_of
from unrolled.errors import UserError, note
from unrolled.metrics import class_scores
from unrolled.metrics.spans import scheme_of, span_scores
from unrolled.model import Model
from unrolled.models.tagger import Tagger
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.contract import Data, Example, Request, Task, nth, table_of
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.shared.reader import load_vectors
from unrolled.tasks.tag.assets import TagAssets, inner_tags, outer_tags, values_of
from unrolled.tasks.tag.config import TagConfig, TagData, check_columns
from unrolled.tasks.tag.options import OPTIONS
from unrolled.tasks.tag.predict import Document, Documents, in_a_row, words_of
from unrolled.tasks.tag.trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.tag.trace import trace_tagger
from unrolled.text.vectors import Vectors
from unrolled.text.vocabulary import UNK, Vocabulary
from unrolled.text.words import Words
from unrolled.training import Batches, Goal, Loss, cross_entropy, hash_of

AT_ONCE = 64  # sentences in a batch when there are no gradients
READ_AT_ONCE = 1024  # inputs that `run` reads before it answers
FOLLOWED = ("span_f1", "accuracy", "macro_f1", "unknown_word_accuracy", "tokens")  # scores shown in training


class Tag(Task):
    """Parts of speech, chunks, names, or any other label for each word."""

    name: ClassVar[str] = "tag"
    config_class: ClassVar[type[Section]] = TagConfig
    inherited: ClassVar[tuple[str, ...]] = ("column", "lowercase", "feature_columns")
    file_keys: ClassVar[tuple[str, ...]] = ("word_column", "tag_column")
    options: ClassVar[TaskOptions] = OPTIONS
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS

    def goal(self, config: TagConfig, assets: TagAssets) -> Goal:
        return Goal("accuracy" if assets.scheme is None else "span_f1", higher_is_better=True)

    def read(self, config: TagConfig) -> Data:
        settings = config.data
        valid: list[Sentence] = []
        if settings.train is None:
            train, valid = embedded_sentences()
        else:
            train = _with_words(settings, settings.train)
        if settings.valid is not None:
            valid = _with_words(settings, settings.valid)
        if not valid:
            kept, held = held_out([sentence.words for sentence in train], settings.valid_fraction)
            if not held:
                raise UserError(f"{settings.train} holds one sentence.", "Give more, or a file with data.valid.")
            train, valid = [train[i] for i in kept], [train[i] for i in held]
        parts = ("\0".join([*s.words, *(s.tags or ()), *sum(s.features, ())]).encode() for s in (*train, *valid))
        return Data(train, valid, settings.train or EMBEDDED_SOURCE, hash_of(b"%d" % len(train), *parts))

    def make_assets(self, config: TagConfig, data: Data, init: TagAssets | None = None) -> TagAssets:
        settings, sentences, columns = config.data, data.train, len(config.data.features)
        check_columns(settings, inherited=init is not None)
        if init is not None:
            return init.extended(sentences, columns)
        scheme = scheme_of(s.tags for s in sentences)
        bioes = config.model.bioes and scheme in ("IOB1", "IOB2") and config.model.output != "softmax"
        tags = outer_tags(sentences, spans=bioes)
        if len(tags) < 2:
            raise UserError(
                f"Every word of {data.source} has the tag {tags[0]!r}: there is nothing to learn.",
                "Give another column: data.column for CoNLL-U, data.tag_column for other files.",
            )
        words = Words.train((s.words for s in sentences), min_count=settings.min_count, lowercase=settings.lowercase)
        assets = TagAssets(
            words,
            tuple(Vocabulary(values_of(sentences, i), [UNK]) for i in range(columns)),
            Vocabulary(tags),
            scheme,
            Vocabulary(inner_tags(sentences)) if bioes else None,
        )
        if settings.vectors is None:
            return assets
        vectors, first = Vectors.read(settings.vectors), len(words.vocabulary)
        known = [word for word in vectors.words if not settings.lowercase or word == word.lower()]
        words = Words(words.vocabulary.extended(known), words.letters, lowercase=settings.lowercase)
        return replace(assets, words=words, vector_size=vectors.size, untrained=(first, len(words.vocabulary)))

    def assets_to_json(self, assets: TagAssets) -> Any:
        return assets.to_json()

    def assets_from_json(self, stored: Any) -> TagAssets:
        return TagAssets.from_json(stored)

    def build(self, config: TagConfig, assets: TagAssets) -> nn.Module:
        settings = config.model
        return Tagger(
            settings,
            words=len(assets.words.vocabulary),
            letters=len(assets.words.letters),
            vector_size=assets.vector_size,
            features=[len(values) for values in assets.features],
            tags=len(assets.learnt),
            crf=settings.output == "crf" or (settings.output == "auto" and assets.scheme is not None),
            forbidden=assets.forbidden() if settings.legal else None,
        )

    def initialize(self, network: nn.Module, config: TagConfig, assets: TagAssets, data: Data) -> None:
        assert isinstance(network, Tagger)
        if config.data.vectors is not None:
            load_vectors(network.input, assets.words, config.data.vectors)

    def batches(self, config: TagConfig, assets: TagAssets, examples: Sequence[Sentence], *, training: bool) -> Buckets:
        lengths = [len(sentence) for sentence in examples]
        size, seed = (config.train.batch_size, config.train.seed) if training else (AT_ONCE, None)
        return Buckets(examples, lengths, assets.collate, batch_size=size, seed=seed)

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        assert isinstance(network, Tagger)
        assert batch.lengths is not None
        scores = network(batch)
        if network.crf is None:
            return cross_entropy(scores, batch)
        return Loss(-network.crf(scores, batch.targets, batch.lengths).sum(), batch.lengths.sum())

    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        assert isinstance(batches, Buckets)
        sentences: Sequence[Any] = batches.examples
        scores, _ = self._score(model, sentences, self._paths(model, batches))
        return {name: scores[name] for name in FOLLOWED if name in scores}

    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, Any]:
        settings = _settings(model)
        sentences = _with_words(settings, path)
        if settings.tag_column is not None and format_of(Path(path)) == "conllu":
            note(f"{path} is CoNLL-U: its column {settings.column} is compared, and data.tag_column does not apply.")
        scores, tables = self._score(model, sentences, self._paths(model, self._unseen(model, sentences)))
        known = set(model.assets.tags.tokens)
        strange = next((s for s in sentences if not known.issuperset(s.tags or ())), None)
        if strange is not None:
            names = sorted({tag for s in sentences for tag in s.tags or ()} - known)
            note(
                f"{scores['unknown_labels']} tags were never seen in training, and count as wrong: "
                f"{', '.join(names[:5])} (first: {strange.place})."
            )
        return {**scores, **tables}

    @torch.no_grad()
    def _paths(self, model: Model, batches: Buckets) -> list[list[int]]:
        """The numbers of the tags of all examples, in their order."""
        return [path for path, _ in self._decoded(model, batches)]

    @torch.no_grad()
    def _decoded(
        self, model: Model, batches: Buckets, *, probabilities: bool = False
    ) -> list[tuple[list[int], list[float]]]:
        """The numbers of the tags of all examples, in their order, and how likely each tag is, where that is asked."""
        network = model.network
        assert isinstance(network, Tagger)
        network.eval()
        found: list[tuple[list[int], list[float]]] = [([], []) for _ in batches.examples]
        same = torch.from_numpy(model.assets.same_tag()).to(model.device)
        for index in range(len(batches)):
            batch = batches[index].to(model.device)
            scores = network(batch)
            chances = network.probabilities(batch, scores) if probabilities else None  # (B, T, K)
            paths = network.decode(batch, scores)
            for place, (row, path) in enumerate(zip(batches.rows(index), paths, strict=True)):
                found[row] = (path, [])
                if chances is not None and path:
                    likely = (chances[place, : len(path)] * same[path]).sum(-1).clamp(max=1.0)
                    found[row] = (path, likely.tolist())
        return found

    def _unseen(self, model: Model, sentences: Sequence[Sentence]) -> Buckets:
        assert isinstance(model.config, TagConfig)
        return self.batches(model.config, model.assets, sentences, training=False)

    def _score(
        self, model: Model, sentences: Sequence[Sentence], paths: list[list[int]]
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """Numbers, and tables by tag and by kind of span."""
        assets: TagAssets = model.assets
        named = [assets.names(path) for path in paths]
        truth = np.array([tag for s in sentences for tag in assets.tag_ids(s.tags or ())])
        answers = np.array([tag for tags in named for tag in assets.tag_ids(tags)])
        tags, _ = class_scores(truth, answers, len(assets.tags))
        scores = {"accuracy": tags.accuracy, "macro_f1": tags.macro_f1}
        tables: dict[str, Any] = {}
        if assets.scheme is not None:
            spans, tables["spans"] = span_scores([s.tags or () for s in sentences], named)
            scores = spans | scores
        seen = {*truth.tolist(), *answers.tolist()}
        rows = zip(assets.tags, tags.precision, tags.recall, tags.f1, tags.support, strict=True)
        tables["tags"] = {
            tag: {"precision": float(p), "recall": float(r), "f1": float(f), "count": int(n)}
            for number, (tag, p, r, f, n) in enumerate(rows)
            if number in seen
        }
        trained = np.concatenate([assets.trained(s.words) for s in sentences])
        for name, chosen in (("known", trained), ("unknown", ~trained)):
            if chosen.any():
                scores[f"{name}_word_accuracy"] = float((truth == answers)[chosen].mean())
        scores |= {"sentences": len(sentences), "tokens": len(truth), "unknown_words": int((~trained).sum())}
        return scores | {"unknown_labels": int((truth < 0).sum())}, tables

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """[(word, tag), …] for a text; for a list of texts, or of lists of words, a list of those.

        With `probabilities` it is [(word, tag, probability), …]. A model with feature columns needs them too:
        {"tokens": ["He", "ran"], "pos": ["PRP", "VBD"]}.
        """
        asked = bool(options.get("probabilities"))
        alone, sentences = _sentences(model, inputs)
        answers: list[list[tuple[Any, ...]]] = []
        found = self._decoded(model, self._unseen(model, sentences), probabilities=asked)
        for sentence, (path, chances) in zip(sentences, found, strict=True):
            columns = [sentence.words, model.assets.names(path), *([chances] if asked else [])]
            answers.append(list(zip(*columns, strict=True)))
        return answers[0] if alone else answers

    def _tags(self, model: Model, sentences: Sequence[Sentence]) -> list[list[str]]:
        return [model.assets.names(path) for path in self._paths(model, self._unseen(model, sentences))]

    @torch.no_grad()
    def embed(self, model: Model, inputs: Any) -> NDArray[np.float32]:
        """The mean of the states of a sentence's words."""
        alone, sentences = _sentences(model, inputs)
        batches = self._unseen(model, sentences)
        network = model.network
        assert isinstance(network, Tagger)
        network.eval()
        vectors = np.zeros((len(batches.examples), network.scores.in_features), dtype=np.float32)
        for index in range(len(batches)):
            batch = batches[index].to(model.device)
            assert batch.lengths is not None
            sums = (network.states(batch) * batch.mask[..., None]).sum(1)  # (B, D)
            vectors[batches.rows(index)] = (sums / batch.lengths.clamp(min=1)[:, None]).float().cpu().numpy()
        return vectors[0] if alone else vectors

    def trace(self, model: Model, inputs: Any, **options: Any) -> ModelTrace:
        """Every gate and state on a sentence, and the loss of each word's tag."""
        chosen = read_options(self.trace_options, options)
        sentence = _sentence(model, inputs)
        assert isinstance(model.network, Tagger)
        batch = model.assets.collate([sentence]).to(model.device)
        if chosen["truth"] is None:
            chosen["truth"] = sentence.tags
        return trace_tagger(model.network, batch, list(sentence.words), model.assets, **chosen)

    def example(self, examples: Any, number: int) -> Example:
        found: Sentence = nth(examples, number)
        return Example(found, found.tags)

    def word_vectors(self, model: Model) -> Vectors:
        assert isinstance(model.network, Tagger)
        return model.network.input.word_vectors(model.assets.words)

    def inputs(self, model: Model, request: Request) -> Iterator[Any]:
        for document in self._documents(model).of(request):
            yield from document.sentences

    def run(self, model: Model, request: Request, **options: Any) -> Iterator[str]:
        """Files of CoNLL-U or columns come back with their tags in place; a text as word/TAG on a line.

        As csv there is a row for every word: the number of the sentence, the word, the tag.
        """
        if request.format == "jsonl":
            yield from super().run(model, request, probabilities=True)
        elif request.format == "csv":
            yield "sentence,token,tag,probability\n"
            found = self._answers(model, self.inputs(model, request), probabilities=True)
            for number, (_, answer) in enumerate(found, 1):
                yield "".join(csv_line((number, word, tag, round(p, 6))) for word, tag, p in answer)
        else:
            yield from in_a_row(self._written(model, one) for one in self._documents(model).of(request))

    def _written(self, model: Model, document: Document) -> Iterator[str]:
        if document.write is not None:
            sentences = [_sentence(model, one) for one in document.sentences]
            yield from document.write(self._tags(model, sentences))
        else:
            for one, answer in self._answers(model, iter(document.sentences)):
                yield self.line(one, answer)

    def _documents(self, model: Model) -> Documents:
        return Documents(_settings(model).columns, model.assets.tags, model.assets.features)

    def _answers(
        self, model: Model, inputs: Iterator[Any], **options: Any
    ) -> Iterator[tuple[Any, list[tuple[Any, ...]]]]:
        while chunk := list(itertools.islice(inputs, READ_AT_ONCE)):
            yield from zip(chunk, self.predict(model, chunk, **options), strict=True)

    def record(self, one: Any, answer: list[tuple[str, str, float]]) -> dict[str, Any]:
        words, tags, chances = zip(*answer, strict=True) if answer else ((), (), ())
        return {"tokens": words, "tags": tags, "probabilities": [round(p, 6) for p in chances]}

    def line(self, one: Any, answer: list[tuple[str, str]]) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in answer) + "\n"

    def report(self, scores: Mapping[str, Any]) -> str:
        plain = {name: value for name, value in scores.items() if not isinstance(value, Mapping)}
        tables = [_table(name, scores[name]) for name in ("spans", "tags") if name in scores]
        return "\n\n".join([table_of(plain), *tables])

    def statistics(self, config: TagConfig, data: Data, assets: TagAssets) -> dict[str, Any]:
        seen, counts = {s.words for s in data.train}, Counter(tag for s in data.train for tag in s.tags)
        lengths = [len(s) for s in data.train]
        shown = ", ".join(f"{tag} {count}" for tag, count in counts.most_common(8)) + (", …" if len(counts) > 8 else "")
        return {
            "train sentences": f"{len(data.train)}, {sum(lengths)} words",
            "valid sentences": f"{len(data.valid)}, {sum(len(s) for s in data.valid)} words",
            "tags": f"{len(counts)}: {shown}",
            "spans": assets.scheme or "none",
            "reads": f"words, {len(assets.words.vocabulary):,} known, {len(assets.words.letters)} letters",
            "sentence length, mean / longest": f"{np.mean(lengths):.1f} / {max(lengths)} words",
            "valid words unknown": int(sum((~assets.trained(s.words)).sum() for s in data.valid)),
            "valid tags never in train": sum(tag not in counts for s in data.valid for tag in s.tags),
            "valid sentences also in train": f"{sum(s.words in seen for s in data.valid)} of {len(data.valid)}",
        }


def csv_line(row: Sequence[Any]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow(row)
    return file.getvalue()


def _sentences(model: Model, inputs: Any) -> tuple[bool, list[Sentence]]:
    """Whether a user gave one input, not several; and the sentences."""
    alone = isinstance(inputs, (str, Sentence, Mapping))
    if not alone and (isinstance(inputs, bytes) or not isinstance(inputs, Iterable)):
        raise _no_input(inputs)
    return alone, [_sentence(model, one) for one in ([inputs] if alone else inputs)]


def _sentence(model: Model, one: Any) -> Sentence:
    """What a user gave as an input: a text, a list of words, or a record of words and features."""
    settings = _settings(model)
    if isinstance(one, Sentence):
        return one
    if isinstance(one, Mapping):
        names = (settings.columns.words or "tokens", *settings.features)
        if missing := [name for name in names if name not in one]:
            raise UserError(f"The input has no {missing[0]!r}.", f"It has: {', '.join(map(str, one)) or 'nothing'}.")
        return sentence_of(Row(tuple(one[name] for name in names), "The input"), names)
    if settings.features:
        raise UserError(
            f"This model reads more than words: the columns {', '.join(settings.features)}.",
            "Give them too: a file, or from Python a dictionary of lists by name.",
        )
    words = words_of(one) if isinstance(one, str) else one
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise _no_input(one)
    return Sentence(tuple(words))


def _no_input(one: Any) -> UserError:
    return UserError(f"An input is {type(one).__name__}.", "Expected a text or a list of words, or a list of them.")


def _settings(model: Model) -> TagData:
    assert isinstance(model.config, TagConfig)
    return model.config.data


def _with_words(settings: TagData, path: str | Path) -> list[Sentence]:
    """The sentences of a file that are not empty."""
    sentences = read_sentences(path, settings.columns)
    found = [sentence for sentence in sentences if len(sentence)]
    if len(found) < len(sentences):
        note(f"{len(sentences) - len(found)} empty sentences of {path} are left out.")
    return found


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    width = max([len(title), *map(len, rows)])
    lines = [f"{title:<{width}}  precision  recall      f1   count"]
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["count"]):
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['count']:6,}"
        lines.append(f"{name:<{width}}  {numbers}")
    return "\n".join(lines)
