"""Taggers: a tag for every word of a sentence, or for every frame of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unrolled.config import but, only
from unrolled.data import Batch
from unrolled.models.encoder_layers import EncoderLayerSettings, LookedAt, encoder_layers, looked_at, step_of
from unrolled.models.inputs import FrameInput, TokenInput, WordInput
from unrolled.models.recurrent_settings import Change, unchanged
from unrolled.nn.crf import CRF
from unrolled.nn.crf_partition import log_partition_of_logs
from unrolled.nn.dropin import DropIn
from unrolled.nn.embedding import Embedding
from unrolled.nn.linear import Linear

Forbidden = tuple[Tensor, Tensor, Tensor]
"""Masks of transitions (K, K), first tags (K,) and last tags (K,) that are forbidden."""


TEXT = only(inputs="text")
SPANS = only(output="crf", tags=but("no spans"))


class TaggerSettings(EncoderLayerSettings):
    """The `model` section of `tag`."""

    hidden_size: int = Field(200, ge=1, description="Units per layer and direction; width of a Transformer.")
    dropout: float = Field(0.4, ge=0, lt=1, description="Dropout of the input, between layers and before the scores.")
    bidirectional: bool = Field(
        True, description="Read in both directions; false: a tag depends on the past alone, and the model streams."
    )
    embedding_size: int = Field(
        100,
        ge=1,
        json_schema_extra=only({"inputs": "text", "data.vectors": None}),
        description="Embedding size of words; pretrained vectors have their own.",
    )
    letter_size: int = Field(
        30, ge=1, json_schema_extra=only(letter_hidden=but(0)), description="Embedding size of letters."
    )
    letter_hidden: int = Field(
        50, ge=0, json_schema_extra=TEXT, description="Units per direction that read a word's letters; 0: none."
    )
    feature_size: int = Field(
        20,
        ge=1,
        json_schema_extra=only({"data.feature_columns": but([], "")}),
        description="Embedding size of each of data.feature_columns.",
    )
    word_dropout: float = Field(
        0.1,
        ge=0,
        lt=1,
        json_schema_extra=TEXT,
        description="Probability in training that a word is masked, except for its letters.",
    )
    tune_vectors: bool = Field(
        True, json_schema_extra=only({"data.vectors": but(None)}), description="Train the pretrained vectors too."
    )
    front: list[int] = Field(
        [],
        json_schema_extra=only(inputs="frames"),
        description="Frames: sizes of dense layers before the recurrent ones.",
    )
    output: Literal["auto", "softmax", "crf"] = Field(
        "auto",
        description="softmax scores each tag alone, crf the whole sequence; auto: crf if tags are spans (B-…, I-…).",
    )
    bioes: bool = Field(
        True,
        json_schema_extra=only(output="crf", tags=("spans in IOB1", "spans in IOB2")),
        description="crf with spans: convert to BIOES, so that ends are learnt too.",
    )
    legal: bool = Field(
        True, json_schema_extra=SPANS, description="crf with spans: forbid invalid sequences such as O I-NP."
    )


class Tagger(nn.Module):
    """Words with their letters and features, or frames → encoder layers → a score for each tag at each step."""

    def __init__(
        self,
        settings: TaggerSettings,
        inputs: WordInput | TokenInput | FrameInput,
        *,
        features: Sequence[int],
        tags: int,
        crf: bool,
        forbidden: Forbidden | None = None,
    ) -> None:
        super().__init__()
        self.input = inputs
        self.features = nn.ModuleList(Embedding(size, settings.feature_size) for size in features)
        self.dropout = nn.Dropout(settings.dropout)
        width = self.input.output_size + settings.feature_size * len(features)
        self.layer = encoder_layers(settings, width)
        self.scores = Linear(settings.width, tags)
        self.causal = not settings.bidirectional
        self.crf = CRF(tags) if crf else None
        self.forbidden = forbidden

    def states(self, batch: Batch) -> Tensor:
        """Outputs of the layers at each step, (B, T, H), or 2·H from both directions."""
        output, _ = self.layer(self.dropout(self.read(batch)), lengths=batch.lengths)
        states: Tensor = self.dropout(output)
        return states

    def read(self, batch: Batch) -> Tensor:
        """The input vector of each step, (B, T, D)."""
        parts = [self.input(batch)]
        parts += [table(batch.more["features"][..., i]) for i, table in enumerate(self.features)]
        return torch.cat(parts, dim=-1)

    def trace(self, batch: Batch, change: Change = unchanged) -> tuple[Tensor, LookedAt]:
        """The scores, and a look at the layers; `change` is applied to the input vectors."""
        seen = looked_at(self.layer, change(self.read(batch)), batch.lengths)
        return self.scores(seen.output), seen

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The probability of each tag at each step, (B, T, K): the CRF's marginals, or the softmax."""
        if self.crf is None:
            return scores.softmax(-1)
        total = log_partition_of_logs(scores, self.crf.transitions, self.crf.start, self.crf.end, lengths).sum()
        (chances,) = torch.autograd.grad(total, scores, create_graph=True)
        return chances

    def forward(self, batch: Batch) -> Tensor:
        """Scores of the tags, (B, T, K)."""
        scores: Tensor = self.scores(self.states(batch))
        return scores

    @property
    def batches_steps(self) -> bool:
        """True if the steps of several streams can be computed together: their states have one shape."""
        return isinstance(self.layer, DropIn)

    def stepper(self) -> Callable[[Batch, Any], tuple[Tensor, Any]]:
        """A function that reads a batch of one step after a state: the scores (B, K), and the state after it."""
        step = step_of(self.layer)

        def advance(batch: Batch, state: Any) -> tuple[Tensor, Any]:
            output, state = step(self.read(batch)[:, 0], state)
            return self.scores(output), state

        return advance

    @torch.no_grad()
    def decode(self, batch: Batch, scores: Tensor | None = None) -> list[list[int]]:
        """The tags of each sequence: the most likely per step, or the most likely sequence."""
        assert batch.lengths is not None
        scores = self(batch) if scores is None else scores
        if self.crf is not None:
            return self.crf.decode(scores, batch.lengths, self._forbidden(scores.device))
        best = scores.argmax(-1).tolist()
        return [row[:length] for row, length in zip(best, batch.lengths.tolist(), strict=True)]

    @torch.no_grad()
    def probabilities(self, batch: Batch, scores: Tensor) -> Tensor:
        """The probability of each tag at each step, (B, T, K), over the sequences that `decode` allows."""
        assert batch.lengths is not None
        if self.crf is None:
            return scores.float().softmax(-1)
        return self.crf.marginals(scores.float(), batch.lengths, self._forbidden(scores.device))

    def _forbidden(self, device: torch.device) -> Forbidden | None:
        if self.forbidden is None:
            return None
        transitions, first, last = (mask.to(device) for mask in self.forbidden)
        return transitions, first, last
