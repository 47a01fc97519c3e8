"""Spans marked by tags: B-NP I-NP O is one NP of two words. Schemes IOB1, IOB2, BIOES and BILOU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

Scheme = Literal["IOB1", "IOB2", "BIOES", "BILOU"]

_MARKED = re.compile(r"([BIESLU])(?:-(.+))?")
_BEGINS, _ENDS = frozenset("BSU"), frozenset("ESLU")
_MARKS_OF: dict[Scheme, tuple[str, str, str, str]] = {  # of the first, inner, last and only word of a span
    "IOB1": ("I", "I", "I", "I"),
    "IOB2": ("B", "I", "I", "B"),
    "BIOES": ("B", "I", "E", "S"),
    "BILOU": ("B", "I", "L", "U"),
}
OWN_START = 0.05  # share of spans that begin with I above which the scheme is IOB1


class Span(NamedTuple):
    """Words `start` up to, not including, `end` of a sentence, and their kind."""

    kind: str
    start: int
    end: int


def parts_of(tag: str) -> tuple[str, str]:
    """The mark and the kind of a tag; O and "" outside spans.

    >>> parts_of("B-NP"), parts_of("O"), parts_of("I")
    (('B', 'NP'), ('O', ''), ('I', ''))
    """
    found = _MARKED.fullmatch(tag)
    return (found[1], found[2] or "") if found else ("O", "")


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of a sentence's tags, legal or not, as CoNLL's own evaluation reads them.

    A word continues the span before it if its mark is inside or end, the kinds are equal, and the word before it did
    not end the span; otherwise it begins a new one.

    >>> spans_of(["B-NP", "I-NP", "O", "I-VP", "I-NP"])
    [Span(kind='NP', start=0, end=2), Span(kind='VP', start=3, end=4), Span(kind='NP', start=4, end=5)]
    """
    spans: list[Span] = []
    before = ("O", "")
    for at, tag in enumerate(tags):
        mark, kind = parts_of(tag)
        if mark != "O":
            goes_on = mark not in _BEGINS and before[0] not in "O" and before[0] not in _ENDS and before[1] == kind
            if goes_on:
                spans[-1] = spans[-1]._replace(end=at + 1)
            else:
                spans.append(Span(kind, at, at + 1))
        before = (mark, kind)
    return spans


def runs_of(tags: Sequence[str]) -> list[Span]:
    """The runs of equal tags: every step belongs to one.

    >>> runs_of(["sil", "sil", "a", "sil"])
    [Span(kind='sil', start=0, end=2), Span(kind='a', start=2, end=3), Span(kind='sil', start=3, end=4)]
    """
    starts = [at for at, tag in enumerate(tags) if at == 0 or tag != tags[at - 1]]
    return [Span(tags[start], start, end) for start, end in zip(starts, [*starts[1:], len(tags)], strict=True)]


