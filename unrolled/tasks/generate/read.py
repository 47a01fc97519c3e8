"""The texts that `generate` trains on, and their tokenizer."""

from __future__ import annotations

from typing import Any

from unrolled.data import EMBEDDED, embedded_text
from unrolled.data.batching.token_cache import TokenCache
from unrolled.tasks.contract import Data
from unrolled.tasks.corpus import CorpusText
from unrolled.tasks.generate.config import DataSettings
from unrolled.tasks.generate.texts import Text, is_large, read_either
from unrolled.text import Tokenizer, train_tokenizer
from unrolled.training import hash_of


def read_texts(settings: DataSettings) -> Data:
    """The texts to train and to validate on; without a file for the latter, the end of the former."""
    source = settings.train or f"{EMBEDDED}; its scores compare with nothing"
    train: Text
    valid: Text
    how = settings.cache, settings.direction, settings.cache_workers
    if settings.train is not None and settings.valid is None and is_large(settings.train, *how[:2]):
        train, end = TokenCache(settings.cache, settings.cache_workers).text(settings.train, settings.valid_fraction)
        assert end is not None
        valid = end
    else:
        train = embedded_text() if settings.train is None else read_either(settings.train, *how)
        if settings.valid is not None:
            valid = read_either(settings.valid, *how)
        else:
            assert isinstance(train, str)
            cut = round(len(train) * (1 - settings.valid_fraction))
            train, valid = train[:cut], train[cut:]
    mark = hash_of(_mark(train), _mark(valid))
    train, valid = (CorpusText(text) if isinstance(text, str) else text for text in (train, valid))
    return Data(train, valid, source, mark)


def tokenizer_for(settings: DataSettings, text: Text, init: Tokenizer | None) -> Tokenizer:
    """A tokenizer made from a text, or one extended by what is new in it."""
    options: dict[str, Any] = settings.model_dump(include={"min_count", "max_size", "lowercase"})
    if isinstance(text, str):
        return train_tokenizer(settings.level, [text], **options) if init is None else init.extended([text])
    cache = TokenCache(settings.cache, settings.cache_workers)
    if init is not None:
        return cache.tokenizer(text, init.to_json(), init.extended)
    return cache.trained(text, settings.level, **options)


def _mark(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else f"{text.sha256} {text.begin} {text.end}".encode()
