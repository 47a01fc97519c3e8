"""Every path through a few frames, read in every way: the truth that searches are held to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unrolled.search.ngram import NGram

Words = tuple[str, ...]


def log_probs_of(frames: int, labels: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(frames, labels) * scale).log_softmax(-1)


def reads(path: Sequence[int], blank: int) -> tuple[int, ...]:
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def paths(log_probs: Tensor) -> Iterator[tuple[tuple[int, ...], float]]:
    rows = log_probs.double().tolist()
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(rows)):
        yield path, sum(row[label] for row, label in zip(rows, path, strict=True))


def merge(scores: Sequence[float], add: bool) -> float:
    most = max(scores)
    return most + math.log(sum(math.exp(score - most) for score in scores)) if add else most


def labellings(log_probs: Tensor, blank: int, add: bool) -> list[tuple[float, tuple[int, ...]]]:
    """All labellings and their scores, best first."""
    found: dict[tuple[int, ...], list[float]] = {}
    for path, score in paths(log_probs):
        found.setdefault(reads(path, blank), []).append(score)
    return sorted(((merge(scores, add), labels) for labels, scores in found.items()), reverse=True)


@dataclass
class Sentences:
    """Scores every sentence that some path can be read as."""

    labels: Sequence[str]
    spellings: Sequence[tuple[str, str]]  # word, letters
    blank: int = 0
    separator: str | None = None
    add: bool = False
    lm: NGram | None = None
    lm_weight: float = 1.0
    word_bonus: float = 0.0
    unknown_penalty: float | None = None

    def parses(self, text: str) -> Iterator[tuple[tuple[str, bool], ...]]:
        """Every way to cut letters into words: (word, whether it is known)."""
        if self.separator is not None:
            parts = [part for part in text.split(self.separator) if part]
            yield from itertools.product(*(list(self.words(part)) for part in parts))
            return
        if not text:
            yield ()
        for end in range(1, len(text) + 1):
            for word in self.words(text[:end]):
                yield from ((word, *rest) for rest in self.parses(text[end:]))

    def words(self, letters: str) -> Iterator[tuple[str, bool]]:
        known = [word for word, spelling in self.spellings if spelling == letters]
        yield from ((word, True) for word in known)
        if not known and self.unknown_penalty is not None:
            yield letters, False

    def score(self, words: tuple[tuple[str, bool], ...]) -> float:
        score = self.word_bonus * len(words)
        if self.unknown_penalty is not None:
            score += self.unknown_penalty * sum(not known for _, known in words)
        if self.lm is not None:
            texts = [word if known else "<unk>" for word, known in words]
            score += self.lm_weight * self.lm.score(texts)
        return score

    def best(self, log_probs: Tensor) -> list[tuple[float, Words]]:
        found: dict[tuple[tuple[str, bool], ...], list[float]] = {}
        for path, score in paths(log_probs):
            letters = "".join(self.labels[label] for label in reads(path, self.blank))
            for words in self.parses(letters):
                found.setdefault(words, []).append(score)
        scored = [
            (merge(scores, self.add) + self.score(words), tuple(word for word, _ in words))
            for words, scores in found.items()
        ]
        return sorted(scored, reverse=True)
