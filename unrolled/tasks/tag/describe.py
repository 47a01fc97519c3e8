"""Facts about tagged sentences."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from unrolled.tasks.contract import Data, Description
from unrolled.tasks.tag.assets import TagAssets
from unrolled.tasks.tag.config import TagConfig


class TagDescription(Description):
    def statistics(self, config: TagConfig, data: Data, assets: TagAssets) -> dict[str, Any]:
        seen, counts = {s.words for s in data.train}, Counter(tag for s in data.train for tag in s.tags)
        lengths = [len(s) for s in data.train]
        shown = ", ".join(f"{tag} {count}" for tag, count in counts.most_common(8)) + (", …" if len(counts) > 8 else "")
        return {
            "train sentences": f"{len(data.train)}, {sum(lengths)} words",
            "valid sentences": f"{len(data.valid)}, {sum(len(s) for s in data.valid)} words",
            "tags": f"{len(counts)}: {shown}",
            "spans": assets.scheme or "none",
            "reads": f"words, {len(assets.words.vocabulary):,} known, {len(assets.words.letters)} letters",
            "sentence length, mean / longest": f"{np.mean(lengths):.1f} / {max(lengths)} words",
            "valid words unknown": int(sum((~assets.trained(s.words)).sum() for s in data.valid)),
            "valid tags never in train": sum(tag not in counts for s in data.valid for tag in s.tags),
            "valid sentences also in train": f"{sum(s.words in seen for s in data.valid)} of {len(data.valid)}",
        }
