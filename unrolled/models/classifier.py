"""Classifiers of sequences, with one label or several."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor, nn

from unrolled.config import but, only
from unrolled.data import Batch
from unrolled.models.encoder_layers import EncoderLayerSettings, LookedAt, encoder_layers, looked_at
from unrolled.models.inputs import FrameInput, TokenInput, WordInput
from unrolled.models.recurrent_settings import Change, unchanged
from unrolled.nn.linear import Linear
from unrolled.nn.pooling import Pooling

TEXT = only(inputs="text")
WORDS = only({"inputs": "text", "data.level": "word"})


class ClassifierSettings(EncoderLayerSettings):
    """The `model` section of `classify`."""

    hidden_size: int = Field(128, ge=1, description="Units per layer and direction; width of a Transformer.")
    dropout: float = Field(0.4, ge=0, lt=1, description="Dropout of the input, between layers and before the scores.")
    pool: str = Field("max", description="Pooling of the states: last, max, mean, attention; several with +.")
    ngrams: int = Field(
        32768,
        ge=0,
        json_schema_extra=TEXT,
        description="Hash buckets of word and letter n-grams, whose linear scores are added; 0: none.",
    )
    embedding_size: int = Field(
        100,
        ge=1,
        json_schema_extra=only({"inputs": "text", "data.vectors": None}),
        description="Embedding size of tokens; pretrained vectors have their own.",
    )
    letter_size: int = Field(
        32, ge=1, json_schema_extra=only(letter_hidden=but(0)), description="level=word: embedding size of letters."
    )
    letter_hidden: int = Field(
        32, ge=0, json_schema_extra=WORDS, description="level=word: units per direction that read the letters; 0: none."
    )
    word_dropout: float = Field(
        0.2,
        ge=0,
        lt=1,
        json_schema_extra=WORDS,
        description="level=word: probability that a word is masked in training.",
    )
    tune_vectors: bool = Field(
        True, json_schema_extra=only({"data.vectors": but(None)}), description="Train the pretrained vectors too."
    )
    front: list[int] = Field(
        [],
        json_schema_extra=only(inputs="frames"),
        description="Frames: sizes of dense layers before the recurrent ones.",
    )


class Classifier(nn.Module):
    """Input → recurrent layers or a Transformer → one vector → scores: y = W pool(h_1 … h_T) + b."""

    def __init__(self, settings: ClassifierSettings, inputs: TokenInput | WordInput | FrameInput, classes: int) -> None:
        super().__init__()
        self.input = inputs
        self.dropout = nn.Dropout(settings.dropout)
        self.layer = encoder_layers(settings, inputs.output_size)
        directions = 2 if settings.bidirectional and settings.kind == "recurrent" else 1
        self.pool = Pooling(settings.pool, settings.width, directions)
        self.scores = Linear(self.pool.output_size, classes)
        self.ngrams: nn.EmbeddingBag | None = None
        if settings.ngrams and not isinstance(inputs, FrameInput):
            self.ngrams = nn.EmbeddingBag(settings.ngrams, classes, mode="sum")
            nn.init.zeros_(self.ngrams.weight)
            self.ngram_dropout = nn.Dropout(settings.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """Scores before softmax or σ, (B, C)."""
        return self._score(self.encode(batch), batch)

    def _score(self, vector: Tensor, batch: Batch) -> Tensor:
        scores: Tensor = self.scores(self.dropout(vector))
        if self.ngrams is not None:
            ids, starts = batch.more["ngrams"], batch.more["ngram_starts"]
            scores = scores + self.ngrams(ids, starts, self.ngram_dropout(batch.more["ngram_weights"]))
        return scores

    def forward_from(self, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """`forward` from a state of the recurrent layers, and the state after the last step."""
        vector, state = self._read(batch, state, self.pool)
        return self._score(vector, batch), state

    def encode(self, batch: Batch, pool: Pooling | None = None) -> Tensor:
        """The pooled vector of the sequence, (B, D), by the network's own pooling or another."""
        return self._read(batch, None, pool or self.pool)[0]

    def _read(self, batch: Batch, state: Any, pool: Pooling) -> tuple[Tensor, Any]:
        x = self.dropout(self.input(batch))
        states, state = self.layer(x, state, lengths=batch.lengths, resets=batch.resets)
        return pool(states, batch.mask), state

    def trace(self, batch: Batch, change: Change = unchanged) -> tuple[Tensor, LookedAt]:
        """The scores, and a look at the layers; `change` is applied to the input vectors."""
        seen = looked_at(self.layer, change(self.input(batch)), batch.lengths)
        return self._score(self.pool(seen.output, batch.mask), batch), seen
