"""Tokens between blanks: words, or symbols such as phonemes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unrolled.text.base import Encoding, Ids, blocks
from unrolled.text.counted import CountedTokenizer
from unrolled.text.vocabulary import Vocabulary

_TOKEN = re.compile(r"\n|\S+")
_NEWLINE = re.compile(" ?\n ?")


class WordTokenizer(CountedTokenizer):
    r"""Words: the longest runs without white space; "\n" is a token of its own, so that lines are kept.

    Decoding puts one blank between words and none beside "\n". A word that was not seen in training is `<unk>`;
    texts in which rare words are already written `<unk>`, as the Penn Treebank's, mean the same token.

    >>> words = WordTokenizer.train(["the cat\nthe dog"])
    >>> words.vocabulary.tokens
    ('<unk>', 'the', '\n', 'cat', 'dog')
    >>> words.encode("the  bird").offsets.tolist()
    [[0, 3], [5, 9]]
    >>> words.decode(words.ids("the bird\nthe cat"))
    'the <unk>\nthe cat'
    """

    level: ClassVar[str] = "word"
    noun: ClassVar[str] = "word"

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool = False) -> None:
        super().__init__(vocabulary, lowercase=lowercase)
        self._newline = vocabulary.id("\n") if "\n" in vocabulary else None
        self._controls = frozenset(filter(vocabulary.is_control, range(len(vocabulary.specials))))

    @staticmethod
    def is_token(token: str) -> bool:
        return _TOKEN.fullmatch(token) is not None

    @staticmethod
    def split(text: str) -> Iterable[str]:
        return chain.from_iterable(_TOKEN.findall(block) for _, block in blocks(text))

    def ids(self, text: str) -> NDArray[np.int32]:
        return self.vocabulary.ids(self.split(self._prepared(text)))

    def ids_each(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], list[int]]:
        split = [self._split(self._prepared(text)) for text in texts]
        return self.vocabulary.ids(chain.from_iterable(split)), [len(words) for words in split]

    @staticmethod
    def _split(text: str) -> list[str]:
        return _TOKEN.findall(text) if "\n" in text else text.split()

    def decode(self, ids: Ids) -> str:
        return self.decode_each([self.vocabulary.check(ids).tolist()])[0]

    def decode_each(self, rows: Sequence[Sequence[int]]) -> list[str]:
        tokens, controls = self.vocabulary.tokens, self._controls
        texts = [
            " ".join(
                map(tokens.__getitem__, row if controls.isdisjoint(row) else (i for i in row if i not in controls))
            )
            for row in rows
        ]
        return texts if self._newline is None else [_NEWLINE.sub("\n", text) for text in texts]

    def encode(self, text: str) -> Encoding:
        prepared = self._prepared(text)
        spans = [match.span() for match in _TOKEN.finditer(prepared)]
        ids = self.vocabulary.ids(prepared[start:end] for start, end in spans)
        offsets = np.array(spans, dtype=np.int64).reshape(-1, 2)
        return Encoding(ids, self._to_original(offsets, text, prepared))

    def piece(self, number: int, previous: int | None) -> bytes:
        joined = previous is None or self._newline in (number, previous)
        return (self.vocabulary[number] if joined else " " + self.vocabulary[number]).encode()


class SymbolTokenizer(WordTokenizer):
    """Symbols separated by blanks, such as phonemes: each is one token.

    >>> phonemes = SymbolTokenizer.train(["HH AH0 L OW1", "W ER1 L D"])
    >>> phonemes.decode(phonemes.ids("W  OW1"))
    'W OW1'
    """

    level: ClassVar[str] = "symbols"
    noun: ClassVar[str] = "symbol"
