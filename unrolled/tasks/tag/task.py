"""`tag`: a tag for every word of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, Buckets, held_out
from unrolled.data.demo.python_source import EMBEDDED_SOURCE, embedded_sentences
from unrolled.data.readers.tagged.read_sentences import format_of, read_sentences
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import UserError, note
from unrolled.metrics.spans import scheme_of
from unrolled.model import Model
from unrolled.models.tagger import Tagger
from unrolled.tasks.contract import Data, Description, Task, Training, Traits
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.shared.reader import load_vectors
from unrolled.tasks.tag.assets import TagAssets, inner_tags, outer_tags, values_of
from unrolled.tasks.tag.batches import tag_batches
from unrolled.tasks.tag.config import TagConfig, TagData, check_columns
from unrolled.tasks.tag.describe import TagDescription
from unrolled.tasks.tag.options import OPTIONS
from unrolled.tasks.tag.predict import decode, paths_of, sentences_of, settings_of
from unrolled.tasks.tag.run import TagRunner
from unrolled.tasks.tag.scores import score_tags
from unrolled.tasks.tag.trace import TagTracer
from unrolled.tasks.tracer import Tracer
from unrolled.text.vectors import Vectors
from unrolled.text.vocabulary import UNK, Vocabulary
from unrolled.text.words import Words
from unrolled.training import Batches, Evaluation, Goal, Loss, cross_entropy, hash_of

FOLLOWED = ("span_f1", "accuracy", "macro_f1", "unknown_word_accuracy", "tokens")  # scores shown in training


class Tag(Task):
    """Parts of speech, chunks, names, or any other label for each word."""

    name: ClassVar[str] = "tag"
    config_class: ClassVar[type[Section]] = TagConfig
    options: ClassVar[TaskOptions] = OPTIONS
    assets_class: ClassVar[Any] = TagAssets
    runner: ClassVar[type[Runner]] = TagRunner
    tracer: ClassVar[type[Tracer]] = TagTracer
    description: ClassVar[Description] = TagDescription()
    inherited: ClassVar[tuple[str, ...]] = ("column", "lowercase", "feature_columns")
    file_keys: ClassVar[tuple[str, ...]] = ("word_column", "tag_column")

    def traits(self, config: TagConfig, assets: TagAssets) -> Traits:
        return Traits(Goal("accuracy" if assets.scheme is None else "span_f1", higher_is_better=True))

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

    def facts(self, config: TagConfig, assets: TagAssets) -> dict[str, Any]:
        tags = "no spans" if assets.scheme is None else f"spans in {assets.scheme}"
        output = config.model.output
        return {"tags": tags, "model.output": output if output != "auto" else "crf" if assets.scheme else "softmax"}

    def initialize(self, network: nn.Module, config: TagConfig, assets: TagAssets, data: Data) -> None:
        assert isinstance(network, Tagger)
        if config.data.vectors is not None:
            load_vectors(network.input, assets.words, config.data.vectors)

    def batches(self, config: TagConfig, assets: TagAssets, examples: Sequence[Sentence], *, training: bool) -> Buckets:
        return tag_batches(assets, examples, config.train if training else None)

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        assert isinstance(network, Tagger)
        assert batch.lengths is not None
        scores = network(batch)
        if network.crf is None:
            return cross_entropy(scores, batch)
        return Loss(-network.crf(scores, batch.targets, batch.lengths).sum(), batch.lengths.sum())

    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        assert isinstance(batches, Buckets)
        sentences: Sequence[Any] = batches.examples
        scores, _ = score_tags(model, sentences, paths_of(model, batches))
        return Evaluation({name: scores[name] for name in FOLLOWED if name in scores})

    def evaluate_file(self, model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
        settings = settings_of(model)
        sentences = _with_words(settings, path)
        if settings.tag_column is not None and format_of(Path(path)) == "conllu":
            note(f"{path} is CoNLL-U: its column {settings.column} is compared, and data.tag_column does not apply.")
        scores, tables = score_tags(model, sentences, paths_of(model, tag_batches(model.assets, sentences)))
        known = set(model.assets.tags.tokens)
        strange = next((s for s in sentences if not known.issuperset(s.tags or ())), None)
        if strange is not None:
            names = sorted({tag for s in sentences for tag in s.tags or ()} - known)
            note(
                f"{scores['unknown_labels']} tags were never seen in training, and count as wrong: "
                f"{', '.join(names[:5])} (first: {strange.place})."
            )
        return {**scores, **tables}

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """[(word, tag), …] for a text; for a list of texts, or of lists of words, a list of those.

        With `probabilities` it is [(word, tag, probability), …]. A model with feature columns needs them too:
        {"tokens": ["He", "ran"], "pos": ["PRP", "VBD"]}.
        """
        asked = bool(options.get("probabilities"))
        alone, sentences = sentences_of(model, inputs)
        answers: list[list[tuple[Any, ...]]] = []
        found = decode(model, tag_batches(model.assets, sentences), probabilities=asked)
        for sentence, (path, chances) in zip(sentences, found, strict=True):
            columns = [sentence.words, model.assets.names(path), *([chances] if asked else [])]
            answers.append(list(zip(*columns, strict=True)))
        return answers[0] if alone else answers


def _with_words(settings: TagData, path: str | Path) -> list[Sentence]:
    """The sentences of a file, without empty ones."""
    sentences = read_sentences(path, settings.columns)
    found = [sentence for sentence in sentences if len(sentence)]
    if len(found) < len(sentences):
        note(f"{len(sentences) - len(found)} empty sentences of {path} are left out.")
    return found
