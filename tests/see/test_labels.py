"""Labels of figures: installed fonts, and a note about missing characters."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from unrolled.errors import Note
from unrolled.see import attention_figure, length_figure
from unrolled.see.figures.labels import _characters, _note_missing_glyphs, drawable, fonts, shown

PRIVATE = "\ue0ff"  # a character that no font has
MEDIUM = "\u2315"  # one that STIXGeneral has, which comes with matplotlib, and DejaVu has not


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Clear the font caches before and after."""
    for cached in (fonts, _characters, _note_missing_glyphs):
        cached.cache_clear()
    yield
    for cached in (fonts, _characters, _note_missing_glyphs):
        cached.cache_clear()


def drawn(*tokens: str) -> tuple[list[str], list[str]]:
    """The labels of a figure with these tokens, and the notes issued while drawing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        figure = attention_figure(tokens, tokens, np.eye(len(tokens)), " ".join(tokens))
        figure.savefig(io.BytesIO(), format="png")
    assert all(issubclass(one.category, Note) for one in caught)
    return [label.get_text() for label in figure.axes[0].get_yticklabels()], [str(one.message) for one in caught]


def test_missing_characters_are_boxes_with_one_note() -> None:
    labels, said = drawn("dog", PRIVATE, f"a{PRIVATE}b")
    assert labels == ["dog", "□", "a□b"]
    assert said == [
        "The installed fonts lack some characters of the figure, which are drawn as boxes. Install a font that has "
        "them, such as Noto Sans CJK for Chinese, Japanese and Korean."
    ]


def test_without_a_chinese_font_chinese_is_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.see.figures.labels.FALLBACKS", ())
    labels, said = drawn("一", "二")
    assert labels == ["□", "□"]
    assert len(said) == 1


def test_an_installed_font_supplies_missing_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.see.figures.labels.FALLBACKS", ("No Such Font", "STIXGeneral"))
    assert fonts() == ["DejaVu Sans", "DejaVu Sans Mono", "STIXGeneral"]
    assert drawn("é", MEDIUM) == (["é", MEDIUM], [])


def test_names_of_models_are_drawn_like_tokens() -> None:
    with pytest.warns(Note, match="The installed fonts lack some characters"):
        figure = length_figure({f"runs/{PRIVATE}": {"1-5": {"bleu": 30.0, "sentences": 9}}})
    (line,) = figure.axes[0].get_lines()
    assert line.get_label() == "runs/□"


def test_dollars_are_escaped() -> None:
    assert drawable("$5 and $6\nthen é") == r"\$5 and \$6" + "\nthen é"
    assert shown("a $") == r"a␣\$"
