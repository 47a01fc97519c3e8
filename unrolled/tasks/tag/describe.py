"""Facts about tagged sentences and frames."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.tasks.contract import Data, Description
from unrolled.tasks.tag.assets import TagAssets
from unrolled.tasks.tag.config import TagConfig


class TagDescription(Description):
    def usage(self, model: Model) -> Usage:
        assets: TagAssets = model.assets
        limits = ("It always answers with tags that it was trained on.",)
        if assets.words is None:
            return Usage(
                f"It gives each frame of shape {assets.frames} of a sequence a tag.",
                None,
                "frames.npz",
                "model.predict(frames)  # an array (steps, …)",
                limits,
            )
        return Usage(
            "It gives each word of a text a tag.",
            "token-classification",
            "sentences.txt",
            'model.predict("a sentence")',
            (*limits, f"It reads {_reads(assets)}."),
        )

    def statistics(self, config: TagConfig, data: Data, assets: TagAssets) -> dict[str, Any]:
        counts = Counter(tag for one in data.train for tag in one.tags)
        lengths, seen = [len(one) for one in data.train], {one.key for one in data.train}
        shown = ", ".join(f"{tag} {count}" for tag, count in counts.most_common(8)) + (", …" if len(counts) > 8 else "")
        what, unit = ("sequences", "frames") if assets.frames else ("sentences", "words")
        return {
            f"train {what}": f"{len(data.train)}, {sum(lengths)} {unit}",
            f"valid {what}": f"{len(data.valid)}, {sum(len(one) for one in data.valid)} {unit}",
            "tags": f"{len(counts)}: {shown}",
            "spans": assets.scheme or "none",
            "reads": _reads(assets),
            f"{what[:-1]} length, mean / longest": f"{np.mean(lengths):.1f} / {max(lengths)} {unit}",
            **_unknown_words(data, assets),
            "valid tags never in train": sum(tag not in counts for one in data.valid for tag in one.tags),
            f"valid {what} also in train": f"{sum(one.key in seen for one in data.valid)} of {len(data.valid)}",
        }


def _reads(assets: TagAssets) -> str:
    if assets.words is None:
        return (
            f"frames of {', '.join(assets.frame_columns)}"
            if assets.frame_columns
            else f"frames of shape {assets.frames}"
        )
    return f"words, {len(assets.words.vocabulary):,} known, {len(assets.words.letters)} letters"


def _unknown_words(data: Data, assets: TagAssets) -> dict[str, int]:
    if assets.words is None:
        return {}
    return {"valid words unknown": int(sum((~assets.trained(one.words)).sum() for one in data.valid))}
