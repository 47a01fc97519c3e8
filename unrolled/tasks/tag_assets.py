"""What a tagger knows before it is trained, and how sentences become numbers. Kept in the model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unrolled.data import Batch
from unrolled.data.sentences import Sentence
from unrolled.errors import UserError
from unrolled.metrics.spans import Scheme, may_follow
from unrolled.models.inputs import word_batch
from unrolled.models.tagger import Forbidden
from unrolled.text.vocabulary import Vocabulary
from unrolled.text.words import Words


@dataclass(frozen=True)
class TagAssets:
    """What training sentences teach before training: words and letters, features' values, tags and their scheme."""

    words: Words
    features: tuple[Vocabulary, ...]
    tags: Vocabulary
    scheme: Scheme | None  # how tags mark spans, if they do
    vector_size: int | None = None  # of pretrained vectors
    untrained: tuple[int, int] = (0, 0)  # first and, exclusive, last word that has a vector but is in no sentence

    def collate(self, sentences: Sequence[Sentence]) -> Batch:
        """Sentences side by side; the target of a tag that training never saw is −1."""
        inputs, lengths, more = word_batch(self.words, [sentence.words for sentence in sentences])
        targets = np.zeros(inputs.shape, dtype=np.int64)
        features = np.zeros((*inputs.shape, len(self.features)), dtype=np.int64)
        for row, sentence in enumerate(sentences):
            targets[row, : len(sentence)] = self.tag_ids(sentence.tags or ()) if sentence.tags else 0
            for i, values in enumerate(self.features):
                features[row, : len(sentence), i] = values.ids(sentence.features[i])
        if self.features:
            more["features"] = torch.from_numpy(features)
        return Batch(inputs, torch.from_numpy(targets), lengths=lengths, more=more)

    def tag_ids(self, tags: Sequence[str]) -> list[int]:
        return [self.tags.id(tag) if tag in self.tags else -1 for tag in tags]

    def trained(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Which words were in the training sentences."""
        ids = self.words.ids(words)
        return (ids > 0) & ((ids < self.untrained[0]) | (ids >= self.untrained[1]))

    def forbidden(self) -> Forbidden | None:
        """What no legal sequence of spans has."""
        if self.scheme is None:
            return None
        names, scheme = self.tags.tokens, self.scheme
        transitions = torch.tensor([[not may_follow(a, b, scheme) for b in names] for a in names])
        first = torch.tensor([not may_follow(None, tag, scheme) for tag in names])
        last = torch.tensor([not may_follow(tag, None, scheme) for tag in names])
        return transitions, first, last

    def extended(
        self, words: Sequence[Sequence[str]], values: Sequence[Sequence[str]], tags: Sequence[str]
    ) -> TagAssets:
        """Also knows what is new in these; what was known keeps its number."""
        if len(values) != len(self.features):
            raise UserError(
                f"The model to start from reads {len(self.features)} feature columns, not {len(values)}.",
                "Set data.feature_columns to as many.",
            )
        features = tuple(old.extended(new) for old, new in zip(self.features, values, strict=True))
        return replace(self, words=self.words.extended(words), features=features, tags=self.tags.extended(tags))

    def to_json(self) -> dict[str, Any]:
        return {
            "words": self.words.to_json(),
            "features": [values.to_json() for values in self.features],
            "tags": self.tags.to_json(),
            "scheme": self.scheme,
            "vector_size": self.vector_size,
            "untrained": list(self.untrained),
        }

    @classmethod
    def from_json(cls, stored: Any) -> TagAssets:
        first, last = stored["untrained"]
        return cls(
            Words.from_json(stored["words"]),
            tuple(Vocabulary.from_json(values) for values in stored["features"]),
            Vocabulary.from_json(stored["tags"]),
            stored["scheme"],
            stored["vector_size"],
            (first, last),
        )
