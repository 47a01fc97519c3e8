"""Modified Kneser–Ney estimates (Chen and Goodman 1998), interpolated, with the conventions of KenLM's lmplz.

Every sentence is `<s> w1 … wm </s>`. The adjusted count a of an n-gram is how often it occurs if it is of the highest
order or begins with `<s>`, else the number of different words that stand before it. Of each order,

    D(k) = k − (k + 1) · Y · t(k+1) / t(k),   Y = t1 / (t1 + 2 t2),   k = 1, 2, 3 or more,

where t(k) is the number of n-grams with a = k. With a(c ·) the sum of a(c w) over all words w,

    p(w | c) = (a(c w) − D(a(c w))) / a(c ·)  +  left(c) · p(w | c without its first word),
    left(c)  = Σ_w D(a(c w)) / a(c ·),

which ends at 1 / V, the same for each of V words: those of the text, `</s>` and `<unk>`. A pruned n-gram, one that
occurs at most as often as its order's threshold, has no first term, and its whole count is in left(c).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from unrolled.errors import UserError, note
from unrolled.search.ngram.plain import BEGIN, END, UNKNOWN, PlainNGram, Words

Discounts = tuple[float, float, float]
FALLBACK: Discounts = (0.5, 1.0, 1.5)  # where a text is too small for estimates, as lmplz --discount_fallback


def estimate(sentences: Iterable[Sequence[str]], order: int, prune: Sequence[int]) -> PlainNGram:
    """The model of a text, with all counts in memory: what native/ngram/kneser_ney.cpp does on disk."""
    actual, vocabulary, longest = _count(sentences, order)
    adjusted = [_adjusted(actual, length) for length in range(1, order + 1)]
    discounts = discounts_of([_counts_of_counts(counts) for counts in adjusted], longest)
    model = PlainNGram(order)
    size = len(vocabulary) + 2  # </s> and <unk>
    probs: dict[Words, float] = {}
    entries: list[list[Words]] = []
    left: dict[Words, float] = {}
    for counts, amounts, occurs, threshold in zip(adjusted, discounts, actual, prune, strict=True):
        kept = {ngram for ngram in counts if occurs[ngram] > threshold}
        sums: defaultdict[Words, int] = defaultdict(int)
        spared: defaultdict[Words, float] = defaultdict(float)
        for ngram, count in counts.items():
            sums[ngram[:-1]] += count
            spared[ngram[:-1]] += amounts[min(count, 3) - 1] if ngram in kept else count
        left |= {context: spared[context] / sums[context] for context in sums}
        if () in sums:
            kept |= {(word,) for word in (UNKNOWN, BEGIN, END, *vocabulary)}
        for ngram in kept:
            context, count = ngram[:-1], counts.get(ngram, 0)
            lower = probs[ngram[1:]] if ngram[1:] else 1 / size
            own = (count - amounts[min(count, 3) - 1]) / sums[context] if count else 0.0
            probs[ngram] = 1.0 if ngram == (BEGIN,) else own + left[context] * lower
        entries.append(sorted(kept))
    for length, ngrams in enumerate(entries, 1):
        for ngram in ngrams:
            backoff = math.log10(left[ngram]) if length < order and ngram in left else 0.0
            model.add(ngram, min(0.0, math.log10(probs[ngram])), backoff)
    return model


def _count(sentences: Iterable[Sequence[str]], order: int) -> tuple[list[Counter[Words]], list[str], int]:
    """Counts of every n-gram, by order; the words, without the special ones; the longest sentence."""
    counts: list[Counter[Words]] = [Counter() for _ in range(order)]
    longest = 0
    for sentence in sentences:
        words = (BEGIN, *sentence, END)
        longest = max(longest, len(sentence))
        for length in range(1, order + 1):
            counts[length - 1].update(words[i : i + length] for i in range(len(words) - length + 1))
    del counts[0][(BEGIN,)]  # nobody predicts it
    vocabulary = [word for (word,) in counts[0] if word not in (END, UNKNOWN)]
    return counts, vocabulary, longest


def _adjusted(actual: Sequence[Counter[Words]], length: int) -> dict[Words, int]:
    own = actual[length - 1]
    if length == len(actual):
        return dict(own)
    before: Counter[Words] = Counter(longer[1:] for longer in actual[length])
    return {ngram: count if ngram[0] == BEGIN else before[ngram] for ngram, count in own.items()}


def _counts_of_counts(counts: dict[Words, int]) -> list[int]:
    """Numbers of n-grams with the counts 1, 2, 3 and 4, and of all n-grams."""
    of = Counter(counts.values())
    return [of[1], of[2], of[3], of[4], len(counts)]


def discounts_of(counts_of_counts: Sequence[Sequence[int]], longest: int) -> list[Discounts]:
    """D1, D2 and D3+ of each order; where they are not defined, FALLBACK, with a note that says so."""
    discounts = []
    for order, (t1, t2, t3, t4, number, *_) in enumerate(counts_of_counts, 1):
        if number == 0:
            raise UserError(
                f"There are no {order}-grams: the longest sentence has {longest} words, two ends added.",
                f"Use an order of at most {order - 1}, or longer sentences.",
            )
        if (missing := next((k for k, t in enumerate((t1, t2, t3), 1) if t == 0), None)) is not None:
            why = f"no {order}-gram has the count {missing}"
        else:
            y = t1 / (t1 + 2 * t2)
            found = (1 - 2 * y * t2 / t1, 2 - 3 * y * t3 / t2, 3 - 4 * y * t4 / t3)
            # a discount of 0 could leave unseen words no probability: a back-off of log 0, which no ARPA file may hold
            if all(0 < amount <= k for k, amount in enumerate(found, 1)):
                discounts.append(found)
                continue
            why = "the estimates are out of range"
        note(
            f"The text is too small, or too regular, to estimate the discounts of {order}-grams: {why}. "
            f"Used instead: {', '.join(f'{amount:g}' for amount in FALLBACK)}."
        )
        discounts.append(FALLBACK)
    return discounts
