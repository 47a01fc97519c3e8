"""Facts and warnings about the examples of a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from unrolled.data import RowBuckets
from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.models.classifier import Classifier
from unrolled.models.encoder_layers import TransformerLayers
from unrolled.tasks.classify.assets import ClassifyAssets
from unrolled.tasks.classify.config import ClassifyConfig
from unrolled.tasks.classify.examples import key_of
from unrolled.tasks.classify.regression import numbers_of
from unrolled.tasks.contract import Data, Description
from unrolled.training import Batches


class ClassifyDescription(Description):
    def usage(self, model: Model) -> Usage:
        assets: ClassifyAssets = model.assets
        assert isinstance(model.config, ClassifyConfig)
        answer = "a number" if assets.scale is not None else f"one of {len(assets.labels)} labels"
        if assets.scale is None and model.config.data.multi_label:
            answer = f"some of {len(assets.labels)} labels"
        limits = () if assets.scale is not None else ("It always answers with labels that it was trained on.",)
        if assets.reader.frames:
            return Usage(
                f"It gives a sequence of frames of shape {assets.reader.frames} {answer}.",
                None,
                "frames.npz",
                "model.predict(frames)  # an array (steps, …)",
                limits,
            )
        return Usage(
            f"It gives a text {answer}.",
            "text-classification",
            "lines.txt",
            'model.predict("a text")',
            (*limits, f"It reads {assets.reader}."),
        )

    def remarks(self, model: Model) -> list[str]:
        return [*adds_nothing(model.network), *_wide_is_silent(model.network)]

    def warnings(self, config: ClassifyConfig, batches: Batches) -> list[str]:
        assert isinstance(batches, RowBuckets)
        empty = int((batches.lengths == 0).sum())
        return [f"Note: {empty} training examples are empty."] if empty else []

    def statistics(self, config: ClassifyConfig, data: Data, assets: ClassifyAssets) -> dict[str, Any]:
        known = {key_of(example.input) for example in data.train}
        lengths = [len(one.steps) for one in assets.encoded(data.train)]
        shared = sum(key_of(example.input) in known for example in data.valid)
        return {
            "train examples": len(data.train),
            "valid examples": len(data.valid),
            **_about_answers(assets, data),
            "reads": str(assets.reader),
            **({} if assets.wide is None else {"wide path": f"{assets.wide.rows:,} n-grams"}),
            "length, mean / longest": f"{np.mean(lengths):.1f} / {max(lengths)}",
            "valid tokens unknown": sum(assets.reader.unknowns(one.steps) for one in assets.encoded(data.valid)),
            "valid inputs also in train": f"{shared} of {len(data.valid)}",
        }


def adds_nothing(network: Any) -> list[str]:
    """A remark if the layers do not change the scores, as before the first update; else none."""
    if not isinstance(network, Classifier) or network.wide is None or bool(network.scores.weight.any()):
        return []
    part = "Transformer" if isinstance(network.layer, TransformerLayers) else "recurrent part"
    return [
        f"The {part} adds nothing: on the validation part no update was better than the wide path that training starts "
        "from. The model is that linear model; model.kind=linear fits it alone, in seconds."
    ]


def _wide_is_silent(network: Any) -> list[str]:
    wide = getattr(network, "wide", None)
    if wide is None or not wide.is_silent:
        return []
    return ["The wide path adds nothing: on the validation part no n-gram helped."]


def _about_answers(assets: ClassifyAssets, data: Data) -> dict[str, Any]:
    """Facts about the labels, or the numbers, of the examples."""
    if assets.scale is not None:
        numbers = numbers_of(data.train)
        return {
            "numbers, mean / deviation": f"{numbers.mean():.4g} / {numbers.std():.4g}",
            "numbers, least / largest": f"{numbers.min():.4g} / {numbers.max():.4g}",
        }
    order = sorted(zip(assets.labels, assets.counts, strict=True), key=lambda pair: -pair[1])
    shown = ", ".join(f"{label} {count}" for label, count in order[:8]) + (", …" if len(order) > 8 else "")
    unseen = sum(not set(e.labels) <= set(assets.labels) for e in data.valid)
    return {"labels": f"{len(assets.labels)}: {shown}", "valid labels never in train": unseen}
