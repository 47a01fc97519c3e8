"""The tokens of captions and the shape of pictures. Stored in the model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import Amount, Count, stored_entry
from unrolled.data import Batch
from unrolled.data.batching.tables import NOTHING
from unrolled.data.readers.media.captions import Captioned
from unrolled.data.signals.views import Shape, View
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.shared.side import Ids, Side


@dataclass(frozen=True)
class CaptionAssets:
    """The tokens of captions, the shape of pictures, and the lengths of captions in training."""

    target: Side
    shape: Shape
    longest: int  # tokens, ends counted, which few captions pass
    words: float  # between blanks, in a caption of training, the mean
    references: float  # captions of a picture, the mean

    @property
    def most_tokens(self) -> int:
        """The maximum length of a caption, its end included: 1.5 times that of nearly all in training, plus 5."""
        return int(1.5 * self.longest) + 5

    def to_json(self) -> dict[str, Any]:
        shape = {"kind": self.shape.kind, "sizes": list(self.shape.sizes), "vector": self.shape.vector}
        numbers = {"longest": self.longest, "words": self.words, "references": self.references}
        return {"target": self.target.to_json(), "shape": shape, **numbers}

    @classmethod
    def from_json(cls, stored: Any) -> CaptionAssets:
        shape = stored_entry(stored, "shape", Shape, "shape of pictures")
        kinds = {"longest": Count, "words": Amount, "references": Amount}
        numbers = [stored_entry(stored, name, kind, "lengths") for name, kind in kinds.items()]
        return cls(Side.from_json(stored_entry(stored, "target", dict[str, Any], "vocabulary")), shape, *numbers)

    def encoded(self, examples: Sequence[Captioned]) -> list[list[Ids]]:
        """The tokens of the captions of each example; those of a corpus are computed once."""

        def compute() -> list[list[Ids]]:
            return [[self.target.ids(text) for text in example.captions] for example in examples]

        return examples.once("captions", self.target, compute) if isinstance(examples, Corpus) else compute()

    def measured(self, examples: Sequence[Captioned]) -> CaptionAssets:
        """The same with the lengths of these captions."""
        texts = [text for example in examples for text in example.captions]
        lengths = [len(ids) + 1 for several in self.encoded(examples) for ids in several]
        return replace(
            self,
            longest=max(self.longest, int(np.quantile(lengths, 0.999))),
            words=float(np.mean([len(text.split()) for text in texts])),
            references=len(texts) / len(examples),
        )


def view_arrays(views: Sequence[View]) -> Batch:
    """Pictures of one shape: pixels (B, H, W, 3) of 8 bits or regions (B, …, D), and vectors (B, V)."""
    values = [view.values for view in views if view.values is not None]
    vectors = [view.vector for view in views if view.vector is not None]
    inputs = _stacked(values) if values else np.zeros((len(views), 1), dtype=np.float32)
    return Batch(inputs, NOTHING, more={"vectors": _stacked(vectors)} if vectors else {})


def _stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays of one shape in one, of 8 bits or 32."""
    kind = np.uint8 if arrays[0].dtype == np.uint8 else np.float32
    table = np.empty((len(arrays), *arrays[0].shape), dtype=kind)
    for row, one in enumerate(arrays):
        table[row] = one
    return table
