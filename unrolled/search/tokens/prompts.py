"""Prompts and seeds of a generation, checked."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from unrolled.errors import UserError
from unrolled.search.tokens.token_model import is_whole


def checked_prompt(index: int, prompt: Sequence[int]) -> list[int]:
    """The tokens of a prompt; an error names its number."""
    if isinstance(prompt, str):
        raise UserError(f"prompts[{index}] is the text {prompt!r}, expected tokens.", "Encode it first.")
    if not hasattr(prompt, "__len__"):
        raise UserError(
            f"prompts[{index}] is {prompt!r}, expected a sequence of tokens.", "Put a single prompt into a list."
        )
    if len(prompt) == 0:
        raise UserError(
            f"prompts[{index}] is empty: the model has nothing to continue.", "Begin it with a start token."
        )
    for token in prompt:
        if not is_whole(token):
            raise UserError(f"prompts[{index}] holds {token!r}, expected whole numbers.", "Encode the text first.")
    return [operator.index(token) for token in prompt]


def row_seeds(seeds: int | Sequence[int] | None, count: int, arrays: Any) -> list[int]:
    """A seed for each of `count` rows; None takes them from the generator of `arrays`."""
    if seeds is None:
        return arrays.seeds(count)  # type: ignore[no-any-return]
    given = list(seeds) if isinstance(seeds, Sequence) else [seeds]
    for seed in given:
        if not is_whole(seed) or seed < 0:
            raise UserError(f"seed {seed!r} is not a whole number from 0 up.", "Use one such as 1.")
    if not isinstance(seeds, Sequence):
        return [operator.index(seeds) + row for row in range(count)]
    if len(given) != count:
        raise UserError(f"{len(given)} seeds were given for {count} prompts.", "Give one for each, or one number.")
    return [operator.index(seed) for seed in given]
