"""Examples that keep what was computed from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class Computed:
    """Data that keeps what was computed from it, such as tokens or features: each result is computed once."""

    def once(self, name: str, using: object, compute: Callable[[], Result]) -> Result:
        """The result called `name`, computed again only if `using`, such as a tokenizer, is another object."""
        results: dict[str, tuple[object, Any]] = vars(self)
        if name not in results or results[name][0] is not using:
            results[name] = (using, compute())
        found: Result = results[name][1]
        return found

    def kept(self, name: str) -> Any:
        """A result that was computed before; None if there is none."""
        return vars(self).get(name, (None, None))[1]

    def forget(self, name: str) -> None:
        """Free the memory of a result."""
        vars(self).pop(name, None)


class Corpus(Computed, list[Any]):
    """A list of examples."""


class CorpusText(Computed, str):
    """A text as the one example."""
