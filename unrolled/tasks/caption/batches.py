"""The tokens of captions and the shape of pictures, batches of them, and their loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.data.readers.media.captions import Captioned, fitted_view
from unrolled.data.signals.views import Shape, View
from unrolled.models.decoders import DecoderOutput
from unrolled.tasks.caption.assets import view_arrays
from unrolled.tasks.contract import Training
from unrolled.tasks.shared.side import Ids
from unrolled.tasks.shared.targets import real_tokens, token_loss
from unrolled.training import Loss


@dataclass(frozen=True)
class PictureCaption:
    """A picture and the tokens of one of its captions."""

    example: Captioned
    ids: Ids
    is_first: bool  # of the captions of this picture


def fitted(examples: Sequence[Captioned], shape: Shape) -> list[Captioned]:
    """The examples with pictures of the shape that a model reads."""
    return [replace(one, view=fitted_view(one.view, shape, one.place or one.name)) for one in examples]


def view_batch(views: Sequence[View]) -> Batch:
    """A batch of pictures of one shape as tensors: see `view_arrays`."""
    return view_arrays(views).to("cpu")


def caption_loss(network: Any, batch: Batch, training: Training | None = None) -> Loss:
    """Cross-entropy of the tokens with teacher forcing; in training with the penalties of attention."""
    real = real_tokens(batch)
    decoded: DecoderOutput = network(batch)
    loss = token_loss(network, decoded.features, batch, training)
    if training is None or decoded.attention is None:
        return loss
    settings = training.settings
    if decoded.chosen is None:
        return replace(loss, sum=loss.sum + settings.doubly_stochastic * unseen(decoded.attention, real))
    with torch.no_grad():
        log_probs = network.scores(decoded.features[real]).float().log_softmax(-1)  # (N, V)
        log_probs = log_probs.gather(1, batch.targets[real][:, None]).squeeze(1)
    rewards = log_probs.new_zeros(len(real)).index_add(0, real.nonzero()[:, 0], log_probs)
    rewards = rewards / batch.more["target_lengths"]  # the mean log P of a caption's tokens
    looked, entropy = looking(decoded.attention.float(), decoded.chosen, real)
    total = loss.sum - settings.reinforce * ((rewards - network.baseline) * looked).sum()
    network.follow(rewards)
    return replace(loss, sum=total - settings.entropy * entropy)


def unseen(attention: Tensor, real: Tensor) -> Tensor:
    """Σ_j (1 − Σ_t α_tj)², the doubly stochastic term of Xu et al. 2015, over all captions; attention (B, T, S)."""
    paid = torch.where(real[..., None], attention.float(), 0.0).sum(1)  # (B, S)
    return (1 - paid).square().sum()


def looking(attention: Tensor, chosen: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_t log α_t of the sampled regions, (B,), and the entropy Σ_t H(α_t) over all captions.

    Gradient of E[R] by REINFORCE (Williams 1992): (R − b) ∇ Σ_t log α_t(sampled), b the baseline.
    """
    logs = attention.clamp(min=torch.finfo(attention.dtype).tiny).log()  # (B, T, S)
    sampled = real & (chosen >= 0)
    at = logs.gather(-1, chosen.clamp(min=0)[..., None]).squeeze(-1)  # (B, T)
    entropy = -(attention * logs).sum(-1)
    return torch.where(sampled, at, 0.0).sum(1), torch.where(real, entropy, 0.0).sum()
