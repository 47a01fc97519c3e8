"""Facts about pairs of texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.tasks.contract import Data, Description
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.config import TranslateConfig
from unrolled.training import Batches

FRACTION = (  # of models from before model.target_positions
    "model.positions=fraction is the encoder's alone: the decoder does not know how long its text will be, and takes "
    "sinusoidal."
)


class TranslateDescription(Description):
    def usage(self, model: Model) -> Usage:
        assets: TranslateAssets = model.assets
        sides = [f"{side.tokenizer.level} tokens ({len(side.tokenizer):,})" for side in (assets.source, assets.target)]
        return Usage(
            "It turns a sequence into another one, such as a sentence into its translation.",
            "translation",
            "in.txt",
            'model.predict("a sentence").text',
            (
                f"It reads {sides[0]} and writes {sides[1]}.",
                "It can leave out or invent parts, most often in inputs that are longer than those it was trained on.",
            ),
        )

    def warnings(self, config: TranslateConfig, batches: Batches) -> list[str]:
        return [f"Note: {FRACTION}"] if _takes_other_positions(config) else []

    def remarks(self, model: Model) -> list[str]:
        assert isinstance(model.config, TranslateConfig)
        return [FRACTION] if _takes_other_positions(model.config) else []

    def statistics(self, config: TranslateConfig, data: Data, assets: TranslateAssets) -> dict[str, Any]:
        known = {pair.source for pair in data.train}
        train, valid = assets.encoded(data.train), assets.encoded(data.valid)
        facts: dict[str, Any] = {"train pairs": len(train), "valid pairs": len(valid)}
        for place, (name, side) in enumerate((("source", assets.source), ("target", assets.target))):
            lengths = [len(pair[place]) for pair in train]
            facts[f"{name} tokens"] = f"{side.tokenizer.level}, {len(side.tokenizer):,} known"
            facts[f"{name} length, mean / longest"] = f"{np.mean(lengths):.1f} / {max(lengths)}"
            facts[f"valid {name} tokens unknown"] = sum(side.count_unknown(pair[place]) for pair in valid)
        facts["one set of tokens for both"] = "yes" if assets.joint else "no"
        facts["valid sources also in train"] = f"{sum(p.source in known for p in data.valid)} of {len(data.valid)}"
        return facts


def _takes_other_positions(config: TranslateConfig) -> bool:
    """True if the decoder's position codes are not those that were asked for."""
    model = config.model
    return model.kind == "transformer" and (model.positions, model.target_positions) == ("fraction", "auto")
