"""One token per code point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unrolled.text.base import Encoding, Ids
from unrolled.text.counted import CountedTokenizer
from unrolled.text.vocabulary import Vocabulary

_CODE_POINTS = 0x110000
_REPLACEMENT = "\ufffd"
_BLOCK = 1 << 20  # code points looked up at a time, so that a block of UTF-32 stays in the cache
_FEW = 1 << 14  # below this length, counting one by one beats a table of all code points


class CharTokenizer(CountedTokenizer):
    """Characters: each code point is a token, without normalisation, so that every text survives.

    A code point that was not seen in training is `<unk>`, and decodes as U+FFFD.

    >>> characters = CharTokenizer.train(["abba"])
    >>> characters.encode("bac").ids
    array([2, 1, 0], dtype=int32)
    >>> characters.decode([2, 1, 0])
    'ba�'
    """

    level: ClassVar[str] = "char"
    noun: ClassVar[str] = "character"

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool = False) -> None:
        super().__init__(vocabulary, lowercase=lowercase)
        special = len(vocabulary.specials)
        shown = _REPLACEMENT * special + "".join(vocabulary.tokens[special:])
        self._code_of_id = _codes(shown)  # (V,)
        self._id_of_code = np.zeros(_CODE_POINTS, dtype=np.int32)  # untouched pages take no memory
        self._id_of_code[self._code_of_id[special:]] = np.arange(special, len(vocabulary))

    @staticmethod
    def is_token(token: str) -> bool:
        return len(token) == 1

    @staticmethod
    def split(text: str) -> Iterable[str]:
        return text

    @classmethod
    def counts(cls, texts: Iterable[str]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for text in texts:
            for start in range(0, len(text), _BLOCK):
                block = text[start : start + _BLOCK]
                if len(block) < _FEW:
                    counts.update(block)
                    continue
                times = np.bincount(_codes(block))
                counts.update({chr(code): int(times[code]) for code in times.nonzero()[0]})
        return counts

    def ids(self, text: str) -> NDArray[np.int32]:
        return self._look_up(self._prepared(text))

    def encode(self, text: str) -> Encoding:
        prepared = self._prepared(text)
        starts = np.arange(len(prepared))
        offsets = np.stack([starts, starts + 1], axis=1)
        return Encoding(self._look_up(prepared), self._to_original(offsets, text, prepared))

    def decode(self, ids: Ids) -> str:
        array = self.vocabulary.check(ids)
        if len(self.vocabulary.specials) > 1:
            array = array[(array == self.vocabulary.unk) | (array >= len(self.vocabulary.specials))]
        return self._code_of_id[array].tobytes().decode("utf-32-le")

    def _look_up(self, prepared: str) -> NDArray[np.int32]:
        ids = np.empty(len(prepared), dtype=np.int32)
        for start in range(0, len(prepared), _BLOCK):
            codes = _codes(prepared[start : start + _BLOCK])
            # Every code is inside the table: "clip" saves numpy the check and a buffer.
            np.take(self._id_of_code, codes, out=ids[start : start + len(codes)], mode="clip")
        return ids

    def piece(self, number: int, previous: int | None) -> bytes:
        return (_REPLACEMENT if number == self.vocabulary.unk else self.vocabulary[number]).encode()


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
