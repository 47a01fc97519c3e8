"""Language models: the next token from those before it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unrolled.cells import Trace
from unrolled.cells.apart import linear, mean, pointwise, row_engine
from unrolled.errors import UserError
from unrolled.models.chain import Chain, ChainStepper, dropped, dropped_words
from unrolled.models.language_base import LanguageModel, LanguageModelSettings
from unrolled.models.language_transformer import TransformerLM
from unrolled.models.recurrent_settings import (
    Change,
    State,
    recurrent_layer,
    state_from_torch,
    state_to_torch,
    unchanged,
)
from unrolled.nn.dropin import DropIn
from unrolled.nn.embedding import Embedding
from unrolled.nn.linear import Linear
from unrolled.nn.stepper import Stepper
from unrolled.search import TokenStep

MOST_ROWS_TO_STEP = 8  # with more rows a call of the whole layer is as fast
USUAL_CONTEXT = 8  # of a feed-forward model


def language_model(settings: LanguageModelSettings, vocabulary_size: int, start: int) -> LanguageModel:
    """Build the language model of the settings; `start` is the token before the first."""
    kinds = {"recurrent": RecurrentLM, "transformer": TransformerLM, "feedforward": FeedForwardLM}
    return kinds[settings.kind](settings, vocabulary_size, start)


class RecurrentOutput(NamedTuple):
    """Output of the recurrent layers, the same after dropout, and the final state."""

    output: Tensor  # (B, T, H)
    features: Tensor  # (B, T, H), input of the scores
    state: State


class RecurrentLM(LanguageModel):
    """Embedding → recurrent layers → scores of the next token: y_t = W h_t + b.

    With `same_mask`, `word_dropout`, `dropconnect`, penalties and a last layer as wide as tied embeddings it is the
    AWD-LSTM (Merity et al. 2018).
    """

    def __init__(self, settings: LanguageModelSettings, vocabulary_size: int, start: int) -> None:
        super().__init__()
        self.start_token, self.vocabulary_size = start, vocabulary_size
        self._dropout, self._word_dropout = settings.dropout, settings.word_dropout
        self._input_dropout = settings.dropout if settings.input_dropout is None else settings.input_dropout
        self._same_mask = settings.same_mask
        self.penalties = (settings.activation_penalty, settings.change_penalty)
        width = settings.embedding_size or settings.hidden_size
        self.embedding = Embedding(vocabulary_size, width)
        self.layer: DropIn | Chain = _layers(settings, width)
        outputs = settings.last_size if settings.last_size and not settings.projection else settings.output_size
        self.scores = Linear(outputs, vocabulary_size)
        for weight in (self.embedding.weight, self.scores.weight):
            nn.init.uniform_(weight, -0.1, 0.1)
        nn.init.zeros_(self.scores.bias)
        if settings.tied:
            if width != outputs:
                raise UserError(
                    f"model.tied=true needs embeddings as wide as the last layer: {width} and {outputs}.",
                    f"Use model.embedding_size={outputs}.",
                )
            self.scores.weight = self.embedding.weight

    def features(
        self, ids: Tensor, state: State | None = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, State]:
        read = self.read(ids, state, lengths, resets)
        return read.features, read.state

    def read(
        self, ids: Tensor, state: State | None = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> RecurrentOutput:
        """`features`, and the outputs that they are made from."""
        x = dropped_words(self.embedding(ids), ids, self.vocabulary_size, self._word_dropout, self.training)
        x = self._drop(x, self._input_dropout)
        if isinstance(self.layer, Chain):
            output, final = self.layer(x, state, lengths=lengths, resets=resets)
        else:
            output, final = self.layer(x, state_to_torch(state), lengths=lengths, resets=resets)
            final = state_from_torch(final)
        return RecurrentOutput(output, self._drop(output, self._dropout), final)

    def initial_state(self, rows: int) -> State:
        layers = self.layer.each() if isinstance(self.layer, Chain) else [self.layer]
        return tuple(state for layer in layers for state in state_from_torch(layer.initial_state(rows)))

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        return self.read(ids, lengths=lengths).output

    def penalty(self, read: RecurrentOutput) -> Tensor:
        """α · mean h̃² + β · mean (h_t − h_{t−1})², h̃ being h after dropout; rows must be full (Merity et al. 2017)."""
        alpha, beta = self.penalties
        change = read.output.diff(dim=1) if read.output.shape[1] > 1 else torch.zeros_like(read.output)
        return alpha * read.features.square().mean() + beta * change.square().mean()

    def _drop(self, x: Tensor, p: float) -> Tensor:
        return dropped(x, p, self._same_mask, self.training)

    def trace(self, ids: Tensor, change: Change = unchanged) -> tuple[Tensor, Trace]:
        """The scores, and the trace of the recurrent layers; `change` is applied to the tokens' vectors."""
        trace: Trace = self.layer.trace(change(self.embedding(ids)))
        return self.scores(trace.output), trace


