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
