"""Tokenizers whose vocabulary is the list of tokens counted in the training texts."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from unrolled.errors import UserError
from unrolled.text.base import Tokenizer, checked_texts, training_texts
from unrolled.text.vocabulary import UNK, Vocabulary, check_specials, check_vocabulary_limits, stored


class CountedTokenizer(Tokenizer):
    """A tokenizer with a fixed list of tokens; every other token is `<unk>`, id 0."""

    noun: ClassVar[str]

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool = False) -> None:
        super().__init__(vocabulary, lowercase=lowercase)
        if vocabulary.unk is None:
            raise UserError(f"This vocabulary of {self.noun}s has no {UNK}.", f"Put {UNK} first in its specials.")
        for token in vocabulary.tokens[len(vocabulary.specials) :]:
            if not self.is_token(token):
                raise UserError(f"This is not a vocabulary of {self.noun}s: {token!r} is not one {self.noun}.")

    @staticmethod
    @abstractmethod
    def is_token(token: str) -> bool:
        """True if a string can be a token of this level."""

    @staticmethod
    @abstractmethod
    def split(text: str) -> Iterable[str]:
        """The tokens of a text, as strings."""

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
        check_specials(specials)
        check_vocabulary_limits(min_count, max_size, at_least=len({UNK, *specials}) + 1)
        counts = cls.counts(training_texts(texts, lowercase=lowercase))
        return cls.of_counts(counts, min_count=min_count, max_size=max_size, lowercase=lowercase, specials=specials)

    @classmethod
    def of_counts(
        cls,
        counts: Mapping[str, int],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        lowercase: bool = False,
        specials: Sequence[str] = (),
    ) -> Self:
        """The tokenizer for texts whose tokens were counted; the texts of a split are counted apart and added up."""
        check_specials(specials)
        specials = (UNK, *(token for token in specials if token != UNK))
        check_vocabulary_limits(min_count, max_size, at_least=len(specials) + 1)
        if not counts:
            raise UserError("The training text is empty, or only white space.", "Give a text with something in it.")
        vocabulary = Vocabulary.from_counts(counts, specials=specials, min_count=min_count, max_size=max_size)
        if len(vocabulary) == len(specials):
            raise UserError(f"No {cls.noun} occurs min_count={min_count} times.", "Lower min_count or give more text.")
        return cls(vocabulary, lowercase=lowercase)

    def extended(self, texts: Iterable[str]) -> Self:
        counts = self.counts(checked_texts(texts, lowercase=self.lowercase))
        vocabulary = self.vocabulary.extended(Vocabulary.from_counts(counts))
        return type(self)(vocabulary, lowercase=self.lowercase)

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "lowercase": self.lowercase, "vocabulary": self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        vocabulary = Vocabulary.from_json(stored(data, "vocabulary", dict))
        return cls(vocabulary, lowercase=stored(data, "lowercase", bool))

    @classmethod
    def counts(cls, texts: Iterable[str]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(cls.split(text))
        return counts
