"""Target texts in a batch, and their loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import Batch
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.kernels.vocabulary.scores import linear_cross_entropy
from unrolled.tasks.contract import Training
from unrolled.tasks.shared.side import Side
from unrolled.training import Loss, consistency, with_own_guesses
from unrolled.training.forcing import as_it_writes, fed_back, own_places
from unrolled.training.loss import IGNORED

Ids = NDArray[np.int32]


def ended(sequences: Ragged, rows: Rows, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Some sequences with an end token each, (B, T), and their lengths with it, (B,)."""
    table, lengths = sequences.padded(rows, extra=1), sequences.lengths[rows]
    table[np.arange(len(rows)), lengths] = end
    return table, lengths + 1


def with_targets(batch: Batch, target: Side, tokens: Ragged, rows: Rows | None = None) -> Batch:
    """The batch with a target for each row, its end token included, and the inputs of the decoder.

    `tokens` are those of all targets without ends, `rows` the numbers of the batch's; None: all.
    """
    outputs, lengths = ended(tokens, tokens.rows if rows is None else rows, target.end)
    inputs = np.empty_like(outputs)
    inputs[:, 0], inputs[:, 1:] = target.begin, outputs[:, :-1]
    inputs[:, 1:] *= np.arange(1, inputs.shape[1]) < lengths[:, None]  # no step reads an end
    more = {
        **batch.more,
        "target_inputs": torch.from_numpy(inputs),
        "target_lengths": torch.from_numpy(lengths),
    }
    return replace(batch, targets=torch.from_numpy(outputs), more=more)


def real_tokens(batch: Batch) -> Tensor:
    """(B, T), True where a target's token is real."""
    steps = torch.arange(batch.targets.shape[1], device=batch.targets.device)
    return steps < batch.more["target_lengths"][:, None]


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
