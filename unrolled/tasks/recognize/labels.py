"""From transcripts to labels and back. Kept in the model file."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from unrolled.config.stored import DAMAGED, stored_entry
from unrolled.data.readers.media.transcripts import tidy
from unrolled.errors import UserError
from unrolled.search.ctc.label_text import label_text
from unrolled.tasks.recognize.features import InputReader

BLANK = "<blank>"
BETWEEN = " "


@dataclass(frozen=True)
class Labels:
    """The names of the network's outputs: the blank first, then characters or symbols, the frequent ones first."""

    names: tuple[str, ...]
    level: str  # char or symbols
    lowercase: bool

    @classmethod
    def train(cls, texts: Iterable[str], level: str, lowercase: bool) -> Labels:
        empty = cls((BLANK,), level, lowercase)
        counts = Counter(name for text in texts for name in empty.split(text))
        if not counts:
            raise UserError("All transcripts are empty.", "Give examples that say something.")
        if BLANK in counts:
            raise UserError(f"A transcript has the symbol {BLANK}, which is the name of no label.", "Rename it.")
        return cls((BLANK, *sorted(counts, key=lambda name: (-counts[name], name))), level, lowercase)

    def extended(self, texts: Iterable[str]) -> Labels:
        """Also knows what is new in these; what was known keeps its number."""
        new = [name for name in Labels.train(texts, self.level, self.lowercase).names if name not in set(self.names)]
        return Labels((*self.names, *new), self.level, self.lowercase)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def symbols(self) -> bool:
        """True if transcripts have spaces between labels."""
        return self.level == "symbols"

    @property
    def separator(self) -> str | None:
        """The label between words, where there is one."""
        return BETWEEN if BETWEEN in self.names else None

    @property
    def glue(self) -> str:
        """The separator between joined texts."""
        return " " if self.symbols or self.separator else ""

    def split(self, text: str) -> list[str]:
        text = tidy(text.lower() if self.lowercase else text)
        return text.split() if self.symbols else list(text)

    def ids(self, text: str) -> list[int]:
        """The labels of a text; those that training never saw are left out."""
        numbers = self._numbers
        return [numbers[name] for name in self.split(text) if name in numbers]

    def unknown(self, text: str) -> list[str]:
        """The characters or symbols of a text that no label stands for."""
        numbers = self._numbers
        return [name for name in self.split(text) if name not in numbers]

    def reference(self, text: str) -> str:
        """A transcript as it would be written if it were recognised."""
        return label_text(self.split(text), self.symbols)

    def text(self, ids: Sequence[int]) -> str:
        """Labels as a transcript writes them."""
        return tidy(label_text((self.names[i] for i in ids), self.symbols))

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names) if number}


@dataclass(frozen=True)
class RecognizeAssets:
    """The reader of inputs, and the labels of outputs."""

    reader: InputReader
    labels: Labels

    def to_json(self) -> dict[str, Any]:
        labels = self.labels
        return {
            "reader": self.reader.to_json(),
            "labels": {"names": list(labels.names), "level": labels.level, "lowercase": labels.lowercase},
        }

    @classmethod
    def from_json(cls, stored: Any) -> RecognizeAssets:
        labels: Labels = stored_entry(stored, "labels", Labels, "labels")
        if len(set(labels.names)) < len(labels.names) or labels.names[:1] != (BLANK,):
            raise UserError(f"The stored labels are damaged: expected {BLANK} first, and each once.", DAMAGED)
        return cls(InputReader.from_json(stored_entry(stored, "reader", dict[str, Any], "model")), labels)
