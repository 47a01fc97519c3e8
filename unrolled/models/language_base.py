"""Settings of language models, and their interface to a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator
from torch import Tensor, nn

from unrolled.config import but, only
from unrolled.kernels.vocabulary.reference import wide
from unrolled.models.recurrent_settings import RECURRENT, TRANSFORMER, RecurrentSettings
from unrolled.models.transformer_settings import Blocks, NormFirst
from unrolled.search import TokenModel, TokenStep
from unrolled.search.tokens.steady import GraphCache, graphs_of

LEAST_CONTEXT = 2  # a Transformer halves its window when it is full


class LanguageModelSettings(RecurrentSettings):
    """The `model` section of `generate`."""

    kind: Literal["recurrent", "transformer", "feedforward"] = Field(
        "recurrent",
        description="recurrent reads all previous tokens; transformer attends to the last `context` tokens; "
        "feedforward, the baseline, concatenates them.",
    )
    hidden_size: int = Field(256, ge=1, description="Units per layer; width of a Transformer.")
    embedding_size: int | None = Field(
        64,
        ge=1,
        json_schema_extra=only(kind=("recurrent", "feedforward")),
        description="Embedding size of tokens; none: hidden_size, as for every Transformer.",
    )
    tune_vectors: bool = Field(
        True,
        json_schema_extra=only({"data.vectors": but(None), "tied": False}),
        description="Train the embeddings that pretrained vectors are in; it needs tied=false to be false.",
    )
    tied: bool = Field(
        False,
        json_schema_extra=only(kind=("recurrent", "transformer")),
        description="Share one matrix between input embeddings and output scores.",
    )
    bidirectional: bool = Field(False, description="Always false here: a language model may not see the future.")
    context: int | None = Field(
        None,
        ge=1,
        json_schema_extra=only(kind=("transformer", "feedforward")),
        description="Largest context in tokens; none: 8 for feedforward, train.k1 for a transformer.",
    )
    context_mode: Literal["concat", "average"] = Field(
        "concat",
        json_schema_extra=only(kind="feedforward"),
        description="feedforward: embeddings concatenated, or averaged without order.",
    )
    blocks: Blocks = 4
    heads: int = Field(
        4, ge=1, json_schema_extra=TRANSFORMER, description="transformer: heads of attention; they divide hidden_size."
    )
    feedforward: int | None = Field(
        None,
        ge=1,
        json_schema_extra=TRANSFORMER,
        description="transformer: width of the feed-forward layers; none: 4 times hidden_size.",
    )
    positions: Literal["sinusoidal", "learned", "count", "fraction", "binary", "none"] = Field(
        "sinusoidal",
        json_schema_extra=TRANSFORMER,
        description="transformer: encoding of positions; the last four are for comparison.",
    )
    norm_first: NormFirst = True
    activation: Literal["relu", "gelu"] = Field(
        "gelu", json_schema_extra=TRANSFORMER, description="transformer: activation of the feed-forward layers."
    )

    last_size: int | None = Field(
        None,
        ge=1,
        json_schema_extra=RECURRENT,
        description="recurrent: units of the last layer, if they differ from the others'.",
    )
    same_mask: bool = Field(
        False,
        json_schema_extra=RECURRENT,
        description="recurrent: dropout outside the cells has one mask for all steps of a window (variational).",
    )
    word_dropout: float = Field(
        0.0, ge=0, lt=1, json_schema_extra=RECURRENT, description="recurrent: dropout of whole tokens."
    )
    input_dropout: float | None = Field(
        None, ge=0, lt=1, json_schema_extra=RECURRENT, description="recurrent: dropout of embeddings; none: dropout."
    )
    between_dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        json_schema_extra=only(kind="recurrent", num_layers=but(1)),
        description="recurrent: dropout between layers; none: dropout.",
    )
    activation_penalty: float = Field(
        0.0,
        ge=0,
        json_schema_extra=RECURRENT,
        description="recurrent: weight of the mean square of the outputs in the loss (AR).",
    )
    change_penalty: float = Field(
        0.0,
        ge=0,
        json_schema_extra=RECURRENT,
        description="recurrent: weight of the mean square of their change per step (TAR).",
    )

    @field_validator("bidirectional")
    @classmethod
    def _sees_no_future(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "a language model cannot be bidirectional: its backward half would read the tokens it has to predict. "
                "For a model that writes from right to left use data.direction=backward"
            )
        return value


class LanguageModel(nn.Module):
    """The interface of language models to a search: `start`, `step` and `prefill` (see `unrolled.search`)."""

    start_token: int
    vocabulary_size: int
    embedding: nn.Embedding
    scores: nn.Linear

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(
        self, ids: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Token ids (B, T) → scores of the token after each (B, T, V), and the state after the last."""
        features, state = self.features(ids, state, lengths, resets)
        return self.scores(features), state

    def features(
        self, ids: Tensor, state: Any = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """`forward` without the scores: their inputs (B, T, D), and the state after the last token."""
        raise NotImplementedError

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The vectors from which the scores are made, (B, T, D), of token ids (B, T)."""
        raise NotImplementedError

    def for_writing(self, rows: int, weights: str = "fp32") -> TokenModel:
        """The fastest model to continue `rows` sequences token by token, with equal results up to rounding."""
        from unrolled.models.language import stepper_for  # which knows all kinds

        return stepper_for(self, rows, weights)

    def nats(
        self, inputs: Sequence[int] | NDArray[np.int64], targets: Sequence[int] | NDArray[np.int64], state: Any
    ) -> tuple[list[float], Any]:
        """The loss of each of some tokens after others, and the state after these."""
        scores, state = self(torch.as_tensor(inputs, device=self.device)[None], state)
        wanted = torch.as_tensor(targets, device=self.device)
        losses: list[float] = nn.functional.cross_entropy(wide(scores[0]), wanted, reduction="none").tolist()
        return losses, state

    def initial_state(self, rows: int) -> Any:
        """The state before the first token of `rows` texts; None: it has no shape yet."""
        return None

    @property
    def graphs(self) -> GraphCache | None:
        """Recorded searches; none in training, where steps draw, and none where states change their shapes."""
        return None if self.training or self.initial_state(1) is None else graphs_of(self)

    def steady(self, memory: Any, rows: int, width: int, steps: int) -> tuple[TokenModel, Any] | None:
        """See `unrolled.search.tokens.steady`."""
        return self, self.initial_state(rows) if memory is None else memory

    def start(self, memory: Any) -> Any:
        """The state before the first token: a carried one, or None for the initial one."""
        return memory

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        """tokens (B,) → the distribution of the next token."""
        scores, state = self(tokens[:, None], state)
        return TokenStep(scores[:, 0].float().log_softmax(-1), state)

    def prefill(self, tokens: Tensor, lengths: Tensor, state: Any) -> TokenStep:
        """tokens (B, T) → the distribution after each row's last token."""
        scores, state = self(tokens, state, lengths=lengths)
        last = scores[torch.arange(tokens.shape[0], device=tokens.device), lengths - 1]
        return TokenStep(last.float().log_softmax(-1), state)
