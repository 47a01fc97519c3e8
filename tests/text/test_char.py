"""Characters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.conftest import AWKWARD, COMBINED, FAMILY, trained
from unrolled.errors import UserError
from unrolled.text import CharTokenizer

ALPHABET = sorted(set("".join(AWKWARD)))


@given(st.text(ALPHABET))
def test_every_text_of_the_alphabet_comes_back(text: str) -> None:
    tokenizer = trained("char")
    assert tokenizer.decode(tokenizer.ids(text)) == text
    assert tokenizer.unknowns(text) == 0


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_unknown_code_points_become_one_replacement_each(text: str) -> None:
    tokenizer = trained("char")
    expected = "".join(char if char in ALPHABET else "\ufffd" for char in text)
    assert tokenizer.decode(tokenizer.ids(text)) == expected
    assert tokenizer.unknowns(text) == sum(char not in ALPHABET for char in text)


@pytest.mark.parametrize("grapheme", [FAMILY, COMBINED, "🇩🇪", "👍🏽", "क्षि"])
def test_graphemes_of_several_code_points_survive(grapheme: str) -> None:
    tokenizer = CharTokenizer.train([grapheme])
    assert len(tokenizer.ids(grapheme)) == len(grapheme)
    assert tokenizer.decode(tokenizer.ids(grapheme)) == grapheme


@given(st.text(ALPHABET))
def test_offsets_point_at_each_code_point(text: str) -> None:
    tokenizer = trained("char")
    ids, offsets = tokenizer.encode(text)
    assert [text[start:end] for start, end in offsets] == [tokenizer.token(int(number)) for number in ids] == list(text)


def test_a_lower_case_of_two_code_points_points_back_at_one() -> None:
    tokenizer = CharTokenizer.train(["İA"], lowercase=True)
    ids, offsets = tokenizer.encode("AİA")
    assert [tokenizer.token(int(number)) for number in ids] == ["a", "i", "\u0307", "a"]
    assert offsets.tolist() == [[0, 1], [1, 2], [1, 2], [2, 3]]
    assert tokenizer.decode(ids) == "AİA".lower()


def test_only_code_points_are_tokens() -> None:
    with pytest.raises(UserError, match="This is not a vocabulary of characters: 'ab' is not one character"):
        CharTokenizer.from_json({"lowercase": False, "vocabulary": {"specials": ["<unk>"], "tokens": ["a", "ab"]}})


def test_rare_characters_are_left_out() -> None:
    tokenizer = CharTokenizer.train(["aaabb", "bc"], min_count=2)
    assert tokenizer.vocabulary.tokens == ("<unk>", "a", "b")
    with pytest.raises(UserError, match=r"No character occurs min_count=9 times. Lower min_count or give more text."):
        CharTokenizer.train(["aaabb"], min_count=9)


def test_millions_of_characters_are_looked_up_at_once() -> None:
    text = "To be, or not to be: 日本\n" * 200_000
    tokenizer = CharTokenizer.train([text])
    ids = tokenizer.ids(text)
    assert len(ids) == len(text)
    assert np.array_equal(ids.reshape(200_000, -1)[-1], tokenizer.ids(text[: len(text) // 200_000]))
    assert tokenizer.decode(ids) == text
