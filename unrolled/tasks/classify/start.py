"""The start of a classifier: its wide path, fitted to the training examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.models.classifier import ClassifierSettings
from unrolled.models.linear_fit import Link
from unrolled.models.wide import WidePath
from unrolled.tasks.classify.assets import ClassifyAssets
from unrolled.tasks.classify.batches import wide_counts
from unrolled.tasks.classify.config import ClassifyConfig
from unrolled.tasks.classify.wide import Answers, WideShape, WideTexts, fit_wide
from unrolled.tasks.contract import Data
from unrolled.tasks.corpus import Corpus
from unrolled.tasks.shared.levels import classifier_level
from unrolled.text.ngrams import LETTERS, NgramKinds

LETTERS_OF_NAMES = (1, 4)  # lengths of character n-grams in texts of one or two words
TEXTS, SCORES = "wide texts", "wide scores"  # names of what is computed once from training examples


def wide_shape(
    settings: ClassifierSettings, train: Corpus, outputs: int, init: ClassifyAssets | None
) -> WideShape | None:
    """The shape of the wide path, if the model has one; that of a model to start from stays as it is."""
    is_text = isinstance(train[0].input, str)
    if settings.kind == "linear":
        if not is_text:
            raise UserError("model.kind=linear reads texts, and the data has frames.", "Use model.kind=recurrent.")
        if settings.wide == "off":
            raise UserError("model.kind=linear is the wide path alone, and model.wide=off.", "Leave one of them out.")
        if init is not None:
            raise UserError(
                "A wide path alone (model.kind=linear) does not start from another model.",
                "Leave --init out: it is fitted in seconds. Or start from a model with layers.",
            )
    if init is not None:
        return init.wide
    wanted = settings.wide == "on" or settings.kind == "linear" or (settings.wide == "auto" and not settings.ngrams)
    if not is_text or not wanted:
        return None
    found = wide_texts(train, settings, outputs)
    return WideShape(found.counts.kinds, len(found.seen))


def wide_texts(train: Corpus, settings: ClassifierSettings, outputs: int) -> WideTexts:
    """The n-grams of training examples; computed once, until they are forgotten."""

    def compute() -> WideTexts:
        apart = classifier_level([example.input for example in train]) == "word"
        usual = LETTERS if apart else LETTERS_OF_NAMES
        letters = usual if settings.wide_letters is None else tuple(settings.wide_letters)
        kinds = NgramKinds(settings.wide_words, letters, settings.wide_buckets, apart)
        return WideTexts.of(wide_counts(train, kinds), settings.wide_min_count or (1 if apart else 2), outputs)

    return train.once(TEXTS, None, compute)


def fit_to(path: WidePath, config: ClassifyConfig, assets: ClassifyAssets, data: Data, *, alone: bool) -> None:
    """Fit the wide path to the training examples.

    A network beside it learns from scores of fits that did not see the example: those of the path itself look better on
    training examples than on others.
    """
    texts = wide_texts(data.train, config.model, path.bias.numel())
    data.train.forget(TEXTS)
    multi = config.data.multi_label
    train, valid = (_targets(assets, examples, multi) for examples in (data.train, data.valid))
    weights = None
    if config.train.class_weights != "none":
        weights = torch.from_numpy(assets.weights(train, config.train.class_weights))
        weights = weights[:, None] if weights.dim() == 1 else weights
    link: Link = "squared" if assets.scale is not None else "sigmoid" if multi else "softmax"
    answers = Answers(torch.from_numpy(train), torch.from_numpy(valid), link, weights)
    judges = wide_counts(data.valid, texts.counts.kinds)
    scores = fit_wide(path, texts, judges, answers, config.model.wide_penalty, unseen=not alone)
    if scores is not None:
        data.train.once(SCORES, None, lambda: scores)


def _targets(assets: ClassifyAssets, examples: Sequence[Any], multi: bool) -> NDArray[Any]:
    """Classes (N,), or a column for each label or for the number."""
    found = assets.targets(examples, multi)
    return found[:, None] if assets.scale is not None else found


def wide_scores(examples: Any) -> NDArray[np.float32] | None:
    """The scores of training examples by fits that did not see them, if there are any."""
    kept: NDArray[np.float32] | None = examples.kept(SCORES) if isinstance(examples, Corpus) else None
    return kept
