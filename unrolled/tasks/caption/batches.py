"""The tokens of captions and the shape of pictures, batches of them, and their loss."""

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
from unrolled.data.readers.media.captions import Captioned, fitted_view
from unrolled.data.signals.views import Shape, View
from unrolled.models.decoders import DecoderOutput
from unrolled.tasks.contract import Corpus, Training
from unrolled.tasks.shared.side import Side
from unrolled.tasks.shared.targets import Ids, real_tokens, token_loss
from unrolled.training import Loss


@dataclass(frozen=True)
class CaptionAssets:
    """The tokens of captions, the shape of pictures, and the lengths of captions in training."""

    target: Side
    shape: Shape
    longest: int  # tokens, ends counted, which few captions pass
    words: float  # between blanks, in a caption of training, the mean
    references: float  # captions of a picture, the mean

    @property
    def most_tokens(self) -> int:
        """The maximum length of a caption, its end included: 1.5 times that of nearly all in training, plus 5."""
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

    def encoded(self, examples: Sequence[Captioned]) -> list[list[Ids]]:
        """The tokens of the captions of each example; those of a corpus are computed once."""

        def compute() -> list[list[Ids]]:
            return [[self.target.ids(text) for text in example.captions] for example in examples]

        return examples.once("captions", self.target, compute) if isinstance(examples, Corpus) else compute()

    def measured(self, examples: Sequence[Captioned]) -> CaptionAssets:
        """The same with the lengths of these captions."""
        texts = [text for example in examples for text in example.captions]
        lengths = [len(ids) + 1 for several in self.encoded(examples) for ids in several]
        return replace(
            self,
            longest=max(self.longest, int(np.quantile(lengths, 0.999))),
            words=float(np.mean([len(text.split()) for text in texts])),
            references=len(texts) / len(examples),
        )


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
    """A batch of pictures of one shape: pixels (B, H, W, 3) of 8 bits or regions (B, …, D), and vectors (B, V)."""
    values = [view.values for view in views if view.values is not None]
    vectors = [view.vector for view in views if view.vector is not None]
    inputs = _stacked(values) if values else torch.zeros(len(views), 1)
    more = {"vectors": _stacked(vectors)} if vectors else {}
    return Batch(inputs, torch.zeros(len(views)), more=more)


def _stacked(arrays: Sequence[NDArray[Any]]) -> Tensor:
    """Arrays of one shape in one, of 8 bits or 32."""
    kind = np.uint8 if arrays[0].dtype == np.uint8 else np.float32
    table = np.empty((len(arrays), *arrays[0].shape), dtype=kind)
    for row, one in enumerate(arrays):
        table[row] = one
    return torch.from_numpy(table)


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