def tags_of(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The tags that mark spans in a sentence of that length.

    >>> tags_of([Span("NP", 0, 2), Span("NP", 2, 3)], 4, "IOB1"), tags_of([Span("NP", 0, 2)], 3, "BIOES")
    (['I-NP', 'I-NP', 'B-NP', 'O'], ['B-NP', 'E-NP', 'O'])
    """
    first, inside, last, alone = _MARKS_OF[scheme]
    tags = ["O"] * length
    before = Span("", 0, 0)
    for span in spans:
        touching = scheme == "IOB1" and before.end == span.start > 0 and before.kind == span.kind
        marks = [first, *[inside] * (span.end - span.start - 2), last] if span.end - span.start > 1 else [alone]
        marks[0] = "B" if touching else marks[0]
        tags[span.start : span.end] = [f"{mark}-{span.kind}" if span.kind else mark for mark in marks]
        before = span
    return tags


def scheme_of(sentences: Iterable[Sequence[str]]) -> Scheme | None:
    """The tagging scheme of spans, or None for other tags.

    >>> scheme_of([["B-NP", "I-NP", "O"]]), scheme_of([["I-NP", "O"]]), scheme_of([["NOUN", "VERB"]])
    ('IOB2', 'IOB1', None)
    """
    seen: Counter[str] = Counter()
    begun: Counter[str] = Counter()  # marks that spans begin with
    for tags in sentences:
        for tag in tags:
            if tag != "O" and not _MARKED.fullmatch(tag):
                return None
        marks = [parts_of(tag)[0] for tag in tags]
        seen.update(marks)
        begun.update(marks[span.start] for span in spans_of(tags))
    used = set(seen) - {"O"}
    if not used & {"B", "I"}:
        return None
    if used & {"L", "U"}:
        return "BILOU" if not used & {"E", "S"} else None
    if used & {"E", "S"}:
        return "BIOES"
    return "IOB1" if begun["I"] > OWN_START * begun.total() else "IOB2"


def may_follow(before: str | None, tag: str | None, scheme: Scheme) -> bool:
    """True if a tag may follow another; None is the edge of the sentence.

    >>> may_follow("O", "I-NP", "IOB2"), may_follow("B-NP", "I-NP", "IOB2"), may_follow("B-NP", None, "BIOES")
    (False, True, False)
    """
    (old, old_kind), (new, kind) = (parts_of(t) if t is not None else ("O", "") for t in (before, tag))
    if scheme == "IOB1":
        return new != "B" or (old in "BI" and old_kind == kind)
    open_before = old in "BI" and scheme != "IOB2"  # the span must continue
    if new in ("O", "B", "S", "U"):
        return not open_before
    return old in "BI" and old_kind == kind


def span_scores(
    gold: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    find: Callable[[Sequence[str]], list[Span]] = spans_of,
    name: str = "span",
) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """Precision, recall and F1 of spans with the right kind and ends, in total and by kind.

    `find` gives the spans of a sequence of tags, and `name` begins the names of the scores.

    >>> span_scores([["B-NP", "I-NP", "O", "B-VP"]], [["B-NP", "I-NP", "B-VP", "B-VP"]])[0]
    {'span_precision': 0.666..., 'span_recall': 1.0, 'span_f1': 0.8}
    """
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for one, other in zip(gold, answers, strict=True):
        true, answered = find(one), find(other)
        wanted.update(span.kind for span in true)
        found.update(span.kind for span in answered)
        right.update(span.kind for span in set(true) & set(answered))
    whole = _row(right.total(), found.total(), wanted.total())
    kinds = {kind: _row(right[kind], found[kind], wanted[kind]) for kind in sorted({*wanted, *found})}
    return {f"{name}_{score}": whole[score] for score in ("precision", "recall", "f1")}, kinds


def overlap_f1(
    gold: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    find: Callable[[Sequence[str]], list[Span]] = runs_of,
    least: float = 0.5,
) -> float:
    """The F1 of segments that overlap enough, F1@50 of Lea et al. 2017, over all sequences together.

    An answered segment is right if it covers a true one of its kind with |∩| / |∪| ≥ `least`, the first one to do so.

    >>> overlap_f1(["aaaabb"], ["aaabbb"]), overlap_f1(["aaaabb"], ["ababab"])
    (1.0, 0.25)
    """
    right = found = wanted = 0
    for one, other in zip(gold, answers, strict=True):
        true, answered = find(one), find(other)
        found, wanted = found + len(answered), wanted + len(true)
        taken: set[Span] = set()
        for span in answered:
            alike = [(_overlap(span, wish), wish) for wish in true if wish.kind == span.kind]
            share, best = max(alike, default=(0.0, span))
            if share >= least and best not in taken:
                taken.add(best)
                right += 1
    return 2 * right / max(1, found + wanted)


def _overlap(one: Span, other: Span) -> float:
    """|∩| / |∪| of two spans."""
    both = max(0, min(one.end, other.end) - max(one.start, other.start))
    return both / max(1, one.end - one.start + other.end - other.start - both)


def _row(right: int, found: int, wanted: int) -> dict[str, Any]:
    return {
        "precision": right / max(1, found),
        "recall": right / max(1, wanted),
        "f1": 2 * right / max(1, found + wanted),
        "count": wanted,
    }
