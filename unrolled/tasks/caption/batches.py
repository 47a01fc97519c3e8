"""What captions are made from: the tokens and the shape of pictures that a model knows; batches; and their loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.config.stored import Amount, Count, stored_entry
from unrolled.data import Batch
from unrolled.data.readers.media.captions import Captioned
from unrolled.data.signals.views import Shape, View
from unrolled.models.decoders import DecoderOutput
from unrolled.tasks.shared.side import Side
from unrolled.tasks.shared.writing import Ids, real_tokens, token_loss
from unrolled.training import Loss


@dataclass(frozen=True)
class CaptionAssets:
    """The tokens of captions, the shape of pictures, and how long captions were in training."""

    target: Side
    shape: Shape
    longest: int  # tokens, ends counted, which few captions pass
    words: float  # between blanks, in a caption of training, the mean
    references: float  # captions of a picture, the mean

    @property
    def most_tokens(self) -> int:
        """How long a caption may become, its end counted: half as long again as nearly all in training, and 5."""
        return int(1.5 * self.longest) + 5

    def to_json(self) -> dict[str, Any]:
        shape = {"kind": self.shape.kind, "sizes": list(self.shape.sizes), "vector": self.shape.vector}
        numbers = {"longest": self.longest, "words": self.words, "references": self.references}
        return {"target": self.target.to_json(), "shape": shape, **numbers}

    @classmethod
    def from_json(cls, stored: Any) -> CaptionAssets:
        shape = stored_entry(stored, "shape", Shape, "shape of pictures")
        kinds = {"longest": Count, "words": Amount, "references": Amount}
        numbers = [stored_entry(stored, name, kind, "lengths") for name, kind in kinds.items()]
        return cls(Side.from_json(stored_entry(stored, "target", dict[str, Any], "vocabulary")), shape, *numbers)

    def measured(self, examples: Sequence[Captioned]) -> CaptionAssets:
        """The same with the lengths of these captions."""
        texts = [text for example in examples for text in example.captions]
        lengths = [len(self.target.ids(text)) + 1 for text in texts]
        return replace(
            self,
            longest=max(self.longest, int(np.quantile(lengths, 0.999))),
            words=float(np.mean([len(text.split()) for text in texts])),
            references=len(texts) / len(examples),
        )


@dataclass(frozen=True)
class Told:
    """A picture and the tokens of one of its captions."""

    example: Captioned
    ids: Ids


def view_batch(views: Sequence[View]) -> Batch:
    """Pictures of one shape side by side: pixels (B, H, W, 3) of 8 bits or regions (B, …, D), and vectors (B, V)."""
    values = [view.values for view in views if view.values is not None]
    vectors = [view.vector for view in views if view.vector is not None]
    inputs = _stacked(values) if values else torch.zeros(len(views), 1)
    more = {"vectors": _stacked(vectors)} if vectors else {}
    return Batch(inputs, torch.zeros(len(views)), more=more)


def _stacked(arrays: Sequence[NDArray[Any]]) -> Tensor:
    table = np.stack(arrays)
    return torch.from_numpy(table if table.dtype == np.uint8 else table.astype(np.float32))


@dataclass(frozen=True)
class Penalties:
    """What is added to the loss of the tokens while training: the weight of each."""

    doubly_stochastic: Tensor
    reinforce: Tensor
    entropy: Tensor


def caption_loss(network: Any, batch: Batch) -> Loss:
    """Cross-entropy of the tokens, the true ones read; in training also what attention adds to it.

    A training batch has the weights of `Penalties` in `more`.
    """
    penalties = Penalties(*batch.more["penalties"]) if "penalties" in batch.more else None
    real = real_tokens(batch)
    decoded: DecoderOutput = network(batch)
    loss = token_loss(network, decoded.features, batch)
    if penalties is None or decoded.attention is None:
        return loss
    if decoded.chosen is None:
        return replace(loss, sum=loss.sum + penalties.doubly_stochastic * unseen(decoded.attention, real))
    with torch.no_grad():
        log_probs = network.scores(decoded.features[real]).float().log_softmax(-1)  # (N, V)
        log_probs = log_probs.gather(1, batch.targets[real][:, None]).squeeze(1)
    rewards = log_probs.new_zeros(len(real)).index_add(0, real.nonzero()[:, 0], log_probs)
    rewards = rewards / batch.more["target_lengths"]  # the mean log P of a caption's tokens
    looked, entropy = looking(decoded.attention.float(), decoded.chosen, real)
    total = loss.sum - penalties.reinforce * ((rewards - network.baseline) * looked).sum()
    network.follow(rewards)
    return replace(loss, sum=total - penalties.entropy * entropy)


def unseen(attention: Tensor, real: Tensor) -> Tensor:
    """Σ_j (1 − Σ_t α_tj)², the doubly stochastic term of Xu et al. 2015, over all captions; attention (B, T, S)."""
    paid = torch.where(real[..., None], attention.float(), 0.0).sum(1)  # (B, S)
    return (1 - paid).square().sum()


def looking(attention: Tensor, chosen: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_t log α_t of the regions that were drawn, (B,), and the entropy Σ_t H(α_t) over all captions.

    Gradient of E[R] by REINFORCE (Williams 1992): (R − b) ∇ Σ_t log α_t(drawn), b the baseline.
    """
    logs = attention.clamp(min=torch.finfo(attention.dtype).tiny).log()  # (B, T, S)
    drawn = real & (chosen >= 0)
    at = logs.gather(-1, chosen.clamp(min=0)[..., None]).squeeze(-1)  # (B, T)
    entropy = -(attention * logs).sum(-1)
    return torch.where(drawn, at, 0.0).sum(1), torch.where(real, entropy, 0.0).sum()
