"""Words and signs of a text, with their letters: the input of classifiers and taggers."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.text.base import check_text
from unrolled.text.vocabulary import UNK, Vocabulary, stored, stored_strings

MOST_LETTERS = 40  # letters of a word that count: its beginning and its end
_JOINING = frozenset("'’-.,:/@_&+")  # between letters or digits they are part of a word: don't, 3.5, state-of-the-art
# Scripts written without blanks: every character is a token.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)


def split_words(text: str) -> list[str]:
    """The words and signs of a text, in any script.

    Signs at the edges of a word stand alone; inside it they stay. Han, kana, Thai and other scripts without blanks
    come character by character.

    >>> split_words("“Don't panic!”, she said (twice): 3.5 km")
    ['“', "Don't", 'panic', '!', '”', ',', 'she', 'said', '(', 'twice', ')', ':', '3.5', 'km']
    >>> split_words("हिन्दी 猫だ")
    ['हिन्दी', '猫', 'だ']
    """
    check_text(text)
    words: list[str] = []
    for piece in text.split():
        if piece.isascii() and piece.isalnum():
            words.append(piece)
        else:
            words += _split_piece(piece)
    return words


@lru_cache(maxsize=100_000)
def _split_piece(piece: str) -> list[str]:
    kinds = [_kind(char) for char in piece]
    words: list[str] = []
    start = 0  # of the current word
    for at, kind in enumerate(kinds):
        inside = at > start and kind == "joining" and at + 1 < len(piece) and kinds[at + 1] == "letter"
        clitic = at == start and piece[at] in "'’" and len(piece) > at + 1 and kinds[at + 1] == "letter" and at == 0
        if kind == "letter" or inside or clitic:
            continue
        if at > start:
            words.append(piece[start:at])
        words.append(piece[at])
        start = at + 1
    if start < len(piece):
        words.append(piece[start:])
    return words


@lru_cache(maxsize=10_000)
def _kind(char: str) -> str:
    if char in _JOINING:
        return "joining"
    if unicodedata.category(char)[0] in "PS":
        return "sign"
    return "alone" if any(low <= ord(char) <= high for low, high in _UNSPACED) else "letter"


class Words:
    """Two vocabularies: of words, looked up in lower case, and of the letters they are spelt with, as they are.

    A word that is not in the first still has its letters.

    >>> words = Words.train([["The", "cat"], ["the", "dog"]], min_count=2)
    >>> words.vocabulary.tokens, words.ids(["THE", "bird"]).tolist()
    (('<unk>', 'the'), [1, 0])
    """

    def __init__(self, vocabulary: Vocabulary, letters: Vocabulary, *, lowercase: bool = True) -> None:
        self.vocabulary, self.letters, self.lowercase = vocabulary, letters, lowercase
        self._spelt: dict[str, NDArray[np.int32]] = {}

    @classmethod
    def train(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        lowercase: bool = True,
        known: Iterable[str] = (),
    ) -> Words:
        """The words seen `min_count` times or more, and all that are `known`, such as those with pretrained vectors."""
        counts: Counter[str] = Counter()
        letters: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(word.lower() if lowercase else word for word in sentence)
            letters.update("".join(sentence))
        vocabulary = Vocabulary.from_counts(counts, specials=[UNK], min_count=min_count, max_size=max_size)
        return cls(vocabulary.extended(known), Vocabulary.from_counts(letters, specials=[UNK]), lowercase=lowercase)

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """The ids of words (T,)."""
        return self.vocabulary.ids(word.lower() if self.lowercase else word for word in words)

    def unknowns(self, words: Iterable[str]) -> int:
        return int(np.count_nonzero(self.ids(words) == self.vocabulary.unk))

    def spelling(self, word: str) -> NDArray[np.int32]:
        """The ids of a word's letters; of a very long one's first and last."""
        found = self._spelt.get(word)
        if found is None:
            short = word if len(word) <= MOST_LETTERS else word[: MOST_LETTERS // 2] + word[-MOST_LETTERS // 2 :]
            found = self.letters.ids(short)
            if len(self._spelt) < 200_000:
                self._spelt[word] = found
        return found

    def extended(self, sentences: Iterable[Sequence[str]]) -> Words:
        """Vocabularies with the new words of these sentences added; old ids stay."""
        seen = list(sentences)
        words = (word.lower() if self.lowercase else word for sentence in seen for word in sentence)
        letters = (letter for sentence in seen for word in sentence for letter in word)
        return Words(self.vocabulary.extended(words), self.letters.extended(letters), lowercase=self.lowercase)

    def to_json(self) -> dict[str, Any]:
        return {
            "words": list(self.vocabulary.tokens[1:]),
            "letters": list(self.letters.tokens[1:]),
            "lowercase": self.lowercase,
        }

    @classmethod
    def from_json(cls, data: object) -> Words:
        words, letters = (Vocabulary(stored_strings(data, name), [UNK]) for name in ("words", "letters"))
        return cls(words, letters, lowercase=stored(data, "lowercase", bool))
