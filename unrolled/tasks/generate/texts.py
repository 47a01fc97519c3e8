"""Texts and their ids: in memory, or, where they are large, in a cache on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unrolled.data import read_text
from unrolled.data.batching.token_cache import LARGE, TokenCache
from unrolled.errors import UserError
from unrolled.tasks.corpus import CorpusText
from unrolled.text import Tokenizer
from unrolled.text.large import LargeText

Text = str | LargeText
Direction = Literal["forward", "backward"]


def is_large(path: str | Path, cache: str | None, direction: Direction) -> bool:
    """True if a file goes through the token cache: by the config, or because it is large; not for .gz."""
    path = Path(path)
    if not path.is_file():  # what cannot be read is said by who reads it
        return False
    if path.suffix == ".gz":
        if cache is None:
            return False
        raise UserError(f"{path} is packed, and data.cache keeps texts as they are.", "Unpack it, or leave that out.")
    if cache is None and path.stat().st_size < LARGE:
        return False
    if direction == "backward":
        raise UserError(
            f"{path} is read through the token cache, which goes forward only.",
            "Use data.direction=forward, or a text below 64 MB without data.cache.",
        )
    return True


def read_either(path: str | Path, cache: str | None, direction: Direction, workers: int | None = None) -> Text:
    """The whole of a file."""
    return TokenCache(cache, workers).text(path)[0] if is_large(path, cache, direction) else read_text(path)


def ids_of(tokenizer: Tokenizer, text: Text, cache: str | None, workers: int | None = None) -> NDArray[np.integer]:
    """The ids of a text, in its own order."""
    if isinstance(text, CorpusText):
        return text.once("ids", tokenizer, lambda: tokenizer.ids(text))
    return tokenizer.ids(text) if isinstance(text, str) else TokenCache(cache, workers).ids(text, tokenizer)


def count(ids: NDArray[np.integer], wanted: int | None) -> int:
    """The number of occurrences of an id, without a copy of all."""
    if wanted is None:
        return 0
    size = 1 << 22
    return sum(int(np.count_nonzero(ids[i : i + size] == wanted)) for i in range(0, len(ids), size))
