"""Pieces of words: byte-pair encoding over UTF-8 bytes, by the `tokenizers` library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers, trainers

from unrolled.errors import UserError
from unrolled.text.base import Encoding, Tokenizer, blocks, training_texts
from unrolled.text.vocabulary import UNK, Vocabulary, check_specials, check_vocabulary_limits, stored, stored_strings

_BATCH = 64  # blocks encoded side by side

DEFAULT_SIZE = 8000

# Steps of the library that would change a text.
_UNUSED = ("added_tokens", "normalizer", "post_processor", "truncation", "padding")
_UNUSED_BY_MODEL = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "byte_fallback",
    "ignore_merges",
)


class BPETokenizer(Tokenizer):
    """Sub-words: bytes, and the pairs of them that were most frequent in training, joined again and again.

    Every text can be encoded and decodes to itself: rare words become more tokens, in the extreme single bytes, so
    there is no `<unk>`. Special tokens are kept outside the library, before its own ids: a literal `<eos>` in a
    text is ordinary text.

    >>> pieces = BPETokenizer.train(["low lower slow slower " * 20])
    >>> [pieces.token(number) for number in pieces.ids("lowest")]
    ['low', 'e', 's', 't']
    >>> pieces.decode(pieces.ids("日本 👩‍🚀"))
    '日本 👩\u200d🚀'
    """

    level: ClassVar[str] = "bpe"

    def __init__(self, library: tokenizers.Tokenizer, *, lowercase: bool = False, specials: Sequence[str] = ()) -> None:
        check_specials(specials)
        tokens = _tokens(library)
        super().__init__(Vocabulary(tokens, specials), lowercase=lowercase)
        self._library = library
        self._first = len(specials)  # our id of the library's token 0
        self._bytes = [b""] * self._first + [bytes(_BYTE_OF[char] for char in token) for token in tokens]

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        lowercase: bool = False,
        specials: Sequence[str] = (),
    ) -> Self:
        """The `max_size` (default 8000) tokens: special ones, 256 bytes, and pairs seen at least `min_count` times."""
        check_specials(specials)
        specials = [token for token in specials if token != UNK]
        check_vocabulary_limits(min_count, max_size, at_least=len(specials) + 256)
        library = tokenizers.Tokenizer(models.BPE())
        library.pre_tokenizer = _pre_tokenizer()
        trainer = trainers.BpeTrainer(
            vocab_size=(DEFAULT_SIZE if max_size is None else max_size) - len(specials),
            min_frequency=min_count,
            initial_alphabet=sorted(_BYTE_OF),
            show_progress=False,
        )
        prepared = training_texts(texts, lowercase=lowercase)
        library.train_from_iterator((block for text in prepared for _, block in blocks(text)), trainer)
        return cls(library, lowercase=lowercase, specials=specials)

    def ids(self, text: str) -> NDArray[np.int32]:
        found = []
        parts = blocks(self._prepared(text))
        while batch := list(islice(parts, _BATCH)):
            encodings = self._library.encode_batch_fast([block for _, block in batch], add_special_tokens=False)
            found += [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        return np.concatenate(found) + np.int32(self._first) if found else np.empty(0, dtype=np.int32)

    def encode(self, text: str) -> Encoding:
        prepared = self._prepared(text)
        ids, offsets = [np.empty(0, dtype=np.int32)], [np.empty((0, 2), dtype=np.int64)]
        for start, block in blocks(prepared):
            encoding = self._library.encode(block, add_special_tokens=False)
            ids.append(np.array(encoding.ids, dtype=np.int32) + np.int32(self._first))
            offsets.append(np.array(encoding.offsets, dtype=np.int64) + start)
        return Encoding(np.concatenate(ids), self._to_original(np.concatenate(offsets), text, prepared))

    def piece(self, number: int, previous: int | None) -> bytes:
        return self._bytes[number]

    def token(self, number: int) -> str:
        r"""One token, to be shown: its text, with bytes that are only part of a character as `\xe6`."""
        shown = self.vocabulary[number]
        return shown if number < self._first else self._bytes[number].decode("utf-8", "backslashreplace")

    def extended(self, texts: Iterable[str]) -> Self:
        """This tokenizer itself: it encodes every text, and new pairs would change the ids of old texts."""
        return self

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "lowercase": self.lowercase,
            "specials": list(self.vocabulary.specials),
            "library": self._library.to_str(),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        specials = stored_strings(data, "specials")
        lowercase = stored(data, "lowercase", bool)
        library = _read(stored(data, "library", str))
        return cls(library, lowercase=lowercase, specials=specials)


def _pre_tokenizer() -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _byte_alphabet() -> dict[str, int]:
    """The library's printable character for each byte: itself if printable, otherwise the next from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _tokens(library: tokenizers.Tokenizer) -> list[str]:
    """The library's tokens in the order of their ids, checked: all 256 bytes, and only tokens made of bytes."""
    numbers = library.get_vocab()
    tokens = sorted(numbers, key=lambda token: numbers[token])
    if [numbers[token] for token in tokens] != list(range(len(tokens))):
        raise _not_ours("its ids have gaps")
    if not numbers.keys() >= _BYTE_OF.keys():
        raise _not_ours("some of the 256 bytes are missing")
    if not all(token and _BYTE_OF.keys() >= set(token) for token in tokens):
        raise _not_ours("it has tokens that are not made of bytes")
    return tokens


def _read(serialised: str) -> tokenizers.Tokenizer:
    """The library's tokenizer, checked to have the settings of `train`: others would lose or change text."""
    try:
        data = json.loads(serialised)
        others = [name for name in _UNUSED if data.get(name)]
        others += [name for name in _UNUSED_BY_MODEL if data["model"].get(name)]
        kinds = data["pre_tokenizer"]["type"], data["model"]["type"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _not_ours("it is not what the library writes") from None
    if others or kinds != ("ByteLevel", "BPE"):
        raise _not_ours(f"it sets {', '.join(others)}" if others else f"it is made of {' and '.join(map(str, kinds))}")
    try:
        library = tokenizers.Tokenizer.from_str(serialised)
    except Exception as error:  # the library raises plain Exception
        raise _not_ours(str(error)) from None
    library.pre_tokenizer = _pre_tokenizer()
    return library


def _not_ours(reason: str) -> UserError:
    problem = f"The stored tokenizer is damaged: its BPE cannot be used: {reason}."
    return UserError(problem, "Use another copy of the file, or train again.")
