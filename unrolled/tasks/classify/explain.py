"""The words that decided: exact shares of the wide path, and what the network's score loses without each word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from unrolled.data.batching.ngrams import GROUPS, NgramCounts
from unrolled.errors import UserError
from unrolled.models.wide import LinearClassifier, WidePath
from unrolled.see.attribution import MOST_PIECES
from unrolled.tasks.classify.calibration import applying
from unrolled.text import split_words
from unrolled.text.ngrams import NgramKinds, letter_runs, run_hash, spelt_hash

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.classify.predict import Classified
    from unrolled.tasks.classify.regression import PredictedNumber

SHOWN = 20  # n-grams
Shares = NDArray[np.float64]


@dataclass(frozen=True)
class WordShare:
    """A word or sign of a text, from `start` up to `end`, and its part of the score."""

    text: str
    start: int
    end: int
    wide: float  # the shares of its n-grams; those of several words are divided among them
    network: float  # the network's score less that without the word

    @property
    def score(self) -> float:
        return self.wide + self.network


@dataclass(frozen=True)
class NgramShare:
    """An n-gram of the wide path; ^ and $ are the ends of a word."""

    text: str
    kind: str  # words or letters
    share: float


@dataclass(frozen=True)
class Explanation:
    """The words that speak for a label, and against it where their score is below 0.

    The score is that of the label less the mean of all; of several labels, or a number, the label's own. The shares of
    the wide path and `bias` add up to `wide_score`. The network's parts need not add up to `network_score`.
    """

    label: str
    words: tuple[WordShare, ...]
    ngrams: tuple[NgramShare, ...]  # the largest
    bias: float
    wide_score: float
    network_score: float

    def to_json(self) -> dict[str, Any]:
        words = [{**vars(one), "score": one.score} for one in self.words]
        ngrams = [dict(vars(one)) for one in self.ngrams]
        scores = {"bias": self.bias, "wide_score": self.wide_score, "network_score": self.network_score}
        return {"of": self.label, "words": words, "ngrams": ngrams, **scores}

    def __str__(self) -> str:
        """The words for and against, the strongest first, and the n-grams of the wide path."""
        order = sorted(self.words, key=lambda one: -abs(one.score))[:SHOWN]
        lines = [
            f"  {title} {self.label}: {', '.join(f'{one.text} {one.score:+.2f}' for one in some)}"
            for title, some in (
                ("for", [one for one in order if one.score > 0]),
                ("against", [one for one in order if one.score < 0]),
            )
            if some
        ]
        if self.ngrams:
            shown = ", ".join(f"{one.text} {one.share:+.2f}" for one in self.ngrams[:8])
            lines.append(f"  n-grams: {shown}")
        return "\n".join(lines)


def explained(
    model: Model, inputs: Sequence[Any], answers: Sequence[Classified | PredictedNumber]
) -> list[Classified | PredictedNumber]:
    """The answers with their explanations."""
    if model.assets.reader.frames:
        raise UserError("This model reads frames, and words are explained.", "Leave explain out.")
    return [
        replace(answer, explanation=_explanation(model, text, answer))
        for text, answer in zip(inputs, answers, strict=True)
    ]


def _explanation(model: Model, text: str, answer: Classified | PredictedNumber) -> Explanation:
    label, weights = _direction(model, answer)
    spans = word_spans(text)
    wide = getattr(model.network, "wide", None)
    shares, ngrams, bias = (
        _wide_shares(model, wide, text, weights) if wide is not None else (np.zeros(len(spans)), [], 0.0)
    )
    network, losses = _network_shares(model, text, spans, weights)
    words = tuple(
        WordShare(text[a:b], a, b, float(share), float(loss))
        for (a, b), share, loss in zip(spans, shares, losses, strict=True)
    )
    largest = tuple(sorted(ngrams, key=lambda one: (-abs(one.share), one.text))[:SHOWN])
    return Explanation(label, words, largest, bias, float(shares.sum()) + bias, network)


def _direction(model: Model, answer: Any) -> tuple[str, Shares]:
    """The label whose score is explained, and the weight of each label's score in it, (C,)."""
    if model.assets.scale is not None:
        return "the number", np.array([model.assets.scale[1]])
    labels: tuple[str, ...] = model.assets.labels
    chances = np.array([answer.probabilities[label] for label in labels], dtype=np.float32)
    best = int(chances.argmax())
    if answer.several:
        applies = applying(chances[None], model.assets.calibration)[0]
        best = int(np.where(applies, chances, -1).argmax()) if applies.any() else best
        return labels[best], np.eye(len(labels))[best]
    return labels[best], np.eye(len(labels))[best] - 1 / len(labels)


