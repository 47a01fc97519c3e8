"""The two sides of a translation, and the lengths of their texts. Stored in the model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unrolled.config.stored import Amount, Count, stored_entry
from unrolled.data import Pair
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.shared.side import Ids, Reading, Side, form_of, level_of, trained_side


@dataclass(frozen=True)
class TranslateAssets:
    """Both sides, and the lengths of sources and targets in training."""

    source: Side
    target: Side
    joint: bool  # one set of tokens for both
    longest_source: int
    ratio: float  # of target to source tokens, which few pairs pass
    target_words: float  # between blanks, in a target of training, the mean
    target_tokens: float  # the mean

    @property
    def source_size(self) -> int:
        return len(self.source.tokenizer)

    @property
    def target_size(self) -> int:
        return len(self.target.tokenizer)

    def most_tokens(self, source_tokens: int) -> int:
        """The maximum length of a translation, its end included: 1.5 times the longest in training, plus 10."""
        return int(1.5 * self.ratio * source_tokens) + 10

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source.to_json(),
            "target": None if self.joint else self.target.to_json(),
            "longest_source": self.longest_source,
            "ratio": self.ratio,
            "target_words": self.target_words,
            "target_tokens": self.target_tokens,
        }

    @classmethod
    def from_json(cls, stored: Any) -> TranslateAssets:
        source = Side.from_json(stored_entry(stored, "source", dict[str, Any], "vocabularies"))
        joint = stored_entry(stored, "target", dict[str, Any] | None, "vocabularies") is None
        target = source if joint else Side.from_json(stored["target"])
        kinds = {"longest_source": Count, "ratio": Amount, "target_words": Amount, "target_tokens": Amount}
        numbers = [stored_entry(stored, name, kind, "lengths") for name, kind in kinds.items()]
        return cls(source, target, joint, *numbers)

    @classmethod
    def train(
        cls, pairs: Sequence[Pair], source: Reading, target: Reading, joint: bool, limit: int | None = None
    ) -> TranslateAssets:
        """The sides for pairs like these; `joint` learns one set of sub-words for both, if both are sub-words.

        limit: training leaves out sources of more tokens.
        """
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        levels = [level_of(side, texts) for side, texts in ((source, sources), (target, targets))]
        forms = [form_of(source, levels[0], sources), form_of(target, "", targets)]
        together = joint and levels == ["bpe", "bpe"] and source.lowercase == target.lowercase and forms[0] == forms[1]
        if together:
            one = trained_side(source, "bpe", [*sources, *targets], forms[0])
            made = cls(one, one, True, 0, 1.0, 0.0, 0.0)
        else:
            first = trained_side(source, levels[0], sources, forms[0])
            second = trained_side(target, levels[1], targets, forms[1])
            made = cls(first, second, False, 0, 1.0, 0.0, 0.0)
        return made.measured(pairs, limit)

    def encoded(self, pairs: Sequence[Pair]) -> list[tuple[Ids, Ids]]:
        """The tokens of both sides of each pair; those of a corpus are computed once."""
        if not isinstance(pairs, Corpus):
            return [(self.source.ids(pair.source), self.target.ids(pair.target)) for pair in pairs]
        sources = pairs.once("sources", self.source, lambda: [self.source.ids(pair.source) for pair in pairs])
        targets = pairs.once("targets", self.target, lambda: [self.target.ids(pair.target) for pair in pairs])
        return list(zip(sources, targets, strict=True))

    def measured(self, pairs: Sequence[Pair], limit: int | None = None) -> TranslateAssets:
        """The same with the lengths of these pairs, without those of more than `limit` source tokens."""
        encoded = self.encoded(pairs)
        lengths = [len(source) + 1 for source, _ in encoded]
        written = [len(target) + 1 for _, target in encoded]
        ratios = [tokens / length for tokens, length in zip(written, lengths, strict=True)]
        return replace(
            self,
            longest_source=max(self.longest_source, *(n for n in lengths if limit is None or n <= limit + 1), 0),
            ratio=max(1.0, float(np.quantile(ratios, 0.999))),
            target_words=float(np.mean([len(pair.target.split()) for pair in pairs])),
            target_tokens=float(np.mean(written)),
        )

    def extended(self, pairs: Sequence[Pair], limit: int | None = None) -> TranslateAssets:
        """With tokens for everything new in these; known tokens keep their ids."""
        source = self.source.extended([pair.source for pair in pairs])
        target = source if self.joint else self.target.extended([pair.target for pair in pairs])
        return replace(self, source=source, target=target).measured(pairs, limit)
