"""Words, and symbols given with blanks between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrolled.errors import UserError
from unrolled.text import StreamDecoder, SymbolTokenizer, WordTokenizer
from unrolled.text.base import blocks

TEXT = "the cat sat\non the mat\n\n<unk> went N times\n"
WORDS = WordTokenizer.train([TEXT])


@given(st.lists(st.sampled_from(["the", "cat", "\n", "<unk>", "mat", "N"])))
def test_ids_of_the_vocabulary_come_back(tokens: list[str]) -> None:
    ids = [WORDS.vocabulary.id(token) for token in tokens]
    assert WORDS.ids(WORDS.decode(ids)).tolist() == ids


@given(st.text("abc \n\t\r\u2003"))
def test_decoding_keeps_words_and_lines(text: str) -> None:
    tokenizer = WordTokenizer.train([text, "word"])
    assert tokenizer.decode(tokenizer.ids(text)) == "\n".join(" ".join(line.split()) for line in text.split("\n"))


@given(st.text("abİ \n\t\r\u2003"), st.booleans())
def test_offsets_point_at_each_word(text: str, lowercase: bool) -> None:
    tokenizer = WordTokenizer.train([text, "word"], lowercase=lowercase)
    ids, offsets = tokenizer.encode(text)
    words = [text[start:end] for start, end in offsets]
    assert words == [word.replace("\0", "\n") for word in text.replace("\n", " \0 ").split()]
    assert [word.lower() if lowercase else word for word in words] == [tokenizer.token(int(number)) for number in ids]


@given(st.text("ab \n\t\u2003\x1c"), st.integers(1, 5))
def test_blocks_are_the_text_and_cut_no_word(text: str, size: int) -> None:
    found = list(blocks(text, size))
    assert "".join(block for _, block in found) == text
    assert [start for start, _ in found] == [sum(len(block) for _, block in found[:at]) for at in range(len(found))]
    assert [word for _, block in found for word in block.split()] == text.split()


def test_a_written_unk_is_the_unknown_word() -> None:
    assert WORDS.vocabulary.tokens.count("<unk>") == 1
    assert WORDS.ids("<unk> dog cat").tolist() == [0, 0, WORDS.vocabulary.id("cat")]
    assert WORDS.unknowns("<unk> dog cat") == 2
    assert WORDS.decode(WORDS.ids("a dog sat")) == "<unk> <unk> sat"


def test_lines_are_kept() -> None:
    assert WORDS.decode(WORDS.ids(TEXT)) == TEXT
    assert [WORDS.token(int(number)) for number in WORDS.ids("cat \n\n sat")] == ["cat", "\n", "\n", "sat"]


def test_lower_case_joins_words_and_points_at_the_original() -> None:
    tokenizer = WordTokenizer.train(["İstanbul The the"], lowercase=True)
    assert len(tokenizer) == 3
    ids, offsets = tokenizer.encode("THE İSTANBUL the")
    assert tokenizer.decode(ids) == "the i\u0307stanbul the"
    assert offsets.tolist() == [[0, 3], [4, 12], [13, 16]]


def test_rare_words_are_left_out() -> None:
    tokenizer = WordTokenizer.train(["a a b", "b c"], min_count=2)
    assert tokenizer.vocabulary.tokens == ("<unk>", "a", "b")
    with pytest.raises(UserError, match=r"No word occurs min_count=3 times. Lower min_count or give more text."):
        WordTokenizer.train(["a a b"], min_count=3)


@pytest.mark.parametrize("token", ["", "a b", " a", "\n\n", "a\n"])
def test_only_words_are_tokens(token: str) -> None:
    with pytest.raises(UserError, match="This is not a vocabulary of words"):
        WordTokenizer.from_json({"lowercase": False, "vocabulary": {"specials": ["<unk>"], "tokens": [token]}})


def test_symbols_are_whatever_stands_between_blanks() -> None:
    tokenizer = SymbolTokenizer.train(["HH AH0 L OW1", "t͡ʃ iː z"])
    ids, offsets = tokenizer.encode("L  iː t͡ʃ")
    assert tokenizer.decode(ids) == "L iː t͡ʃ"
    assert offsets.tolist() == [[0, 1], [3, 5], [6, 9]]
    assert tokenizer.decode(tokenizer.ids("L X")) == "L <unk>"
    with pytest.raises(UserError, match="No symbol occurs min_count=2 times"):
        SymbolTokenizer.train(["a b"], min_count=2)


def test_a_prompt_and_what_follows_are_joined_by_a_blank() -> None:
    stream = StreamDecoder(WORDS)
    for number in WORDS.ids("the"):
        stream.feed(int(number))
    assert stream.feed(WORDS.vocabulary.id("cat")) == " cat"
