"""The promises of every level."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.text.conftest import AWKWARD, SPECIALS, trained
from unrolled.errors import UserError
from unrolled.text import LEVELS, UNK, Tokenizer, tokenizer_from_json, train_tokenizer

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(AWKWARD)
ANY_LEVEL = st.sampled_from(sorted(LEVELS))


@given(ANY_LEVEL, st.booleans(), ANY_TEXT)
def test_ids_are_those_of_encode(level: str, lowercase: bool, text: str) -> None:
    tokenizer = trained(level, lowercase=lowercase)
    ids, offsets = tokenizer.encode(text)
    assert np.array_equal(tokenizer.ids(text), ids)
    assert ids.dtype == tokenizer.ids(text).dtype == np.int32
    assert offsets.dtype == np.int64
    assert offsets.shape == (len(ids), 2)


@given(ANY_LEVEL, st.booleans(), st.lists(ANY_TEXT, max_size=4))
def test_ids_of_several_texts_are_those_of_each(level: str, lowercase: bool, texts: list[str]) -> None:
    tokenizer = trained(level, lowercase=lowercase)
    ids, lengths = tokenizer.ids_each(texts)
    alone = [tokenizer.ids(text) for text in texts]
    assert lengths == [len(one) for one in alone]
    assert ids.dtype == np.int32
    assert ids.tolist() == [number for one in alone for number in one.tolist()]


@given(ANY_LEVEL, st.lists(st.lists(st.integers(0, 10_000), max_size=9), max_size=4))
def test_texts_are_their_pieces(level: str, rows: list[list[int]]) -> None:
    tokenizer = trained(level)
    known = [[number % len(tokenizer) for number in row] for row in rows]
    pieces = [Tokenizer.decode(tokenizer, row) for row in known]
    assert tokenizer.decode_each(known) == pieces == [tokenizer.decode(row) for row in known]


@given(ANY_LEVEL, st.booleans(), ANY_TEXT)
def test_offsets_go_through_the_text(level: str, lowercase: bool, text: str) -> None:
    starts, ends = trained(level, lowercase=lowercase).encode(text).offsets.T
    assert np.all(starts < ends)
    assert np.all(starts[1:] >= starts[:-1])
    assert np.all(ends[1:] >= ends[:-1])
    assert np.all(ends <= len(text))
    assert np.all(starts >= 0)
    uncovered = set(range(len(text))) - {
        at for start, end in zip(starts, ends, strict=True) for at in range(start, end)
    }
    assert all(text[at].isspace() for at in uncovered)


@given(ANY_LEVEL, ANY_TEXT)
def test_decoding_and_encoding_again_changes_nothing(level: str, text: str) -> None:
    tokenizer = trained(level)
    known = tokenizer.decode(tokenizer.ids(text))
    assert tokenizer.decode(tokenizer.ids(known)) == known


@given(ANY_LEVEL, st.booleans(), ANY_TEXT)
def test_no_text_becomes_a_token_of_the_program(level: str, lowercase: bool, text: str) -> None:
    tokenizer = trained(level, lowercase=lowercase)
    for around in ("{}", "<pad>{}<eos>", "<pad> {} <eos> <bos>"):
        ids = tokenizer.ids(around.format(text))
        assert not any(tokenizer.vocabulary.is_control(number) for number in ids)
        assert np.all((ids >= 0) & (ids < len(tokenizer)))


def test_tokens_of_the_program_stand_for_no_text(level: str) -> None:
    tokenizer = trained(level)
    ids = tokenizer.ids("two words")
    special = [tokenizer.vocabulary.id(token) for token in SPECIALS]
    assert tokenizer.decode([special[1], *ids[:1], special[0], *ids[1:], special[2]]) == "two words"
    assert [tokenizer.token(number) for number in special] == list(SPECIALS)
    assert tokenizer.decode(special) == ""


def test_unk_is_zero_where_a_level_meets_unknowns(level: str) -> None:
    for specials in (SPECIALS, (), ("<eos>", UNK)):
        tokenizer = trained(level, specials=specials)
        assert tokenizer.vocabulary.unk == (None if level == "bpe" else 0)
        expected = [token for token in specials if token != UNK]
        assert tokenizer.vocabulary.specials == tuple(expected if level == "bpe" else [UNK, *expected])


@pytest.mark.parametrize("lowercase", [False, True])
def test_json_gives_an_equal_tokenizer(level: str, lowercase: bool) -> None:
    tokenizer = trained(level, lowercase=lowercase)
    again = tokenizer_from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert type(again) is LEVELS[level]
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    assert again.level == level
    assert again.lowercase is lowercase
    for text in AWKWARD:
        assert np.array_equal(again.ids(text), tokenizer.ids(text))
    assert trained(level, lowercase=not lowercase) != tokenizer


def test_an_extension_keeps_ids_and_knows_the_new(level: str) -> None:
    before = trained(level)
    new = "Ж щ новые слова <pad>"
    after = before.extended([new])
    assert type(after) is type(before)
    assert after.vocabulary.tokens[: len(before)] == before.vocabulary.tokens
    assert after.vocabulary.specials == before.vocabulary.specials
    assert np.array_equal(after.ids(AWKWARD[4]), before.ids(AWKWARD[4]))
    known = new.removesuffix(" <pad>")
    assert after.decode(after.ids(known)) == known
    assert after.unknowns(known) == 0
    assert before.extended([]) == before
    if level != "bpe":
        assert before.unknowns(known) > 0
        assert len(before) < len(after)


def test_training_twice_gives_the_same(level: str) -> None:
    texts = [*AWKWARD, "more words, and more of them"]
    first = train_tokenizer(level, texts, max_size=300)
    assert first == train_tokenizer(level, iter(texts), max_size=300)
    assert first.ids(texts[-1]).tolist() == train_tokenizer(level, texts, max_size=300).ids(texts[-1]).tolist()


def test_max_size_counts_every_token(level: str) -> None:
    size = 261 if level == "bpe" else 7
    assert len(train_tokenizer(level, AWKWARD, max_size=size, specials=SPECIALS)) == size


def test_a_long_text_is_its_parts(level: str) -> None:
    tokenizer = trained(level)
    text = " ".join(AWKWARD) + "\nlines and\tmore  words " * 40_000
    ids, offsets = tokenizer.encode(text)
    assert np.array_equal(tokenizer.ids(text), ids)
    if level == "bpe":
        assert tokenizer.decode(ids) == text
    for at in (0, len(ids) // 3, len(ids) - 1):
        start, end = offsets[at]
        assert text[start:end] == tokenizer.token(int(ids[at]))


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, lambda ids: np.array(ids, dtype=np.uint8)])
def test_ids_of_any_kind_are_decoded(level: str, kind: Callable[[list[int]], Any]) -> None:
    tokenizer = train_tokenizer(level, ["a b"], max_size=256 if level == "bpe" else None)
    assert tokenizer.decode(kind(tokenizer.ids("a b").tolist())) == "a b"
    assert tokenizer.decode(kind([])) == ""


def test_wrong_ids_are_refused(level: str) -> None:
    tokenizer = trained(level)
    for wrong in (-1, len(tokenizer)):
        with pytest.raises(UserError, match=f"Token id {wrong}.* does not exist"):
            tokenizer.decode([0, wrong])
        with pytest.raises(UserError, match=f"Token id {wrong} does not exist"):
            tokenizer.token(wrong)


def test_an_unknown_level_is_named_with_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"Unknown level 'words'. Did you mean 'word'\? Choices: bpe, char, symbols, word"
    ):
        train_tokenizer("words", ["a"])
    with pytest.raises(UserError, match="Unknown level 'byte'"):
        tokenizer_from_json({"level": "byte"})


@pytest.mark.parametrize("texts", [[], [""], [" ", "\n\n"]])
def test_an_empty_training_text_is_refused(level: str, texts: list[str]) -> None:
    with pytest.raises(UserError, match=r"The training text is empty, or only white space. Give a text"):
        train_tokenizer(level, texts)


def test_wrong_texts_are_refused(level: str) -> None:
    with pytest.raises(UserError, match=r"texts is one string.*Pass a list: \[text\]"):
        train_tokenizer(level, "one text")
    with pytest.raises(UserError, match="A text must be a string, got bytes"):
        train_tokenizer(level, ["good", b"bad"])  # type: ignore[list-item]
    with pytest.raises(UserError, match=r"half a character at position 4: .* lone surrogate. Read the file as UTF-8"):
        train_tokenizer(level, ["good", "bad \udc80"])
    with pytest.raises(UserError, match="A text must be a string, got NoneType"):
        trained(level).ids(None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="half a character at position 0"):
        trained(level).encode("\ud83d")


def test_wrong_options_are_refused_before_the_texts_are_read(level: str) -> None:
    def unread() -> Any:
        pytest.fail("the texts were read")
        yield ""

    with pytest.raises(UserError, match="min_count=0"):
        train_tokenizer(level, unread(), min_count=0)
    with pytest.raises(UserError, match=f"max_size=1 .* from {257 if level == 'bpe' else 3} on"):
        train_tokenizer(level, unread(), max_size=1, specials=["<pad>"])
    with pytest.raises(UserError, match="'pad' is not a special token"):
        train_tokenizer(level, unread(), specials=["pad"])
    with pytest.raises(UserError, match="is one string"):
        train_tokenizer(level, unread(), specials="<pad>")


def damaged(tokenizer: Tokenizer) -> list[tuple[str, object]]:
    """Stored tokenizers with one thing missing or of another kind, and the word the message must hold."""
    data = tokenizer.to_json()
    cases: list[tuple[str, object]] = [("list", []), ("NoneType", None), ("str", "char")]
    for key in data:
        cases.append((f"'{key}' is missing", {name: value for name, value in data.items() if name != key}))
        cases.append((f"'{key}' is int", {**data, key: 7}))
    if "vocabulary" in data:
        for key in data["vocabulary"]:
            rest = {name: value for name, value in data["vocabulary"].items() if name != key}
            cases.append((f"'{key}' is missing", {**data, "vocabulary": rest}))
            cases.append((f"'{key}' holds other things", {**data, "vocabulary": {**rest, key: ["a", 1]}}))
        rest = data["vocabulary"]
        cases.append(("no <unk>", {**data, "vocabulary": {**rest, "specials": []}}))
        cases.append(("is not one", {**data, "vocabulary": {**rest, "tokens": ["a b"]}}))
        cases.append(("twice", {**data, "vocabulary": {**rest, "tokens": ["a", "a"]}}))
    return cases


def test_damaged_json_is_refused(level: str) -> None:
    for word, data in damaged(trained(level)):
        with pytest.raises(UserError, match=word):
            tokenizer_from_json(data)
