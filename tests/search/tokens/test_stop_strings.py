"""Stop strings end a text in the same place however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unrolled.errors import UserError
from unrolled.search import StopStrings


def defined(text: str, strings: list[str]) -> tuple[str, str | None]:
    """The shown text by definition: read until a stop string is complete, and remove the longest."""
    for end in range(len(text) + 1):
        complete = [s for s in strings if text[:end].endswith(s)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def streamed(pieces: list[str], strings: list[str]) -> tuple[str, str | None]:
    stop = StopStrings(strings)
    shown = ""
    for piece in pieces:
        text, stopped = stop.feed(piece)
        shown += text
        assert stopped == (stop.found is not None)
    return shown + stop.finish(), stop.found


# Three letters make overlaps and repeated beginnings the rule.
texts = st.text("abc", max_size=12)
stops = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


@given(texts, stops)
@example("cabcd", ["bc", "abc", "c d"])
@example("aabcd", ["abcd", "bc"])
@example("aaab", ["aab"])
def test_every_place_to_split_gives_the_same(text: str, strings: list[str]) -> None:
    expected = defined(text, strings)
    assert streamed(list(text), strings) == expected
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert streamed([text[:first], text[first:second], text[second:]], strings) == expected


@given(texts, stops)
def test_only_what_may_begin_a_stop_string_is_held_back(text: str, strings: list[str]) -> None:
    stop = StopStrings(strings)
    shown, stopped = stop.feed(text)
    if not stopped:
        held = text[len(shown) :]
        assert not held or any(s.startswith(held) and s != held for s in strings)


def test_nothing_comes_after_the_end() -> None:
    stop = StopStrings("\n")
    assert stop.feed("one\ntwo") == ("one", True)
    assert stop.feed("three") == ("", True)
    assert stop.finish() == ""


def test_a_single_string_is_not_taken_for_its_letters() -> None:
    assert StopStrings("User:").feed("Use it.") == ("Use it.", False)


@pytest.mark.parametrize(("strings", "message"), [(["a", ""], "stop string 1 is ''"), ([3], "stop string 0 is 3")])
def test_bad_strings_are_refused(strings: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        StopStrings(strings)
    assert str(error.value) == (
        f"{message}, expected a text of at least one character. Leave it out, or pass no stop strings at all."
    )
