"""The reader of one sequence: words with their letters, tokens, or frames. Stored in the model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from unrolled.config.stored import DAMAGED, Size, stored_entry
from unrolled.data.batching.tables import FrameSequences, SequenceTable, TokenTable, WordTable
from unrolled.errors import UserError
from unrolled.tasks.shared.levels import classifier_level
from unrolled.text import Tokenizer, Words, split_words, tokenizer_from_json, train_tokenizer
from unrolled.text.vectors import Vectors

if TYPE_CHECKING:
    from unrolled.models.inputs import FrameInput, TokenInput, WordInput

_TEXTS = ("words", "tokenizer")
LEVEL = Literal["auto", "word", "char", "bpe", "symbols"]


class ReadingSettings(Protocol):
    """The keys of a data section that a reader needs."""

    @property
    def level(self) -> LEVEL: ...
    @property
    def lowercase(self) -> bool: ...
    @property
    def min_count(self) -> int: ...
    @property
    def max_size(self) -> int | None: ...
    @property
    def vectors(self) -> str | None: ...


class InputSettings(Protocol):
    """The keys of a model section for the layer before the recurrent ones."""

    @property
    def embedding_size(self) -> int: ...
    @property
    def letter_size(self) -> int: ...
    @property
    def letter_hidden(self) -> int: ...
    @property
    def word_dropout(self) -> float: ...
    @property
    def tune_vectors(self) -> bool: ...
    @property
    def front(self) -> list[int]: ...
    @property
    def dropout(self) -> float: ...


@dataclass(frozen=True)
class Reader:
    """One of three: `words`, a `tokenizer`, or `frames`, the shape of one frame."""

    words: Words | None = None
    tokenizer: Tokenizer | None = None
    frames: tuple[int, ...] = ()
    vector_size: int | None = None  # of pretrained vectors

    @classmethod
    def train(cls, settings: ReadingSettings, inputs: Sequence[Any]) -> Reader:
        """A reader trained on these inputs."""
        if not isinstance(inputs[0], str):
            return cls(frames=_one_shape(inputs))
        level = settings.level if settings.level != "auto" else classifier_level(inputs)
        if level == "word":
            known: list[str] = []
            size = None
            if settings.vectors is not None:
                vectors = Vectors.read(settings.vectors)
                known = [word for word in vectors.words if not settings.lowercase or word == word.lower()]
                size = vectors.matrix.shape[1]
            words = Words.train(
                (split_words(text) for text in inputs),
                min_count=settings.min_count,
                max_size=settings.max_size,
                lowercase=settings.lowercase,
                known=known,
            )
            return cls(words=words, vector_size=size)
        if settings.vectors is not None:
            raise UserError(f"data.vectors are of words, and data.level={level}.", "Use data.level=word.")
        least = settings.min_count if level == "symbols" else 1
        return cls(tokenizer=train_tokenizer(level, inputs, min_count=least, max_size=settings.max_size))

    def facts(self) -> dict[str, Any]:
        """The kind of the inputs: see `Task.facts`."""
        if self.frames:
            return {"inputs": "frames"}
        level = "word" if self.tokenizer is None else self.tokenizer.level
        return {"inputs": "text", "data.level": level}

    @property
    def expects(self) -> str:
        return f"an array of frames (steps, {', '.join(map(str, self.frames))})" if self.frames else "a text"

    def __str__(self) -> str:
        if self.words is not None:
            return f"words, {len(self.words.vocabulary):,} known, {len(self.words.letters)} letters"
        if self.tokenizer is not None:
            return f"{self.tokenizer.level} tokens, {len(self.tokenizer)} known"
        return f"frames of shape {self.frames}"

    def build(self, settings: InputSettings) -> WordInput | TokenInput | FrameInput:
        """The layer that turns a batch into vectors."""
        from unrolled.models.inputs import FrameInput, TokenInput, WordInput

        if self.words is not None:
            return WordInput(
                len(self.words.vocabulary),
                len(self.words.letters),
                size=self.vector_size or settings.embedding_size,
                letter_size=settings.letter_size,
                letter_hidden=settings.letter_hidden,
                word_dropout=settings.word_dropout,
                frozen=self.vector_size is not None and not settings.tune_vectors,
            )
        if self.tokenizer is not None:
            return TokenInput(len(self.tokenizer), settings.embedding_size)
        return FrameInput(self.frames, settings.front, settings.dropout)

    def steps(self, one: Any) -> Any:
        """The steps of an input: its words, the ids of its tokens, or its frames."""
        if self.words is not None:
            return split_words(one)
        return self.tokenizer.ids(one) if self.tokenizer is not None else one

    def table(self, inputs: Sequence[Any], letters: bool = True) -> SequenceTable:
        """Inputs, each in steps, as the numbers that batches are made of; those of words may do without `letters`."""
        if self.words is not None:
            return WordTable(self.words, inputs, letters)
        return TokenTable(inputs) if self.tokenizer is not None else FrameSequences(inputs, self.frames)

    def tokens(self, one: Any) -> list[str]:
        """The name of each step, for figures; frames are numbered."""
        if self.words is not None:
            return split_words(one)
        if self.tokenizer is not None:
            return [self.tokenizer.token(int(i)) for i in self.tokenizer.ids(one)]
        return [str(number) for number in range(len(one))]

    def unknowns(self, steps: Any) -> int:
        """The number of steps that training never saw."""
        if self.words is not None:
            return self.words.unknowns(steps)
        unk = None if self.tokenizer is None else self.tokenizer.vocabulary.unk
        return 0 if unk is None else int(np.count_nonzero(steps == unk))

    def extended(self, inputs: Sequence[Any]) -> Reader:
        """With tokens for everything new in these inputs; known tokens keep their ids."""
        if self.words is not None:
            return replace(self, words=self.words.extended(split_words(text) for text in inputs))
        if self.tokenizer is not None:
            return replace(self, tokenizer=self.tokenizer.extended(inputs))
        return self

    def to_json(self) -> dict[str, Any]:
        return {
            "words": None if self.words is None else self.words.to_json(),
            "tokenizer": None if self.tokenizer is None else self.tokenizer.to_json(),
            "frames": list(self.frames),
            "vector_size": self.vector_size,
        }

    @classmethod
    def from_json(cls, stored: Any) -> Reader:
        words, tokenizer = (stored_entry(stored, name, dict[str, Any] | None, "reader") for name in _TEXTS)
        reader = cls(
            words=None if words is None else Words.from_json(words),
            tokenizer=None if tokenizer is None else tokenizer_from_json(tokenizer),
            frames=stored_entry(stored, "frames", tuple[Size, ...], "reader"),
            vector_size=stored_entry(stored, "vector_size", Size | None, "reader"),
        )
        if (words is not None) + (tokenizer is not None) + bool(reader.frames) != 1 or len(reader.frames) > 3:
            raise UserError("The stored reader is damaged: expected words, tokens or frames.", DAMAGED)
        return reader


def load_vectors(inputs: WordInput, words: Words, path: str) -> None:
    """Set the embeddings of all words in a file of vectors."""
    vectors = Vectors.read(path, keep=words.vocabulary.tokens)
    places = {word: place for place, word in enumerate(vectors.words)}
    found = [(row, places[word]) for row, word in enumerate(words.vocabulary) if word in places]
    inputs.load_vectors([row for row, _ in found], vectors.matrix[[place for _, place in found]])


def _one_shape(inputs: Sequence[Any]) -> tuple[int, ...]:
    shape: tuple[int, ...] = inputs[0].shape[1:]
    for number, frames in enumerate(inputs, 1):
        if frames.shape[1:] != shape:
            raise UserError(f"Sequence {number} has frames of shape {frames.shape[1:]}, the first of {shape}.")
    return shape
