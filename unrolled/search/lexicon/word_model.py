"""The contract of a language model of words."""

from __future__ import annotations

from typing import Any, Protocol

UNKNOWN_WORD = "<unk>"


class WordModel(Protocol):
    """A language model of words; states are hashable, and equal ones have equal futures."""

    def initial(self) -> Any: ...

    def advance(self, state: Any, word: str) -> tuple[float, Any]:
        """log p(word | state), and the state after it."""
        ...

    def final(self, state: Any) -> float:
        """log p of the sentence's end."""
        ...
