"""Facts and warnings about pictures with captions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.tasks.caption.assets import CaptionAssets
from unrolled.tasks.caption.config import CaptionConfig
from unrolled.tasks.contract import Data, Description
from unrolled.training import Batches


class CaptionDescription(Description):
    def usage(self, model: Model) -> Usage:
        return Usage(
            "It describes a picture in words.",
            "image-to-text",
            "photo.jpg",
            'model.predict("photo.jpg").text',
            ("Captions name what was common in the training pictures; other things are left out or misnamed.",),
        )

    def warnings(self, config: CaptionConfig, batches: Batches) -> list[str]:
        return [
            f"Scores in training are of greedy captions of up to {config.train.valid_free:,} validation pictures. "
            "`unrolled eval` has those beside the scores of a beam."
        ]

    def statistics(self, config: CaptionConfig, data: Data, assets: CaptionAssets) -> Mapping[str, Any]:
        side = assets.target
        texts = [text for example in data.valid for text in example.captions]
        known = {text for example in data.train for text in example.captions}
        return {
            "train pictures": len(data.train),
            "valid pictures": len(data.valid),
            "a picture": str(assets.shape),
            "captions of a picture": f"{assets.references:.1f}",
            "tokens": f"{side.tokenizer.level}, {len(side.tokenizer):,} known",
            "caption length, longest usual": assets.longest,
            "valid tokens unknown": sum(
                side.count_unknown(ids) for several in assets.encoded(data.valid) for ids in several
            ),
            "valid captions also in train": f"{sum(text in known for text in texts)} of {len(texts)}",
        }
