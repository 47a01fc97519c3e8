"""Stop strings in a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterable

from unrolled.errors import UserError


class StopStrings:
    """Ends a text before the first of some strings, however the text is cut into pieces.

    Text that could be the beginning of a stop string is held back until that is decided; the stop string itself is
    never shown. The first string to be complete ends the text, and of several complete at once, the longest.

    >>> stop = StopStrings(["</s>", "User:"])
    >>> stop.feed("Yes.</")
    ('Yes.', False)
    >>> stop.feed("b> Us")
    ('</b> ', False)
    >>> stop.feed("er: and")
    ('', True)
    >>> stop.found
    'User:'
    """

    def __init__(self, strings: str | Iterable[str]) -> None:
        self.strings = (strings,) if isinstance(strings, str) else tuple(strings)
        self.found: str | None = None  # the string that ended the text
        self._held = ""
        for index, string in enumerate(self.strings):
            if not isinstance(string, str) or not string:
                raise UserError(
                    f"stop string {index} is {string!r}, expected a text of at least one character.",
                    "Leave it out, or pass no stop strings at all.",
                )

    def feed(self, text: str) -> tuple[str, bool]:
        """Takes the next piece: the text that may be shown now, and whether the text has ended."""
        if self.found is not None:
            return "", True
        text = self._held + text
        # A string that is complete starts in the text held back: it does not include what was shown before.
        matches = [(text.index(s) + len(s), -len(s), s) for s in self.strings if s in text]
        if matches:
            end, _, self.found = min(matches)
            self._held = ""
            return text[: end - len(self.found)], True
        shown = len(text) - self._undecided(text)
        self._held = text[shown:]
        return text[:shown], False

    def finish(self) -> str:
        """The text still held back, to be shown when no more is coming.

        >>> stop = StopStrings("\\n\\n")
        >>> stop.feed("The end.\\n"), stop.finish()
        (('The end.', False), '\\n')
        """
        held, self._held = self._held, ""
        return held

    def _undecided(self, text: str) -> int:
        """The length of the longest end of the text that begins a stop string."""
        longest = max((len(s) - 1 for s in self.strings), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            end = text[-length:]
            if any(s.startswith(end) for s in self.strings):
                return length
        return 0
