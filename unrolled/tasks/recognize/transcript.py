"""A text to align, as words with their labels: spelt by the model's characters or symbols, or by a lexicon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unrolled.errors import UserError
from unrolled.search import Lexicon
from unrolled.tasks.recognize.labels import Labels

Spelling = tuple[int, ...]


class Pronunciations(dict[str, list[Spelling]]):
    """The spellings of each word, as label numbers."""


@dataclass(frozen=True)
class SpokenWord:
    """A word of a transcript and the ways to spell it, of which one is chosen."""

    text: str
    spellings: tuple[Spelling, ...]
    chosen: int = 0

    @property
    def labels(self) -> Spelling:
        return self.spellings[self.chosen]


@dataclass(frozen=True)
class Transcript:
    """The words of a text, and the label between them, if there is one."""

    words: tuple[SpokenWord, ...]
    separator: int | None

    @property
    def labels(self) -> list[int]:
        """All labels in order."""
        found: list[int] = []
        for number, word in enumerate(self.words):
            if number and self.separator is not None:
                found.append(self.separator)
            found += word.labels
        return found

    @property
    def places(self) -> list[tuple[int, int]]:
        """Of each word its first label, and the one after its last."""
        found, start = [], 0
        for word in self.words:
            found.append((start, start + len(word.labels)))
            start = found[-1][1] + (self.separator is not None)
        return found

    def choosing(self, choices: Sequence[int]) -> Transcript:
        """The same with other spellings."""
        words = (replace(word, chosen=choice) for word, choice in zip(self.words, choices, strict=True))
        return replace(self, words=tuple(words))


def pronunciations(lexicon: Lexicon) -> Pronunciations:
    """The spellings of each word of a lexicon, as label numbers."""
    numbers = {label: number for number, label in enumerate(lexicon.labels)}
    found = Pronunciations()
    for word, said in lexicon.spellings():
        found.setdefault(word, []).append(tuple(numbers[label] for label in said))
    return found


def transcript_of(text: str, labels: Labels, said: Pronunciations | None, *, skip_unknown: bool = False) -> Transcript:
    """The words of a text with their labels. What the model has no label for is an error, or is left out."""
    separator = None if labels.separator is None else labels.names.index(labels.separator)
    words = []
    for word in text.split():
        if said is not None:
            spellings = tuple(said.get(word) or said.get(word.lower()) or ())
            unknown = [] if spellings else [word]
        else:
            spellings, unknown = (tuple(labels.ids(word)),), labels.unknown(word)
        if unknown and not skip_unknown:
            raise _unknown(unknown, word, labels, lexicon=said is not None)
        if spellings and spellings[0]:
            words.append(SpokenWord(word, spellings))
    if not words:
        raise UserError("There is no text to align.", "Give the words that the input says.")
    return Transcript(tuple(words), separator)


def _unknown(unknown: Sequence[str], word: str, labels: Labels, *, lexicon: bool) -> UserError:
    fix = "Mend the text, or leave such parts out with skip_unknown (--skip-unknown)."
    if lexicon:
        return UserError(f"The lexicon does not have the word {word!r}.", f"Add it, or {fix[0].lower()}{fix[1:]}")
    if labels.symbols:
        return UserError(
            f"{word!r} is not a label of the model, which reads {', '.join(labels.names[1:6])}, ….",
            "For a text of words give their pronunciations with lexicon (--lexicon).",
        )
    shown = ", ".join(map(repr, dict.fromkeys(unknown)))
    return UserError(f"The model never saw {shown} in training; the word {word!r} has it.", fix)
