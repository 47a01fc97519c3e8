"""Token strings and their ids."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrolled.errors import UserError
from unrolled.text import Vocabulary

WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True)


@given(WORDS)
def test_every_token_comes_back_from_its_id(words: list[str]) -> None:
    vocabulary = Vocabulary([word for word in words if word != "<unk>"], ["<unk>", "<pad>"])
    for number, token in enumerate(vocabulary):
        assert vocabulary.id(token) == number
        assert vocabulary[number] == token
        assert token in vocabulary
    assert len(vocabulary) == len(vocabulary.tokens)


@given(WORDS, WORDS)
def test_an_extension_keeps_old_ids(old: list[str], new: list[str]) -> None:
    before = Vocabulary(old)
    after = before.extended(new)
    assert after.tokens[: len(before)] == before.tokens
    assert set(after) == {*old, *new}
    assert len(after) == len({*old, *new})


@given(WORDS)
def test_json_gives_an_equal_vocabulary(words: list[str]) -> None:
    vocabulary = Vocabulary([word for word in words if word != "<eos>"], ["<eos>"])
    again = Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)


def test_counts_are_ordered_by_count_then_code_point() -> None:
    counts = {"é": 2, "z": 2, "Z": 2, "rare": 1, "most": 9}
    assert Vocabulary.from_counts(counts).tokens == ("most", "Z", "z", "é", "rare")
    assert Vocabulary.from_counts(dict(reversed(counts.items()))).tokens == ("most", "Z", "z", "é", "rare")
    assert Vocabulary.from_counts(counts, min_count=2).tokens == ("most", "Z", "z", "é")
    assert Vocabulary.from_counts(counts, specials=["<unk>"], max_size=3).tokens == ("<unk>", "most", "Z")


def test_counted_special_tokens_are_not_listed_twice() -> None:
    assert Vocabulary.from_counts({"<unk>": 5, "a": 1}, specials=["<unk>"]).tokens == ("<unk>", "a")


def test_text_never_becomes_a_token_of_the_program() -> None:
    vocabulary = Vocabulary(["a"], ["<unk>", "<pad>", "<eos>"])
    ids = vocabulary.ids(["<pad>", "a", "<eos>", "<unk>"])
    assert ids.tolist() == [0, 3, 0, 0]
    assert ids.dtype == np.int32
    assert [vocabulary.is_control(number) for number in range(4)] == [False, True, True, False]


def test_without_unk_an_unknown_token_is_refused() -> None:
    with pytest.raises(UserError, match="'b' is not in the vocabulary, and there is no <unk>"):
        Vocabulary(["a"]).ids(["a", "b"])


def test_vocabularies_differ_in_what_is_special() -> None:
    assert Vocabulary(["a"], ["<s>"]) != Vocabulary(["<s>", "a"])
    assert Vocabulary(["a"]) != ["a"]


@pytest.mark.parametrize(
    ("specials", "message"),
    [
        (["<pad>", "<unk>"], "<unk> stands at 1 of the special tokens. Put it first"),
        (["<pad>", "<pad>"], "repeat a token"),
        (["pad"], "'pad' is not a special token. Expected a name of letters and digits in angles, as <eos>."),
        (["<>"], "'<>' is not a special token"),
        ("<pad>", r"specials='<pad>' is one string. Expected a list: \['<pad>'\]"),
    ],
)
def test_special_tokens_are_checked(specials: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Vocabulary(["a"], specials)


def test_a_token_stands_once() -> None:
    with pytest.raises(UserError, match="holds 'a' twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(UserError, match="holds '<unk>' twice"):
        Vocabulary(["<unk>"], ["<unk>"])


def test_half_characters_are_refused() -> None:
    with pytest.raises(UserError, match="lone surrogate"):
        Vocabulary(["\ud800"])


@pytest.mark.parametrize(
    ("min_count", "max_size", "message"),
    [
        (0, None, "min_count=0 is too small or not a number. Expected a whole number from 1 on."),
        (1.5, None, "min_count=1.5"),
        (True, None, "min_count=True"),
        (1, 1, "max_size=1 is too small or not a number. Expected a whole number from 2 on."),
        (1, "9", "max_size='9'"),
    ],
)
def test_limits_are_checked(min_count: int, max_size: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Vocabulary.from_counts({"a": 1}, specials=["<unk>"], min_count=min_count, max_size=max_size)


@pytest.mark.parametrize("number", [-1, 3])
def test_ids_outside_are_refused(number: int) -> None:
    vocabulary = Vocabulary(["a", "b", "c"])
    with pytest.raises(UserError, match=f"Token id {number} does not exist. Expected 0 to 2."):
        vocabulary[number]
    with pytest.raises(UserError, match=f"Token id {number} at position 1 does not exist. Expected 0 to 2."):
        vocabulary.check([0, number])


@pytest.mark.parametrize("ids", [[0.5], [[0]], 0, ["a"], [True]])
def test_ids_are_flat_whole_numbers(ids: list[int]) -> None:
    with pytest.raises(UserError, match="Expected whole numbers in one dimension"):
        Vocabulary(["a", "b"]).check(ids)


def test_a_missing_token_has_no_id() -> None:
    with pytest.raises(UserError, match="'<eos>' is not in the vocabulary of 1 tokens"):
        Vocabulary(["a"]).id("<eos>")
