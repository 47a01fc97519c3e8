"""Several n-gram models made one: the mixture, and weights fitted to a text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.search.ngram.plain import BEGIN, IMPOSSIBLE, PlainNGram, Words

_NOTHING = 1e-6  # of probabilities that sum to one
_ENOUGH = 1e-7  # change of a weight in a round of EM


def mix_plain(models: Sequence[PlainNGram], weights: Sequence[float]) -> PlainNGram:
    """One model of all their n-grams, with back-offs such that every context sums to one.

    p(w | c) = Σ weight · p_i(w | c) for the n-grams that any of them has. A word that a model does not have is
    impossible for it, not <unk>.
    """
    mixed = PlainNGram(max(model.order for model in models))
    stored = [words for model in models for table in model.tables for words in table]
    every = {words[:length] for words in stored for length in range(1, len(words) + 1)}  # contexts need back-offs
    for length in range(1, mixed.order + 1):
        table = {words: _prob(models, weights, words) for words in sorted(every) if len(words) == length}
        for words, prob in table.items():
            log10 = math.log10(prob) if prob > 0 else IMPOSSIBLE
            mixed.add(words, 0.0 if words == (BEGIN,) else min(0.0, log10), 0.0)
        if length > 1:
            _normalise(mixed, table)
    return mixed


def _prob(models: Sequence[PlainNGram], weights: Sequence[float], words: Words) -> float:
    total = 0.0
    for model, weight in zip(models, weights, strict=True):
        if words[-1:] in model.tables[0]:
            context = tuple(model.find(word) for word in words[-model.order : -1])
            total += weight * 10 ** model.score(context, words[-1])[0]
    return total


def _normalise(model: PlainNGram, longer: dict[Words, float]) -> None:
    """Sets the back-offs of the contexts of n-grams: what these leave, over what the words would have without them."""
    own: defaultdict[Words, float] = defaultdict(float)
    lower: defaultdict[Words, float] = defaultdict(float)
    for words, prob in longer.items():
        own[words[:-1]] += prob
        lower[words[:-1]] += 10 ** model.score(words[1:-1], words[-1])[0]
    for context, total in own.items():
        left, over = 1 - total, 1 - lower[context]
        if over > _NOTHING:
            table = model.tables[len(context) - 1]
            table[context] = (table[context][0], math.log10(left / over) if left > _NOTHING else IMPOSSIBLE)


def fit_weights(probs: Sequence[NDArray[np.float64]], rounds: int = 1000) -> list[float]:
    """The weights that make a text likeliest, by EM: probs are those of its words by each model.

    Each round gives a model the share of the text that it explains under the weights so far. Words that none of the
    models has are left out.

    >>> fit_weights([np.array([0.9, 0.1, 0.4]), np.array([0.3, 0.1, 0.4])])
    [0.99..., ...]
    """
    table = np.stack(probs, axis=1)  # (T, models)
    table = table[table.sum(axis=1) > 0]
    if not len(table):
        raise UserError("None of the models has a word of the text.", "Fit the weights on text like theirs.")
    weights = np.full(len(probs), 1 / len(probs))
    for _ in range(rounds):
        shares = table * weights
        new = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
        change = np.abs(new - weights).max()
        weights = new
        if change < _ENOUGH:
            break
    return [float(weight) for weight in weights]


def check_weights(weights: Sequence[float], count: int) -> list[float]:
    """Weights that sum to one: shares of what was given."""
    if len(weights) != count:
        raise UserError(f"There are {len(weights)} weights for {count} models.", "Give one for each.")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not sum(weights):
        raise UserError(f"weights={list(weights)} are not shares.", "Give numbers from 0 up, such as 0.7 and 0.3.")
    total = math.fsum(weights)
    return [weight / total for weight in weights]
