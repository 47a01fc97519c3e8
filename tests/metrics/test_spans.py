"""Spans and their scores against seqeval, which reads tags as CoNLL's own script does."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrolled.metrics.spans import Scheme, may_follow, scheme_of, span_scores, spans_of, tags_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from seqeval.metrics import classification_report
    from seqeval.metrics.sequence_labeling import get_entities
    from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities

KINDS = ["NP", "VP", "B-NP"]


def tags(marks: str) -> st.SearchStrategy[list[str]]:
    tag = st.one_of(st.just("O"), st.tuples(st.sampled_from(marks), st.sampled_from(KINDS)).map("-".join))
    return st.lists(tag, max_size=12)


@given(st.one_of(tags("BI"), tags("BIES")))
def test_spans_are_seqevals_for_any_sequence(sequence: list[str]) -> None:
    expected = [(kind, start, end + 1) for kind, start, end in get_entities(sequence)]
    assert [tuple(span) for span in spans_of(sequence)] == expected


@given(st.lists(st.tuples(st.integers(0, 8), st.randoms()), min_size=1, max_size=5), st.sampled_from(["BI", "BIES"]))
def test_scores_are_seqevals(rows: list[tuple[int, Any]], marks: str) -> None:
    names = ["O", *(f"{mark}-{kind}" for mark in marks for kind in KINDS[:2])]
    gold, found = ([[chance.choice(names) for _ in range(size)] for size, chance in rows] for _ in range(2))
    if not any(spans_of(row) for row in (*gold, *found)):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = classification_report(gold, found, output_dict=True, zero_division=0)
    scores, kinds = span_scores(gold, found)
    wanted = report["micro avg"]
    assert scores["span_precision"] == pytest.approx(wanted["precision"])
    assert scores["span_recall"] == pytest.approx(wanted["recall"])
    assert scores["span_f1"] == pytest.approx(wanted["f1-score"])
    for kind, row in kinds.items():
        if kind in report:
            assert row["f1"] == pytest.approx(report[kind]["f1-score"])
            assert row["count"] == report[kind]["support"]


@pytest.mark.parametrize(("name", "oracle"), [("IOB1", IOB1), ("IOB2", IOB2), ("BIOES", IOBES), ("BILOU", BILOU)])
@given(data=st.data())
def test_legal_sequences_have_the_spans_of_seqevals_strict_mode(name: Scheme, oracle: Any, data: st.DataObject) -> None:
    """Every sequence built from steps that may follow each other means the same to a strict reader."""
    marks = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU"}[name]
    names = ["O", *(f"{mark}-{kind}" for mark in marks for kind in KINDS[:2])]
    sequence: list[str] = []
    for _ in range(data.draw(st.integers(1, 10))):
        before = sequence[-1] if sequence else None
        sequence.append(data.draw(st.sampled_from([tag for tag in names if may_follow(before, tag, name)])))
    if not may_follow(sequence[-1], None, name):
        sequence.append({"BIOES": "E", "BILOU": "L"}[name] + sequence[-1][1:])
    assert tags_of(spans_of(sequence), len(sequence), name) == sequence
    strict = [e.to_tuple()[1:] for row in Entities([sequence], oracle).entities for e in row]
    assert [tuple(span) for span in spans_of(sequence)] == strict


@given(tags("BIES"), st.sampled_from(["IOB1", "IOB2", "BIOES", "BILOU"]))
def test_any_scheme_can_mark_the_same_spans(sequence: list[str], scheme: Scheme) -> None:
    turned = tags_of(spans_of(sequence), len(sequence), scheme)
    assert spans_of(turned) == spans_of(sequence)
    edges = [None, *turned, None]
    assert all(may_follow(a, b, scheme) for a, b in itertools.pairwise(edges))


def test_schemes_are_recognised() -> None:
    assert scheme_of([["B-X", "I-X", "O"], ["O"]]) == "IOB2"
    assert scheme_of([["I-X", "I-X", "B-X", "O"]]) == "IOB1"
    assert scheme_of([["B-X", "E-X", "S-Y"]]) == "BIOES"
    assert scheme_of([["B-X", "L-X", "U-Y"]]) == "BILOU"
    assert scheme_of([["B", "I", "O"]]) == "IOB2"
    for other in (["NOUN", "O"], ["O", "O"], ["B-X", "VERB"], []):
        assert scheme_of([other]) is None
    clean = [["B-X", "I-X", "O"]] * 50
    assert scheme_of([*clean, ["I-X"]]) == "IOB2"  # one slip is not a scheme


def test_no_span_at_all_is_no_division_by_zero() -> None:
    assert span_scores([["O"]], [["O"]]) == ({"span_precision": 0.0, "span_recall": 0.0, "span_f1": 0.0}, {})
