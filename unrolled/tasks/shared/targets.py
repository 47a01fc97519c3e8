"""Target texts in a batch, and their loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.kernels.vocabulary.scores import linear_cross_entropy
from unrolled.tasks.contract import Training
from unrolled.training import Loss, consistency, with_own_guesses
from unrolled.training.forcing import as_it_writes, fed_back, own_places
from unrolled.training.loss import IGNORED


def real_tokens(batch: Batch) -> Tensor:
    """(B, T), True where a target's token is real."""
    steps = torch.arange(batch.targets.shape[1], device=batch.targets.device)
    real: Tensor = steps < batch.more["target_lengths"][:, None]
    return real


def token_loss(network: Any, features: Tensor, batch: Batch, training: Training | None = None) -> Loss:
    """Cross-entropy of the real tokens, in training smoothed; features (B, T, F) are the input of `scores`."""
    real, scores = real_tokens(batch), network.scores
    smoothing = 0.0 if training is None else training.settings.label_smoothing
    if features.is_cuda and (training is None or not training.settings.consistency):
        # choosing tokens would wait for the GPU: all are computed, and padding is ignored
        targets = batch.targets.masked_fill(~real, IGNORED).flatten()
        total = linear_cross_entropy(features.flatten(0, 1), scores.weight, scores.bias, targets, smoothing)
        return Loss(total, real.sum())
    targets = batch.targets[real]
    read = features[real]
    loss = Loss(linear_cross_entropy(read, scores.weight, scores.bias, targets, smoothing), torch.tensor(len(targets)))
    if training is None or not training.settings.consistency:
        return loss
    return consistency.agreeing(loss, training.settings.consistency, scores(read).log_softmax(-1))


def with_guesses(network: Any, batch: Batch, training: Training) -> Batch:
    """Replace some true tokens by the model's own outputs, as `train.teacher_forcing` and `train.feedback` say."""
    share, settings = training.own_share, training.settings
    if share == 0:
        return batch
    inputs = batch.more["target_inputs"]
    if settings.feedback == "parallel":
        with torch.no_grad():
            scores = network.scores(network(batch).features)
        inputs = with_own_guesses(inputs, scores, share, settings.pick)
    else:
        with as_it_writes(network):
            state = network.start(network.encode(batch))

            def run(tokens: Tensor, state: Any, t: int) -> tuple[Tensor, Any]:
                step = network.step(tokens, state)
                return step.scores, step.state

            inputs = fed_back(run, state, inputs, own_places(real_tokens(batch), share), settings.pick)
        if settings.consistency:  # both passes over an example read the same
            inputs = inputs[: len(inputs) // 2].repeat(2, 1)
    return replace(batch, more={**batch.more, "target_inputs": inputs})