def _layers(settings: LanguageModelSettings, width: int) -> DropIn | Chain:
    """A chain of layers if sizes differ or dropout between them is not standard; otherwise one layer stack."""
    own = settings.last_size is not None or settings.same_mask or settings.between_dropout is not None
    if not own:
        return recurrent_layer(settings, width)
    if settings.combine != "last":
        raise UserError(
            f"model.combine={settings.combine} does not work with model.last_size, same_mask or between_dropout.",
            "Use model.combine=last.",
        )
    sizes = [settings.hidden_size] * (settings.num_layers - 1) + [settings.last_size or settings.hidden_size]
    between = settings.dropout if settings.between_dropout is None else settings.between_dropout
    return Chain(settings, width, sizes, between, settings.same_mask)


class LanguageStepper:
    """A recurrent language model one token at a time on its layer's stepper, for generation on a CPU.

    The weights are copied on construction. `weights` is the type of the recurrent ones: fp32, fp16, int16 or int8.
    """

    def __init__(self, network: RecurrentLM, weights: str = "fp32") -> None:
        self._network = network
        self._stepper: Stepper | ChainStepper = network.layer.stepper(weights)
        self._embedding, self._bias = network.embedding.weight.detach(), network.scores.bias.detach()
        self._scores = network.scores.weight.detach()

    def start(self, memory: Any) -> Any:
        return memory

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        if state is None:
            state = self._stepper.initial_state(len(tokens))
        output, state = self._stepper(self._embedding[tokens], state)
        return TokenStep(linear(output, self._scores, self._bias).log_softmax(-1), state)

    def prefill(self, tokens: Tensor, lengths: Tensor, state: Any) -> TokenStep:
        return self._network.prefill(tokens, lengths, state)


def stepper_for(network: LanguageModel, rows: int, weights: str = "fp32") -> LanguageModel | LanguageStepper:
    """The fastest model to continue `rows` sequences token by token, with equal results up to rounding."""
    small = (rows <= MOST_ROWS_TO_STEP or row_engine() is not None) and network.device.type == "cpu"
    if isinstance(network, RecurrentLM) and network.embedding.weight.dtype == torch.float32 and small:
        return LanguageStepper(network, weights)
    if weights != "fp32":
        raise UserError(
            f"weights={weights!r} is for writing up to {MOST_ROWS_TO_STEP} texts at once "
            "with a recurrent model on a CPU.",
            "Use weights='fp32'.",
        )
    return network


class FeedForwardLM(LanguageModel):
    """The feed-forward baseline: vectors of the last k tokens, concatenated or averaged (Bengio 2003).

    Its state is the k − 1 tokens before the next one.
    """

    def __init__(self, settings: LanguageModelSettings, vocabulary_size: int, start: int) -> None:
        super().__init__()
        self.start_token, self.vocabulary_size = start, vocabulary_size
        self.context, self.average = settings.context or USUAL_CONTEXT, settings.context_mode == "average"
        width = settings.embedding_size or settings.hidden_size
        self.embedding = Embedding(vocabulary_size, width)
        self.dropout = nn.Dropout(settings.dropout)
        self.hidden = Linear(width if self.average else width * self.context, settings.hidden_size)
        self.scores = Linear(settings.hidden_size, vocabulary_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def features(
        self, ids: Tensor, state: State | None = None, lengths: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The state is the last tokens."""
        before = self._before(ids, state, resets)
        seen = torch.cat([before, ids], dim=1)  # (B, k - 1 + T)
        windows = self.embedding(seen.unfold(1, self.context, 1))  # (B, T, k, E)
        features = self._features(windows)
        ends = lengths if lengths is not None else torch.full((ids.shape[0],), ids.shape[1], device=ids.device)
        last = ends[:, None] + torch.arange(self.context - 1, device=ids.device)  # (B, k - 1)
        return features, (seen.gather(1, last),)

    def initial_state(self, rows: int) -> State:
        return (torch.full((rows, self.context - 1), self.start_token, device=self.device),)

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        seen = torch.cat([self._before(ids, None, None), ids], dim=1)
        return self._hidden(self.embedding(seen.unfold(1, self.context, 1)))

    def _hidden(self, windows: Tensor) -> Tensor:
        x = mean(windows, 2) if self.average else windows.flatten(2)
        return pointwise(torch.tanh, self.hidden(self.dropout(x)))

    def _features(self, windows: Tensor) -> Tensor:
        features: Tensor = self.dropout(self._hidden(windows))
        return features

    def trace(self, ids: Tensor, change: Change = unchanged) -> Tensor:
        """The scores, without states; `change` is applied to the tokens' vectors."""
        before = self.embedding(self._before(ids, None, None))
        seen = torch.cat([before, change(self.embedding(ids))], dim=1)  # (B, k - 1 + T, E)
        scores: Tensor = self.scores(self._features(seen.unfold(1, self.context, 1).transpose(2, 3)))
        return scores

    def _before(self, ids: Tensor, state: State | None, resets: Tensor | None) -> Tensor:
        fresh = ids.new_full((ids.shape[0], self.context - 1), self.start_token)
        if state is None:
            return fresh
        if resets is None:
            return state[0]
        if resets.dim() == 2:
            raise UserError("A feed-forward model cannot reset in the middle of a batch.", "Give resets of shape (B,).")
        return torch.where(resets[:, None], fresh, state[0])
