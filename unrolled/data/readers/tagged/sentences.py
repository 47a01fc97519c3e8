"""Sentences with a tag for each word: the result of all readers of tagged text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sentence:
    """Words with their features and tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    features: tuple[tuple[str, ...], ...] = ()  # further columns, each as long as the words
    place: str = ""  # file:line

    def __len__(self) -> int:
        return len(self.words)

    @property
    def key(self) -> tuple[str, ...]:
        """The input: equal for equal words."""
        return self.words

    @property
    def content(self) -> bytes:
        """Words, tags and features as bytes."""
        return "\0".join([*self.words, *(self.tags or ()), *sum(self.features, ())]).encode()


@dataclass(frozen=True)
class Columns:
    """The columns of the words, the tags and the features: names, or numbers from 1 on.

    None: the default, the first and the last column of a file of columns, `tokens` and `tags` in JSON and Parquet.
    In CoNLL-U words are in the column form, and tags in the one named by `conllu`.
    """

    words: str | None = None
    tags: str | None = None
    features: tuple[str, ...] = ()
    conllu: str = "upos"
    names: tuple[str, ...] = ()  # names of tags that are whole numbers


USUAL = Columns()
