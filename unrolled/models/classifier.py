"""Classifiers of sequences, with one label or several."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator
from torch import Tensor, nn

from unrolled.config import but, only
from unrolled.data import Batch
from unrolled.models.encoder_layers import EncoderLayerSettings, LookedAt, encoder_layers, looked_at
from unrolled.models.inputs import FrameInput, TokenInput, WordInput
from unrolled.models.recurrent_settings import Change, unchanged
from unrolled.models.wide import WidePath
from unrolled.nn.linear import Linear
from unrolled.nn.pooling import Pooling

TEXT = only(inputs="text")
NETWORK = ("recurrent", "transformer")
LAYERS = only(kind=NETWORK)
TEXT_LAYERS = only(inputs="text", kind=NETWORK)
WORDS = only({"inputs": "text", "data.level": "word", "kind": NETWORK})
WIDE = only(wide="on")


class ClassifierSettings(EncoderLayerSettings):
    """The `model` section of `classify`."""

    kind: Literal["recurrent", "transformer", "linear"] = Field(  # type: ignore[assignment]
        "recurrent",
        description="Recurrent layers, or the encoder of a Transformer: hidden_size is its width; linear: the wide "
        "path alone, which is fitted in seconds.",
    )
    hidden_size: int = Field(
        128, ge=1, json_schema_extra=LAYERS, description="Units per layer and direction; width of a Transformer."
    )
    num_layers: int = Field(
        1, ge=1, json_schema_extra=LAYERS, description="Number of recurrent layers, or of Transformer blocks."
    )
    bidirectional: bool = Field(
        True,
        json_schema_extra=LAYERS,
        description="Read in both directions; false: a step depends on the past alone, a Transformer is causal.",
    )
    dropout: float = Field(
        0.4,
        ge=0,
        lt=1,
        json_schema_extra=LAYERS,
        description="Dropout of the input, between layers and before the scores.",
    )
    pool: str = Field(
        "max",
        json_schema_extra=LAYERS,
        description="Pooling of the states: last, max, mean, attention; several with +.",
    )
    wide: Literal["auto", "on", "off"] = Field(
        "auto",
        json_schema_extra=TEXT,
        description="A wide path beside the layers: a linear model of hashed n-grams, fitted before training, which "
        "starts at its scores; auto: on for texts, unless ngrams are trained.",
    )
    wide_words: int = Field(
        2, ge=1, le=5, json_schema_extra=WIDE, description="Longest run of words that is an n-gram of the wide path."
    )
    wide_letters: list[int] | None = Field(
        None,
        max_length=2,
        json_schema_extra=WIDE,
        description="Shortest and longest character n-gram within words, [] for no such n-grams; none: [1, 4] for "
        "texts of one or two words, [2, 5] for others.",
    )
    wide_buckets: int = Field(
        262144, ge=2, le=2**24, json_schema_extra=WIDE, description="Buckets that n-grams are hashed to."
    )
    wide_min_count: int | None = Field(
        None,
        ge=1,
        json_schema_extra=WIDE,
        description="N-grams of fewer training texts are left out; none: 2 for texts of one or two words, 1 for "
        "others.",
    )
    wide_penalty: float | None = Field(
        None,
        gt=0,
        json_schema_extra=WIDE,
        description="Penalty of the wide path, ½ · wide_penalty · ‖W‖² beside the mean loss; none: the best of several "
        "on the validation part.",
    )
    ngrams: int = Field(
        0,
        ge=0,
        json_schema_extra=TEXT_LAYERS,
        description="Hash buckets of word and letter n-grams whose linear scores are trained with the network; 0: "
        "none.",
    )
    embedding_size: int = Field(
        100,
        ge=1,
        json_schema_extra=only({"inputs": "text", "data.vectors": None, "kind": NETWORK}),
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

    @field_validator("wide_letters")
    @classmethod
    def _rising(cls, value: list[int] | None) -> list[int] | None:
        if value and not (len(value) == 2 and 1 <= value[0] <= value[1] <= 10):
            raise ValueError("expected the shortest and the longest from 1 to 10, such as [2, 5], or []")
        return value


class Classifier(nn.Module):
    """Input → recurrent layers or a Transformer → one vector → scores: y = W pool(h_1 … h_T) + b.

    The scores of a wide path are added. Then W and b begin at 0: training starts from the wide path.
    """

    def __init__(
        self,
        settings: ClassifierSettings,
        inputs: TokenInput | WordInput | FrameInput,
        classes: int,
        wide: WidePath | None = None,
    ) -> None:
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
        self.wide = wide
        if wide is not None:
            nn.init.zeros_(self.scores.weight)
            nn.init.zeros_(self.scores.bias)

    def forward(self, batch: Batch) -> Tensor:
        """Scores before softmax or σ, (B, C)."""
        return self._score(self.encode(batch), batch)

    def _score(self, vector: Tensor, batch: Batch) -> Tensor:
        scores: Tensor = self.scores(self.dropout(vector))
        if self.ngrams is not None:
            ids, starts = batch.more["ngrams"], batch.more["ngram_starts"]
            scores = scores + self.ngrams(ids, starts, self.ngram_dropout(batch.more["ngram_weights"]))
        return scores if self.wide is None else scores + self.wide(batch)

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
