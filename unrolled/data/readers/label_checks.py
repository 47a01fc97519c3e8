"""Labels that can hardly be meant: sentences, numbers with decimals, one of its own for every example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from unrolled.data.readers.labelled import Labelled

FEWEST = 8  # rows that say something about a column
ALMOST_ALL = 0.9
MANY_TIMES = 4  # as many different labels as texts, or rows as texts
SENTENCE = 3  # words that a label seldom has, taken over all rows
NUMBERS = 10  # as many classes as a scale of ratings may have
_DECIMAL = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def look_swapped(examples: Sequence[Labelled], known: Collection[str] = ()) -> str | None:
    """Why the labels and the texts seem to stand in each other's columns, None where they do not.

    The texts are a few words again and again, and the labels are the longer ones: they differ in almost every row, or
    they are sentences, with far more different ones than there are different texts. Or the texts are labels that a
    model knows, and the labels are not. `known` are those of the model.

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
    """Whether the labels of pairs (label, text) are sentences, many for each text, and the texts are not."""
    words = sum(len(label.split()) for label, _ in pairs)
    many = len(labels) >= max(FEWEST, MANY_TIMES * len(texts))
    return many and words >= SENTENCE * len(pairs) and words > 1.5 * sum(len(text.split()) for _, text in pairs)


def label_warnings(counts: Counter[str], examples: int) -> list[str]:
    """What a user should be told of the labels of so many training examples.

    >>> label_warnings(Counter({"good": 7, "bad": 3}), 10)
    []
    """
    said = []
    numbers = bool(counts) and all(_DECIMAL.fullmatch(label) for label in counts)
    points = numbers and any(not label.strip().lstrip("+-").isdecimal() for label in counts)  # 4.5, and 1.0 too
    fractions = points and (not _finite(counts) or any(float(label) != int(float(label)) for label in counts))
    first = ", ".join(sorted(counts, key=float)[:3]) + (", …" if len(counts) > 3 else "") if numbers else ""
    if numbers and len(counts) > NUMBERS and (fractions or len(counts) > examples / 3):
        said.append(
            f"The labels are numbers ({first}): {len(counts)} classes, none of which is near another to a "
            "classifier. To predict a number, use data.kind=number; for classes, put the numbers into a few ranges."
        )
    elif points:
        said.append(
            f"The labels are numbers with decimals ({first}), read as {len(counts)} classes. "
            "To predict a number, use data.kind=number."
        )
    alone = sum(count == 1 for count in counts.values())
    if not said and examples >= FEWEST and alone >= ALMOST_ALL * examples:
        said.append(
            f"{alone} of {examples} training examples have a label of their own, so that there is nothing to learn "
            f"from others: {_shown(counts)}. Are these the labels? See data.label_column and data.text_column."
        )
    return said


def _finite(numbers: Collection[str]) -> bool:
    return all(abs(float(number)) < 1e300 for number in numbers)


def _shown(counts: Counter[str]) -> str:
    return ", ".join(repr(label if len(label) <= 30 else label[:29] + "…") for label in list(counts)[:3]) + ", …"
