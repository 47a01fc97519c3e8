"""Pairs of token ids side by side, and the scores of their real tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import Batch
from unrolled.models.inputs import padded
from unrolled.tasks.translate_text import TranslateAssets


def source_batch(assets: TranslateAssets, sources: Sequence[NDArray[np.int32]]) -> Batch:
    """Sources side by side, each with its end token."""
    ids = [np.append(one, assets.source.end) for one in sources]
    return Batch(padded(ids), torch.zeros(len(ids)), lengths=torch.tensor([len(one) for one in ids]))


def pair_batch(
    assets: TranslateAssets, pairs: Sequence[tuple[NDArray[np.int32], NDArray[np.int32]]], smoothing: float = 0.0
) -> Batch:
    """Pairs side by side: sources with their end; targets with their end, and what is read before each token."""
    begin, end = assets.target.begin, assets.target.end
    batch = source_batch(assets, [source for source, _ in pairs])
    more = {
        "target_inputs": padded([np.insert(target, 0, begin) for _, target in pairs]),
        "target_lengths": torch.tensor([len(target) + 1 for _, target in pairs]),
    }
    if smoothing:
        more["smoothing"] = torch.tensor(smoothing)
    return replace(batch, targets=padded([np.append(target, end) for _, target in pairs]), more=more)


def real_scores(network: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Scores (N, V) and targets (N,) of the real target tokens, the true ones read."""
    steps = torch.arange(batch.targets.shape[1], device=batch.targets.device)
    real = steps < batch.more["target_lengths"][:, None]  # (B, T)
    return network.scores(network(batch).features[real]), batch.targets[real]
