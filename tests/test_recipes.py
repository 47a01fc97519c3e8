"""Every recipe can be imported, and what it says of itself is so; that it reaches its score is seen by running it."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

RECIPES = Path(__file__).parent.parent / "recipes"


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.py")))
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RECIPES)
    module = importlib.import_module(name)
    assert module.__doc__
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_strings_of_parentheses_have_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A string is balanced if nothing is left after its pairs have been removed again and again."""
    monkeypatch.syspath_prepend(RECIPES)
    balanced = importlib.import_module("balanced")
    rows = balanced.strings(7, 400) + balanced.strings(8, 100, 101, 400)
    for label, text in rows:
        left = text.replace("a", "").replace("b", "")
        counts = left.count("(") == left.count(")")
        while "()" in left:
            left = left.replace("()", "")
        assert (label == "yes") == (left == ""), text
        if label == "no" and counts:
            assert left == ")("  # one pair in the wrong order
    assert sum(label == "yes" for label, _ in rows) == len(rows) // 2
    assert {len(text) for _, text in rows[:400]} >= {2, 3, 4, 5}
    assert max(len(text) for _, text in rows[400:]) <= 400