def word_spans(text: str) -> list[tuple[int, int]]:
    """The places of the words of `split_words`.

    >>> word_spans("no, no")
    [(0, 2), (2, 3), (4, 6)]
    """
    spans, place = [], 0
    for word in split_words(text):
        place = text.index(word, place)
        spans.append((place, place + len(word)))
        place += len(word)
    return spans


@torch.no_grad()
def _wide_shares(model: Model, wide: WidePath, text: str, weights: Shares) -> tuple[Shares, list[NgramShare], float]:
    """The shares of words, those of n-grams, and the bias."""
    kinds: NgramKinds = model.assets.wide.kinds
    words = split_words(text)
    entries = NgramCounts([words], kinds).gather(np.array([0]))
    rows = wide.places.cpu()[torch.from_numpy(entries["wide_ngrams"])].long()
    found = (wide.weight.cpu()[rows].double().numpy() @ weights) * entries["wide_weights"]
    shares, ngrams = np.zeros(len(words)), dict[tuple[str, str], float]()
    for (group, _), occurring, share in zip(*_occurrences(words, kinds), found, strict=True):
        for name, places in occurring:
            shares[places] += share / len(occurring) / len(places)
            key = (name, "letters" if group else "words")
            ngrams[key] = ngrams.get(key, 0.0) + share / len(occurring)
    bias = float(wide.bias.detach().cpu().double().numpy() @ weights)
    return shares, [NgramShare(*key, share) for key, share in ngrams.items() if share], bias


def _occurrences(
    words: Sequence[str], kinds: NgramKinds
) -> tuple[list[tuple[int, int]], list[list[tuple[str, list[int]]]]]:
    """Group and bucket of each entry of a text, in the order of `NgramCounts`, and its n-grams with their words."""
    lowered = [word.lower() for word in words]
    found: dict[tuple[int, int], list[tuple[str, list[int]]]] = {}
    for size in range(1, kinds.words + 1):
        for at in range(len(words) - size + 1):
            run = lowered[at : at + size]
            found.setdefault((0, run_hash(*run) % kinds.buckets), []).append((" ".join(run), [*range(at, at + size)]))
    for at, word in enumerate(lowered if kinds.letters else []):
        for letters in letter_runs(word, *kinds.letters):
            found.setdefault((GROUPS - 1, spelt_hash(letters) % kinds.buckets), []).append((letters, [at]))
    keys = sorted(found)
    return keys, [found[key] for key in keys]


@torch.no_grad()
def _network_shares(model: Model, text: str, spans: Sequence[tuple[int, int]], weights: Shares) -> tuple[float, Shares]:
    """The score of the network without the wide path, and what it loses without each word.

    In a long text, neighbouring words are left out together, and each gets an equal part.
    """
    if isinstance(model.network, LinearClassifier):
        return 0.0, np.zeros(len(spans))
    each = max(1, math.ceil(len(spans) / MOST_PIECES))
    groups = [spans[start : start + each] for start in range(0, len(spans), each)]
    texts = [text, *(f"{text[: group[0][0]]}{text[group[-1][1] :]}" for group in groups)]
    whole, *without = (_network_scores(model, texts) @ weights).tolist()
    losses = [(whole - other) / len(group) for group, other in zip(groups, without, strict=True) for _ in group]
    return whole, np.array(losses)


def _network_scores(model: Model, texts: list[str]) -> Shares:
    """The scores (N, C) without the wide path."""
    from unrolled.tasks.classify.predict import unlabelled

    batches, outputs = unlabelled(model, texts), max(1, len(model.assets.labels))
    table = np.zeros((len(texts), outputs))
    with model.answering():
        for index in range(len(batches)):
            rows, batch = batches.rows(index), model.placed(batches[index])
            if model.assets.wide is not None:
                silent = torch.zeros(len(rows), outputs, device=model.device)
                batch = replace(batch, more={**batch.more, "wide": silent})
            table[rows] = model.network(batch).double().cpu().numpy()
    return table
