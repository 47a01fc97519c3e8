"""Text from ids that come one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.conftest import AWKWARD, FAMILY, trained
from unrolled.errors import UserError
from unrolled.text import LEVELS, BPETokenizer, StreamDecoder


@given(st.sampled_from(sorted(LEVELS)), st.lists(st.integers(0, 10_000)))
def test_the_parts_are_the_whole(level: str, numbers: list[int]) -> None:
    tokenizer = trained(level)
    ids = [number % len(tokenizer) for number in numbers]
    stream = StreamDecoder(tokenizer)
    assert "".join([stream.feed(number) for number in ids]) + stream.finish() == tokenizer.decode(ids)


@pytest.mark.parametrize("text", AWKWARD)
def test_pieces_never_change_later(level: str, text: str) -> None:
    tokenizer = trained(level)
    stream = StreamDecoder(tokenizer)
    ids = tokenizer.ids(text)
    whole = tokenizer.decode(ids)
    given_so_far = ""
    for number in ids:
        given_so_far += stream.feed(int(number))
        assert whole.startswith(given_so_far)
    assert stream.finish() == ""
    assert given_so_far == whole


def test_a_character_is_held_back_until_it_is_complete() -> None:
    tokenizer = BPETokenizer.train(["abc"], max_size=256)
    stream = StreamDecoder(tokenizer)
    given_parts = [stream.feed(int(number)) for number in tokenizer.ids(FAMILY)]
    assert [part for part in given_parts if part] == list(FAMILY)
    assert given_parts[:4] == ["", "", "", FAMILY[0]]


def test_finish_gives_what_is_left_and_begins_anew() -> None:
    tokenizer = BPETokenizer.train(["abc"], max_size=256)
    stream = StreamDecoder(tokenizer)
    first, *_ = tokenizer.ids("日").tolist()
    assert stream.feed(first) == ""
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""
    assert stream.feed(int(tokenizer.ids("a")[0])) == "a"
    words = StreamDecoder(trained("word"))
    two = int(trained("word").ids("two")[0])
    assert [words.feed(two), words.feed(two), words.finish(), words.feed(two)] == ["two", " two", "", "two"]


def test_wrong_ids_are_refused(level: str) -> None:
    tokenizer = trained(level)
    for wrong in (-1, len(tokenizer)):
        with pytest.raises(UserError, match=f"Token id {wrong} .*does not exist"):
            StreamDecoder(tokenizer).feed(wrong)
