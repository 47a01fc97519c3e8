"""The vocabularies of a tagger, and batches of sentences or frames. Stored in the model file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import DAMAGED, Size, stored_as, stored_entry
from unrolled.data import Batch
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.data.batching.tables import FrameSequences, SequenceTable, WordTable
from unrolled.data.readers.tagged.frames import Tagged, TaggedFrames
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import UserError
from unrolled.metrics.spans import Scheme, may_follow, spans_of, tags_of
from unrolled.text.vocabulary import Vocabulary
from unrolled.text.words import Words

ForbiddenMasks = tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]
"""Masks of transitions (K, K), first tags (K,) and last tags (K,) that are forbidden."""


@dataclass(frozen=True)
class TagAssets:
    """The vocabularies of the training sentences: words and letters, values of features, tags and their scheme.

    A tagger of vectors has the shape of its `frames` in place of `words`.
    """

    words: Words | None
    features: tuple[Vocabulary, ...]
    tags: Vocabulary  # as the data has them
    scheme: Scheme | None  # how they mark spans, if they do
    inner: Vocabulary | None = None  # the same spans in BIOES tags, where that is what the network learns
    vector_size: int | None = None  # of pretrained vectors
    untrained: tuple[int, int] = (0, 0)  # first and, exclusive, last word that has a vector but is in no sentence
    frames: tuple[int, ...] = ()  # the shape of one frame
    frame_columns: tuple[str, ...] = ()  # the names of its numbers, where the training file had them

    def collate(self, examples: Sequence[Tagged]) -> Batch:
        """Sequences side by side as tensors; the target of a tag that training never saw is −1."""
        return self.arrays(examples).to("cpu")

    def arrays(self, examples: Sequence[Tagged]) -> Batch:
        """The same as NumPy's arrays."""
        return self.table(examples)(np.arange(len(examples)))

    def table(self, examples: Sequence[Tagged], letters: bool = True) -> Callable[[Rows], Batch]:
        """A function that makes a batch of the sequences of some numbers; words and tags are looked up once, here.

        A network without a speller needs no `letters`.
        """
        inputs: SequenceTable
        if self.words is None:
            inputs = FrameSequences([one.frames for one in examples if isinstance(one, TaggedFrames)], self.frames)
        else:
            inputs = WordTable(self.words, [one.words for one in examples if isinstance(one, Sentence)], letters)
        targets = Ragged.of([0] * len(one) if one.tags is None else self.targets(one.tags) for one in examples)
        features = self._features(examples)

        def gather(rows: Rows) -> Batch:
            batch = inputs.batch(rows, targets.padded(rows))
            if features is None:
                return batch
            return replace(batch, more={**batch.more, "features": features.padded(rows)})

        return gather

    def _features(self, examples: Sequence[Tagged]) -> Ragged | None:
        """The numbers of the values of all features, for each word, if there are any."""
        if not self.features:
            return None
        sentences = [one for one in examples if isinstance(one, Sentence)]
        columns = [
            values.ids(value for one in sentences for value in one.features[i])
            for i, values in enumerate(self.features)
        ]
        return Ragged(np.stack(columns, axis=1), [len(one) for one in sentences])

    @property
    def learnt(self) -> Vocabulary:
        """The tags that the network scores."""
        return self.inner or self.tags

    def targets(self, tags: Sequence[str]) -> list[int]:
        """The numbers of the tags to learn; −1: never seen in training."""
        inner = tags if self.inner is None else tags_of(spans_of(tags), len(tags), "BIOES")
        return _ids(inner, self.learnt)

    def tag_ids(self, tags: Sequence[str]) -> list[int]:
        """The numbers of tags as the data has them; −1: never seen in training."""
        return _ids(tags, self.tags)

    def names(self, path: Sequence[int]) -> list[str]:
        """Tags as the data has them, of the numbers that the network gave."""
        tags = [self.learnt[tag] for tag in path]
        if self.inner is None or self.scheme is None:
            return tags
        return tags_of(spans_of(tags), len(tags), self.scheme)

    def same_tag(self) -> NDArray[np.bool_]:
        """The tags of the network that become one tag of the data, (K, K): with spans, B with S, and I with E."""
        names = self.learnt.tokens
        if self.inner is None:
            return np.eye(len(names), dtype=np.bool_)
        ends = [{"S": "B", "E": "I"}.get(name[0], name[0]) + name[1:] for name in names]
        return np.array([[a == b for b in ends] for a in ends])

    def trained(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """True for words of the training sentences."""
        assert self.words is not None
        ids = self.words.ids(words)
        return (ids > 0) & ((ids < self.untrained[0]) | (ids >= self.untrained[1]))

    def forbidden(self) -> ForbiddenMasks | None:
        """The transitions that no legal sequence of spans has."""
        if self.scheme is None:
            return None
        names, scheme = self.learnt.tokens, self.scheme if self.inner is None else "BIOES"
        transitions = np.array([[not may_follow(a, b, scheme) for b in names] for a in names])
        first = np.array([not may_follow(None, tag, scheme) for tag in names])
        last = np.array([not may_follow(tag, None, scheme) for tag in names])
        return transitions, first, last

    def extended(self, examples: Sequence[Tagged], features: int) -> TagAssets:
        """Also knows what is new in these; what was known keeps its number."""
        check_kind(examples, self.frames)
        named = columns_of(examples)
        if named and self.frame_columns and named != self.frame_columns:
            raise UserError(
                f"The columns of the frames are {', '.join(named)}; the model to start from reads "
                f"{', '.join(self.frame_columns)}.",
                "Give the same columns in the same order.",
            )
        sentences = [one for one in examples if isinstance(one, Sentence)]
        if features != len(self.features):
            raise UserError(
                f"The model to start from reads {len(self.features)} feature columns, not {features}.",
                "Set data.feature_columns to as many.",
            )
        return replace(
            self,
            words=None if self.words is None else self.words.extended(s.words for s in sentences),
            features=tuple(old.extended(values_of(sentences, i)) for i, old in enumerate(self.features)),
            tags=self.tags.extended(outer_tags(examples, spans=self.inner is not None)),
            inner=None if self.inner is None else self.inner.extended(inner_tags(examples)),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "words": None if self.words is None else self.words.to_json(),
            "features": [values.to_json() for values in self.features],
            "tags": self.tags.to_json(),
            "scheme": self.scheme,
            "inner": None if self.inner is None else self.inner.to_json(),
            "vector_size": self.vector_size,
            "untrained": list(self.untrained),
            "frames": list(self.frames),
            **({"frame_columns": list(self.frame_columns)} if self.frame_columns else {}),
        }

    @classmethod
    def from_json(cls, stored: Any) -> TagAssets:
        def entry(name: str, kind: Any) -> Any:
            return stored_entry(stored, name, kind, "tagger")

        words, inner = (entry(name, dict[str, Any] | None) for name in ("words", "inner"))
        frames = stored_as(tuple[Size, ...], stored.get("frames", []), "shape of frames")
        if (words is None) != bool(frames) or len(frames) > 3:
            raise UserError("The stored tagger is damaged: expected words or frames.", DAMAGED)
        return cls(
            None if words is None else Words.from_json(words),
            tuple(Vocabulary.from_json(values) for values in entry("features", list[dict[str, Any]])),
            Vocabulary.from_json(entry("tags", dict[str, Any])),
            entry("scheme", Scheme | None),
            None if inner is None else Vocabulary.from_json(inner),
            entry("vector_size", Size | None),
            entry("untrained", tuple[int, int]),
            frames,
            stored_as(tuple[str, ...], stored.get("frame_columns", []), "columns of frames"),
        )


def frame_shape(examples: Sequence[Tagged]) -> tuple[int, ...]:
    """The shape of the frames of all examples, () of sentences; an error where they differ."""
    first = examples[0]
    shape = first.frames.shape[1:] if isinstance(first, TaggedFrames) else ()
    check_kind(examples, shape)
    return shape


def columns_of(examples: Sequence[Tagged]) -> tuple[str, ...]:
    """The names of the numbers of frames, where a file has them."""
    return examples[0].columns if isinstance(examples[0], TaggedFrames) else ()


def check_kind(examples: Sequence[Tagged], frames: tuple[int, ...]) -> None:
    """An error for words where frames are expected, the reverse, or frames of another shape."""
    expected = f"Expected an array of frames (steps, {', '.join(map(str, frames))})." if frames else "Expected words."
    for one in examples:
        if isinstance(one, TaggedFrames) != bool(frames):
            what = "frames" if isinstance(one, TaggedFrames) else "words"
            raise UserError(f"{one.place or 'The input'} holds {what}.", expected)
        if isinstance(one, TaggedFrames) and one.frames.shape[1:] != frames:
            raise UserError(f"{one.place or 'The input'} has frames of shape {one.frames.shape[1:]}.", expected)


def values_of(sentences: Sequence[Sentence], feature: int) -> list[str]:
    """All values of a feature."""
    return sorted({value for sentence in sentences for value in sentence.features[feature]})


def outer_tags(examples: Sequence[Tagged], *, spans: bool) -> list[str]:
    """All tags, and with `spans` all that spans of their kinds can need when BIOES tags are turned into IOB ones."""
    tags = {tag for one in examples for tag in one.tags or ()}
    if spans:
        kinds = {span.kind for one in examples for span in spans_of(one.tags or ())}
        tags |= {f"{mark}-{kind}" if kind else mark for mark in "BI" for kind in kinds} | {"O"}
    return sorted(tags)


def inner_tags(examples: Sequence[Tagged]) -> list[str]:
    """The BIOES tags of the same spans."""
    given = (one.tags or () for one in examples)
    return sorted({tag for tags in given for tag in tags_of(spans_of(tags), len(tags), "BIOES")})


def _ids(tags: Sequence[str], known: Vocabulary) -> list[int]:
    return [known.id(tag) if tag in known else -1 for tag in tags]
