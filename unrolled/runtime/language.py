"""Language models in onnxruntime: recurrent ones carry a state, Transformers a window of tokens with their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.runtime.graph import Graphs, State
from unrolled.runtime.manifest import Manifest
from unrolled.runtime.readers import RuntimeNetwork
from unrolled.runtime.settings import StoredSettings
from unrolled.search import TokenStep
from unrolled.search.arrays import NUMPY

Ids = NDArray[np.int64]
Scores = NDArray[np.float32]


def language_model(graphs: Graphs, manifest: Manifest, config: StoredSettings, assets: Any) -> RuntimeLanguageModel:
    """The language model of a manifest."""
    kind = WindowedLanguageModel if manifest.entry("context") is not None else RuntimeLanguageModel
    return kind(graphs, manifest, config, assets)


class RuntimeLanguageModel(RuntimeNetwork):
    """The next token from those before it; the graph "whole" reads texts from their beginning, "step" goes on."""

    def __call__(self, tokens: Ids, state: State | None, lengths: Ids | None = None) -> tuple[Scores, State]:
        """log P of the token after each of (B, T), and the state after the last of each row."""
        if state is None:
            full = np.full(len(tokens), tokens.shape[1]) if lengths is None else lengths
            found, after = self.whole({"tokens": tokens, "lengths": full})
            return found["log_probs"], after
        parts = []
        for column in tokens.T:
            step = self.step(column, state)
            parts.append(step.scores)
            state = step.state
        return np.stack(parts, axis=1), state

    def nats(self, inputs: Sequence[int] | Ids, targets: Sequence[int] | Ids, state: Any) -> tuple[list[float], Any]:
        """The loss of each of some tokens after others, and the state after these."""
        log_probs, state = self(np.asarray(inputs)[None], state)
        picked = NUMPY.gather(log_probs[0], np.asarray(targets)[:, None])
        losses: list[float] = (-picked[:, 0].astype(np.float64)).tolist()
        return losses, state

    def for_writing(self, rows: int, weights: str = "fp32") -> RuntimeLanguageModel:
        """The model to continue `rows` sequences token by token."""
        check_weights(weights)
        return PromptReader(self.graphs, self.manifest, self.config, self.assets)

    def start(self, memory: Any) -> Any:
        return memory

    def step(self, tokens: Ids, state: Any) -> TokenStep:
        if state is None:
            log_probs, after = self(tokens[:, None], None)
            return TokenStep(log_probs[:, 0], after)
        found, after = self.step_graph({"tokens": tokens}, state)
        return TokenStep(found["log_probs"], after)


class PromptReader(RuntimeLanguageModel):
    """A language model that reads whole prompts of any lengths at once."""

    def prefill(self, tokens: Ids, lengths: Ids, state: State | None) -> TokenStep:
        if state is None:
            log_probs, after = self(tokens, None, lengths)
            return TokenStep(log_probs[np.arange(len(tokens)), lengths - 1], after)
        rows = [self(tokens[i : i + 1, :n], tuple(part[i : i + 1] for part in state)) for i, n in enumerate(lengths)]
        after = tuple(np.concatenate(parts) for parts in zip(*(state for _, state in rows), strict=True))
        return TokenStep(np.concatenate([log_probs[:, -1] for log_probs, _ in rows]), after)


class WindowedLanguageModel(RuntimeLanguageModel):
    """A Transformer, which sees the last `context` tokens; a full window begins anew with its last half.

    The state is the tokens of the window (B, W), and the keys and values of each block.
    """

    @property
    def context(self) -> int:
        return int(self.manifest.entry("context"))

    def __call__(self, tokens: Ids, state: Any, lengths: Ids | None = None) -> tuple[Scores, Any]:
        window = tokens[:, :0] if state is None else state[0]
        parts, after = [], (window, () if state is None else state[1])
        for piece in self._pieces(tokens, window.shape[1]):
            kept = self._with_room(after[0])
            together = np.concatenate([kept, piece], axis=1)
            found, past = self.whole({"tokens": together})
            parts.append(found["log_probs"][:, kept.shape[1] :])
            after = (together, past)
        return np.concatenate(parts, axis=1), after

    def _pieces(self, tokens: Ids, width: int) -> Iterator[Ids]:
        """The tokens in pieces that fill one window after the other."""
        done = 0
        while done < tokens.shape[1]:
            width = self.context // 2 if width == self.context else width
            count = min(self.context - width, tokens.shape[1] - done)
            yield tokens[:, done : done + count]
            done, width = done + count, width + count

    def _with_room(self, window: Ids) -> Ids:
        return window[:, -(self.context // 2) :] if window.shape[1] == self.context else window

    def for_writing(self, rows: int, weights: str = "fp32") -> RuntimeLanguageModel:
        """The model itself for several sequences: their windows must be equally long, so they start side by side."""
        check_weights(weights)
        alone = WindowReader(self.graphs, self.manifest, self.config, self.assets)
        return alone if rows == 1 else self

    def step(self, tokens: Ids, state: Any) -> TokenStep:
        if state is None or state[0].shape[1] == self.context:
            log_probs, after = self(tokens[:, None], state)
            return TokenStep(log_probs[:, 0], after)
        window, past = state
        found, past = self.step_graph({"tokens": tokens}, past)
        return TokenStep(found["log_probs"], (np.concatenate([window, tokens[:, None]], axis=1), past))


class WindowReader(WindowedLanguageModel):
    """A Transformer that reads a single prompt at once."""

    def prefill(self, tokens: Ids, lengths: Ids, state: Any) -> TokenStep:
        log_probs, after = self(tokens, state)
        return TokenStep(log_probs[:, -1], after)


def check_weights(weights: str) -> None:
    """An error for a format of weights: those of an exported model are in its graphs."""
    if weights != "fp32":
        raise UserError(
            f"weights={weights!r} is for the model file: an exported model has the weights of its graphs.",
            "Leave it out, or export the model with --weights int8 or fp16.",
        )
