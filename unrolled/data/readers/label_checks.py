"""Checks for suspicious labels: sentences, decimal numbers, a different label for every example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from unrolled.data.readers.labelled import Labelled

FEWEST = 8  # rows needed to judge a column
ALMOST_ALL = 0.9
MANY_TIMES = 4  # different labels per text, or rows per text
SENTENCE = 3  # mean words of a label that make it a sentence
NUMBERS = 10  # classes of the largest scale of ratings
_DECIMAL = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def look_swapped(examples: Sequence[Labelled], known: Collection[str] = ()) -> str | None:
    """Evidence that the columns of labels and texts are swapped, or None.

    The texts repeat a few words and the labels are longer: they differ in almost every row, or they are sentences, far
    more varied than the texts. Or the texts are labels that a model knows, and the labels are not. `known` are the
    labels of the model.

    >>> rows = [Labelled("good" if i % 2 else "bad", (f"a film of {i} hours",), "") for i in range(10)]
    >>> look_swapped(rows)
    "10 labels in 10 rows, such as 'a film of 0 hours', and 2 texts, such as 'bad'"
    """
    pairs = [(e.labels[0], e.input) for e in examples if len(e.labels) == 1 and isinstance(e.input, str)]
    if not pairs or len(pairs) < ALMOST_ALL * len(examples):
        return None
    labels, texts = {label for label, _ in pairs}, {text for _, text in pairs}
    repeated = len(texts) <= max(2, len(pairs) / MANY_TIMES)
    unique = len(labels) >= ALMOST_ALL * len(pairs)
    longer = sum(len(label) for label, _ in pairs) > 1.5 * sum(len(text) for _, text in pairs)
    by_columns = len(pairs) >= FEWEST and repeated and longer and (unique or _are_sentences(pairs, labels, texts))
    by_model = bool(known) and labels.isdisjoint(known) and {text.strip() for text in texts} <= set(known)
    if not (by_columns or by_model):
        return None
    label, text = (one if len(one) <= 40 else one[:39] + "…" for one in pairs[0])
    return f"{len(labels)} labels in {len(pairs)} rows, such as {label!r}, and {len(texts)} texts, such as {text!r}"


def _are_sentences(pairs: Sequence[tuple[str, str]], labels: Collection[str], texts: Collection[str]) -> bool:
    """True if the labels of pairs (label, text) are sentences, many for each text, and the texts are not."""
    words = sum(len(label.split()) for label, _ in pairs)
    many = len(labels) >= max(FEWEST, MANY_TIMES * len(texts))
    return many and words >= SENTENCE * len(pairs) and words > 1.5 * sum(len(text.split()) for _, text in pairs)


def label_warnings(counts: Counter[str], examples: int) -> list[str]:
    """Warnings about the labels of the training examples.

    >>> label_warnings(Counter({"good": 7, "bad": 3}), 10)
    []
    """
    said = []
    numbers = bool(counts) and all(_DECIMAL.fullmatch(label) for label in counts)
    points = numbers and any(not label.strip().lstrip("+-").isdecimal() for label in counts)  # 4.5, but also 1.0
    fractions = points and (not _finite(counts) or any(float(label) != int(float(label)) for label in counts))
    first = ", ".join(sorted(counts, key=float)[:3]) + (", …" if len(counts) > 3 else "") if numbers else ""
    if numbers and len(counts) > NUMBERS and (fractions or len(counts) > examples / 3):
        said.append(
            f"The labels are numbers ({first}): {len(counts)} classes, and a classifier "
            "does not know their order. To predict a number, use data.kind=number; for classes, put the numbers "
            "into a few ranges."
        )
    elif points:
        said.append(
            f"The labels are numbers with decimals ({first}), read as {len(counts)} classes. "
            "To predict a number, use data.kind=number."
        )
    alone = sum(count == 1 for count in counts.values())
    if not said and examples >= FEWEST and alone >= ALMOST_ALL * examples:
        said.append(
            f"{alone} of {examples} training examples have a label that no other example has, so that "
            f"nothing can be learnt: {_shown(counts)}. Are these the labels? "
            "See data.label_column and data.text_column."
        )
    return said


def _finite(numbers: Collection[str]) -> bool:
    return all(abs(float(number)) < 1e300 for number in numbers)


def _shown(counts: Counter[str]) -> str:
    return ", ".join(repr(label if len(label) <= 30 else label[:29] + "…") for label in list(counts)[:3]) + ", …"
