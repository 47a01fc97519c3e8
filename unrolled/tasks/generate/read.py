"""The texts of `generate` and their ids: in memory, or, where they are large, in a cache on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import EMBEDDED, embedded_text, read_text
from unrolled.data.batching.token_cache import LARGE, TokenCache
from unrolled.errors import UserError
from unrolled.tasks.contract import Data
from unrolled.tasks.corpus import CorpusText
from unrolled.tasks.generate.config import DataSettings
from unrolled.text import Tokenizer, train_tokenizer
from unrolled.text.large import LargeText
from unrolled.training import hash_of

Text = str | LargeText


def read_texts(settings: DataSettings) -> Data:
    """The texts to train and to validate on; without a file for the latter, the end of the former."""
    source = settings.train or f"{EMBEDDED}; its scores compare with nothing"
    train: Text
    valid: Text
    if settings.train is not None and settings.valid is None and is_large(settings, settings.train):
        train, end = TokenCache(settings.cache).text(settings.train, settings.valid_fraction)
        assert end is not None
        valid = end
    else:
        train = embedded_text() if settings.train is None else read_either(settings, settings.train)
        if settings.valid is not None:
            valid = read_either(settings, settings.valid)
        else:
            assert isinstance(train, str)
            cut = round(len(train) * (1 - settings.valid_fraction))
            train, valid = train[:cut], train[cut:]
    mark = hash_of(_mark(train), _mark(valid))
    train, valid = (CorpusText(text) if isinstance(text, str) else text for text in (train, valid))
    return Data(train, valid, source, mark)


def is_large(settings: DataSettings, path: str | Path) -> bool:
    """True if a file goes through the token cache: by the config, or because it is large; not for .gz."""
    path = Path(path)
    if not path.is_file():  # what cannot be read is said by who reads it
        return False
    if path.suffix == ".gz":
        if settings.cache is None:
            return False
        raise UserError(f"{path} is packed, and data.cache keeps texts as they are.", "Unpack it, or leave that out.")
    if settings.cache is None and path.stat().st_size < LARGE:
        return False
    if settings.direction == "backward":
        raise UserError(
            f"{path} is read through the token cache, which goes forward only.",
            "Use data.direction=forward, or a text below 64 MB without data.cache.",
        )
    return True


def read_either(settings: DataSettings, path: str | Path) -> Text:
    """The whole of a file."""
    return TokenCache(settings.cache).text(path)[0] if is_large(settings, path) else read_text(path)


def tokenizer_for(settings: DataSettings, text: Text, init: Tokenizer | None) -> Tokenizer:
    """A tokenizer made from a text, or one extended by what is new in it."""
    options: dict[str, Any] = settings.model_dump(include={"min_count", "max_size", "lowercase"})
    if isinstance(text, str):
        return train_tokenizer(settings.level, [text], **options) if init is None else init.extended([text])
    cache = TokenCache(settings.cache)
    if init is not None:
        return cache.tokenizer(text, init.to_json(), init.extended)
    key = {"level": settings.level, **options}
    return cache.tokenizer(text, key, lambda texts: train_tokenizer(settings.level, texts, **options))


def ids_of(settings: DataSettings, tokenizer: Tokenizer, text: Text) -> NDArray[np.integer]:
    """The ids of a text, in its own order."""
    if isinstance(text, CorpusText):
        return text.once("ids", tokenizer, lambda: tokenizer.ids(text))
    return tokenizer.ids(text) if isinstance(text, str) else TokenCache(settings.cache).ids(text, tokenizer)


def count(ids: NDArray[np.integer], wanted: int | None) -> int:
    """The number of occurrences of an id, without a copy of all."""
    if wanted is None:
        return 0
    size = 1 << 22
    return sum(int(np.count_nonzero(ids[i : i + size] == wanted)) for i in range(0, len(ids), size))


def _mark(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else f"{text.sha256} {text.begin} {text.end}".encode()
