"""`tag`: a tag for every word of a sentence (S21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, Buckets, held_out
from unrolled.data.python_source import EMBEDDED_SOURCE, embedded_sentences
from unrolled.data.sentences import Columns, Sentence
from unrolled.data.tagged import read_sentences
from unrolled.errors import UserError, note
from unrolled.metrics.spans import Scheme, may_follow, scheme_of
from unrolled.metrics.tagging import span_scores, tag_scores
from unrolled.model import Model
from unrolled.models.inputs import word_batch
from unrolled.models.tagger import Forbidden, Tagger, TaggerSettings
from unrolled.nn.checks import check_options
from unrolled.tasks.base import Data, Task, table_of
from unrolled.text.vocabulary import UNK, Vocabulary
from unrolled.text.words import Words, split_words
from unrolled.training import Batches, Goal, Loss, TrainSettings, cross_entropy, hash_of

AT_ONCE = 64  # sentences in a batch when a model is used
VALIDATION = ("span_f1", "accuracy", "macro_f1", "unknown_word_accuracy", "tokens")  # scores followed in training


class DataSettings(Section):
    """What to read: CoNLL-U, CoNLL-2000/2003 columns, JSON lines or Parquet; each may be packed as .gz but the last."""

    train: str | None = Field(None, description="Sentences with tags; none: the source of Python's own library.")
    valid: str | None = Field(None, description="Sentences to validate on; none: some of the training sentences.")
    valid_fraction: float = Field(0.1, gt=0, lt=1, description="How many of them, if there is no valid file.")
    column: Literal["upos", "xpos", "feats", "deprel", "lemma", "head", "deps", "misc"] = Field(
        "upos", description="CoNLL-U: the column to learn."
    )
    word_column: str | None = Field(None, description="Other files: words; none: the first column, or `tokens`.")
    tag_column: str | None = Field(None, description="Other files: tags; none: the last column, or `tags`.")
    feature_columns: list[str] = Field(
        [], description="Further columns that the model reads: numbers from 1 on, or names."
    )
    min_count: int = Field(1, ge=1, description="Rarer words are known by their letters only.")
    lowercase: bool = Field(True, description="Look words up in lower case; letters are read as they are.")

    @property
    def columns(self) -> Columns:
        return Columns(self.word_column, self.tag_column, tuple(self.feature_columns), self.column)


class TagConfig(Section):
    """A config of `tag`."""

    task: Literal["tag"] = Field("tag", description="What the config is for.")
    data: DataSettings = DataSettings()
    model: TaggerSettings = TaggerSettings()
    train: TrainSettings = TrainSettings()


@dataclass(frozen=True)
class TagAssets:
    """What is known before training: words and letters, the values of features, tags, and how they mark spans."""

    words: Words
    features: tuple[Vocabulary, ...]
    tags: Vocabulary
    scheme: Scheme | None

    @property
    def goal(self) -> Goal:
        return Goal("accuracy" if self.scheme is None else "span_f1", higher_is_better=True)


class Tag(Task):
    """Part of speech, chunks, names, or any other label for each word."""

    name: ClassVar[str] = "tag"
    config_class: ClassVar[type[Section]] = TagConfig

    def goal(self, config: TagConfig, assets: TagAssets) -> Goal:
        return assets.goal

    def read(self, config: TagConfig) -> Data:
        settings = config.data
        if settings.train is None:
            train, valid = embedded_sentences()
            source = f"{EMBEDDED_SOURCE}; its scores compare with nothing"
        else:
            train, source, valid = _with_words(settings, settings.train), settings.train, []
        if settings.valid is not None:
            valid = _with_words(settings, settings.valid)
        if not valid:
            kept, held = held_out([sentence.words for sentence in train], settings.valid_fraction)
            if not held:
                raise UserError(f"{source} holds one sentence.", "Give more, or a file to validate on: data.valid.")
            train, valid = [train[i] for i in kept], [train[i] for i in held]
        texts = (repr([(s.words, s.tags, s.features) for s in part]).encode() for part in (train, valid))
        return Data(train, valid, source, hash_of(*texts))

    def make_assets(self, config: TagConfig, data: Data, init: TagAssets | None = None) -> TagAssets:
        sentences: list[Sentence] = data.train
        tags = sorted({tag for s in sentences for tag in s.tags or ()})
        scheme = scheme_of(s.tags or () for s in sentences)
        words = [s.words for s in sentences]
        values = [[v for s in sentences for v in s.features[i]] for i in range(len(config.data.feature_columns))]
        if init is not None:
            features = tuple(old.extended(new) for old, new in zip(init.features, values, strict=True))
            return TagAssets(init.words.extended(words), features, init.tags.extended(tags), init.scheme)
        if len(tags) < 2:
            raise UserError(
                f"Every word of {data.source} has the tag {tags[0]!r}: there is nothing to learn.",
                "Give another column: data.column for CoNLL-U, or data.tag_column.",
            )
        made = Words.train(words, min_count=config.data.min_count, lowercase=config.data.lowercase)
        features = tuple(Vocabulary(sorted(set(v)), [UNK]) for v in values)
        return TagAssets(made, features, Vocabulary(tags), scheme)

    def assets_to_json(self, assets: TagAssets) -> Any:
        return {
            "words": assets.words.to_json(),
            "features": [values.to_json() for values in assets.features],
            "tags": assets.tags.to_json(),
            "scheme": assets.scheme,
        }

    def assets_from_json(self, stored: Any) -> TagAssets:
        return TagAssets(
            Words.from_json(stored["words"]),
            tuple(Vocabulary.from_json(values) for values in stored["features"]),
            Vocabulary.from_json(stored["tags"]),
            stored["scheme"],
        )

    def build(self, config: TagConfig, assets: TagAssets) -> nn.Module:
        settings, spans = config.model, assets.scheme is not None
        return Tagger(
            settings,
            words=len(assets.words.vocabulary),
            letters=len(assets.words.letters),
            features=[len(values) for values in assets.features],
            tags=len(assets.tags),
            crf=settings.output == "crf" or (settings.output == "auto" and spans),
            forbidden=forbidden_by(assets) if settings.legal else None,
        )

    def batches(self, config: TagConfig, assets: TagAssets, examples: Sequence[Sentence], *, training: bool) -> Buckets:
        return Buckets(
            examples,
            [len(sentence) for sentence in examples],
            lambda part: collate(assets, part),
            batch_size=config.train.batch_size if training else AT_ONCE,
            seed=config.train.seed if training else None,
        )

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        assert isinstance(network, Tagger)
        assert batch.lengths is not None
        scores = network(batch)
        if network.crf is None:
            return cross_entropy(scores, batch)
        return Loss(-network.crf(scores, batch.targets, batch.lengths).sum(), batch.lengths.sum())

    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        assert isinstance(batches, Buckets)
        sentences: Sequence[Sentence] = batches.examples
        scores, _ = self.score(model, sentences, self.tags(model, batches))
        return {name: scores[name] for name in VALIDATION if name in scores}

    def tags(self, model: Model, batches: Buckets) -> list[list[str]]:
        """The tags of all examples, in their order."""
        network, names = model.network, model.assets.tags
        assert isinstance(network, Tagger)
        network.eval()
        found: list[list[str]] = [[] for _ in batches.examples]
        for number in range(len(batches)):
            paths = network.decode(batches[number].to(model.device))
            for row, path in zip(batches.rows(number), paths, strict=True):
                found[row] = [names[tag] for tag in path]
        return found

    def score(
        self, model: Model, sentences: Sequence[Sentence], predicted: list[list[str]]
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """Numbers, and tables by tag and by kind of span."""
        assets: TagAssets = model.assets
        gold = [list(s.tags or ()) for s in sentences]
        scores, by_tag = tag_scores(gold, predicted)
        tables: dict[str, Any] = {"tags": by_tag}
        if assets.scheme is not None:
            spans, tables["spans"] = span_scores(gold, predicted)
            scores = {**spans, **scores}
        known = np.concatenate([assets.words.ids(s.words) != 0 for s in sentences])
        right = np.array([a == b for one, other in zip(gold, predicted, strict=True) for a, b in zip(one, other)])
        for name, chosen in (("known", known), ("unknown", ~known)):
            if chosen.any():
                scores[f"{name}_word_accuracy"] = float(right[chosen].mean())
        strange = sum(tag not in assets.tags for tags in gold for tag in tags)
        counts = {"sentences": len(sentences), "tokens": len(right), "unknown_words": int((~known).sum())}
        return {**scores, **counts, "unknown_labels": strange}, tables

    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, Any]:
        sentences = _with_words(_settings(model), path)
        scores, tables = self.score(model, sentences, self.predicted(model, sentences))
        if scores["unknown_labels"]:
            names = sorted({tag for s in sentences for tag in s.tags or () if tag not in model.assets.tags})
            note(
                f"{scores['unknown_labels']} words of {path} have tags never seen in training: {', '.join(names[:10])}."
            )
        return {**scores, **tables}

    def predicted(self, model: Model, sentences: Sequence[Sentence]) -> list[list[str]]:
        return self.tags(model, self.batches(model.config, model.assets, sentences, training=False))  # type: ignore[arg-type]

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """[(word, tag), …] for a text, or a list of those for a list of texts or of lists of words."""
        check_options("predict", options, [])
        single = isinstance(inputs, (str, Sentence, Mapping))
        sentences = [sentence_from(model, one) for one in ([inputs] if single else inputs)]
        answers = [
            list(zip(s.words, tags, strict=True))
            for s, tags in zip(sentences, self.predicted(model, sentences), strict=True)
        ]
        return answers[0] if single else answers

    def record(self, one: Any, answer: list[tuple[str, str]]) -> dict[str, Any]:
        return {"tokens": [word for word, _ in answer], "tags": [tag for _, tag in answer]}

    def line(self, one: Any, answer: list[tuple[str, str]]) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in answer) + "\n"

    def report(self, scores: Mapping[str, Any]) -> str:
        parts = [table_of({name: value for name, value in scores.items() if not isinstance(value, Mapping)})]
        for title in ("spans", "tags"):
            if title in scores:
                parts.append(_table(title, scores[title]))
        return "\n\n".join(parts)


def collate(assets: TagAssets, sentences: Sequence[Sentence]) -> Batch:
    """A batch; tags never seen in training are −1."""
    inputs, lengths, more = word_batch(assets.words, [sentence.words for sentence in sentences])
    targets = torch.zeros_like(inputs)
    for row, sentence in enumerate(sentences):
        if sentence.tags is not None:
            ids = [assets.tags.id(tag) if tag in assets.tags else -1 for tag in sentence.tags]
            targets[row, : len(sentence)] = torch.tensor(ids)
    if assets.features:
        features = torch.zeros(*inputs.shape, len(assets.features), dtype=torch.long)
        for row, sentence in enumerate(sentences):
            for i, values in enumerate(assets.features):
                features[row, : len(sentence), i] = torch.from_numpy(values.ids(sentence.features[i]).astype(np.int64))
        more["features"] = features
    return Batch(inputs, targets, lengths=lengths, more=more)


def forbidden_by(assets: TagAssets) -> Forbidden | None:
    """What no legal sequence of spans has."""
    if assets.scheme is None:
        return None
    names, scheme = assets.tags.tokens, assets.scheme
    transitions = torch.tensor([[not may_follow(a, b, scheme) for b in names] for a in names])
    first = torch.tensor([not may_follow(None, tag, scheme) for tag in names])
    last = torch.tensor([not may_follow(tag, None, scheme) for tag in names])
    return transitions, first, last


def sentence_from(model: Model, one: Any) -> Sentence:
    """What a user gave as an input: a text, a list of words, or words with features by name."""
    if isinstance(one, Sentence):
        return one
    if isinstance(one, str):
        one = split_words(one)
    if isinstance(one, (list, tuple)) and all(isinstance(word, str) for word in one):
        return Sentence(tuple(one))
    raise UserError(f"An input must be a text or a list of words, got {one!r}.")


def _settings(model: Model) -> DataSettings:
    assert isinstance(model.config, TagConfig)
    return model.config.data


def _with_words(settings: DataSettings, path: str | Path) -> list[Sentence]:
    """The sentences of a file that are not empty."""
    sentences = read_sentences(path, settings.columns)
    found = [sentence for sentence in sentences if len(sentence)]
    if len(found) < len(sentences):
        note(f"{len(sentences) - len(found)} empty sentences of {path} are left out.")
    return found


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    width = max([len(title), *map(len, rows)])
    lines = [f"{title:<{width}}  precision  recall      f1  support"]
    for name, row in rows.items():
        numbers = f"{row['precision']:9.4f}  {row['recall']:.4f}  {row['f1']:.4f}  {row['support']:7,}"
        lines.append(f"{name:<{width}}  {numbers}")
    return "\n".join(lines)
