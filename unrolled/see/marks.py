"""Marks on the tokens of a text, to find units that correlate with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unrolled.errors import UserError

QUOTES = ('"', "“", "”")


def inside_quotes(tokens: Sequence[str]) -> list[float]:
    """1 from an opening quotation mark to the closing one, else 0.

    >>> inside_quotes(list('a "b" c'))
    [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    """
    inside, found = 0.0, []
    for token in tokens:
        mark = token.strip().startswith(QUOTES)
        found.append(1.0 if mark else inside)
        inside = 1 - inside if mark else inside
    return found


def place_in_line(tokens: Sequence[str]) -> list[float]:
    """The position of each token in its line."""
    return _counted(tokens, "\n")


def place_in_word(tokens: Sequence[str]) -> list[float]:
    """The position of each token in its word.

    >>> place_in_word(list("an ox"))
    [1.0, 2.0, 0.0, 1.0, 2.0]
    """
    return _counted(tokens, " \n")


def _counted(tokens: Sequence[str], ends: str) -> list[float]:
    place, found = 0.0, []
    for token in tokens:
        place = 0.0 if any(end in token for end in ends) else place + 1
        found.append(place)
    return found


MARKS: dict[str, Callable[[Sequence[str]], list[float]]] = {
    "inside quotes": inside_quotes,
    "place in the line": place_in_line,
    "place in the word": place_in_word,
}


def mark_of(text: str, tokens: Sequence[str]) -> list[float]:
    """Parse a mark of the page: a name, positions of marked tokens such as `@3,5`, or a number for each token."""
    if text in MARKS:
        return MARKS[text](tokens)
    try:
        if text.startswith("@"):
            chosen = {int(part) for part in text[1:].split(",")}
            return [float(place in chosen) for place in range(len(tokens))]
        return [float(number) for number in text.split(",") if number]
    except ValueError:
        raise UserError(
            f"{text[:40]!r} is not a mark.", f"Expected one of {', '.join(MARKS)}, or positions such as @3,5."
        ) from None
