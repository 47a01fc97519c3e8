"""Scores of tags: accuracy, and precision, recall and F1 of each tag or kind of span (S21)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from unrolled.metrics.spans import spans_of

Tags = Sequence[Sequence[str]]
Table = dict[str, dict[str, Any]]


def tag_scores(gold: Tags, predicted: Tags) -> tuple[dict[str, float], Table]:
    """The share of right tags, the mean F1 over all tags that occur, and a table of each.

    >>> scores, table = tag_scores([["N", "V"], ["N"]], [["N", "N"], ["N"]])
    >>> round(scores["accuracy"], 3), round(scores["macro_f1"], 3), table["V"]["support"]
    (0.667, 0.4, 1)
    """
    wanted = Counter(tag for sentence in gold for tag in sentence)
    given = Counter(tag for sentence in predicted for tag in sentence)
    right = Counter(a for one, other in zip(gold, predicted, strict=True) for a, b in _pairs(one, other) if a == b)
    table = _table(right, given, wanted)
    macro = sum(row["f1"] for row in table.values()) / max(1, len(table))
    return {"accuracy": right.total() / max(1, wanted.total()), "macro_f1": macro}, table


def span_scores(gold: Tags, predicted: Tags) -> tuple[dict[str, float], Table]:
    """Precision, recall and F1 of spans that agree in kind and both ends, and a table of each kind.

    >>> scores, _ = span_scores([["B-NP", "I-NP", "O"]], [["B-NP", "O", "B-VP"]])
    >>> scores
    {'span_precision': 0.0, 'span_recall': 0.0, 'span_f1': 0.0}
    """
    right: Counter[str] = Counter()
    given: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for one, other in zip(gold, predicted, strict=True):
        true, found = spans_of(one), spans_of(other)
        wanted.update(span.kind for span in true)
        given.update(span.kind for span in found)
        right.update(span.kind for span in set(true) & set(found))
    whole = _row(right.total(), given.total(), wanted.total())
    return {f"span_{name}": whole[name] for name in ("precision", "recall", "f1")}, _table(right, given, wanted)


def _pairs(one: Sequence[str], other: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(one, other, strict=True)


def _table(right: Counter[str], given: Counter[str], wanted: Counter[str]) -> Table:
    names = sorted(set(wanted) | set(given), key=lambda name: (-wanted[name], name))
    return {name: _row(right[name], given[name], wanted[name]) for name in names}


def _row(right: int, given: int, wanted: int) -> dict[str, Any]:
    return {
        "precision": right / given if given else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "f1": 2 * right / (given + wanted) if given + wanted else 0.0,
        "support": wanted,
    }
