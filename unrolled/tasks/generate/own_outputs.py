"""Windows of a text in which a language model reads its own outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.tasks.contract import Training
from unrolled.tasks.generate.config import GenerateConfig
from unrolled.training import with_own_guesses
from unrolled.training.forcing import as_it_writes, fed_back, own_places


def with_own_outputs(network: nn.Module, batch: Batch, state: Any, training: Training) -> Batch:
    """Replace some true inputs by the model's own outputs, as `train.teacher_forcing` and `train.feedback` say.

    The first token of a window is always true.
    """
    share, settings = training.own_share, training.settings
    if share == 0:
        return batch
    if settings.feedback == "parallel":
        with torch.no_grad():
            scores, _ = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
        return replace(batch, inputs=with_own_guesses(batch.inputs, scores, share, settings.pick))

    def run(tokens: Tensor, state: Any, t: int) -> tuple[Tensor, Any]:
        scores, state = network(tokens[:, None], state, resets=_resets_at(batch, t))
        return scores[:, 0], state

    own = own_places(batch.mask, share, batch.resets)
    with as_it_writes(network):
        return replace(batch, inputs=fed_back(run, state, batch.inputs, own, settings.pick))


def check_own_outputs(config: GenerateConfig) -> None:
    """Raise if the model cannot read its own outputs step by step."""
    model = config.model
    if config.train.feedback == "steps" and model.kind == "transformer" and model.positions == "fraction":
        raise UserError(
            "train.feedback=steps goes step by step, and model.positions=fraction needs a window's length before its "
            "first step.",
            "Use model.positions=sinusoidal, or train.feedback=parallel.",
        )


def _resets_at(batch: Batch, t: int) -> Tensor | None:
    """The rows (B,) in which a new text begins at step t."""
    if batch.resets is None or batch.resets.dim() == 2:
        return None if batch.resets is None else batch.resets[:, t]
    return batch.resets if t == 0 else None
