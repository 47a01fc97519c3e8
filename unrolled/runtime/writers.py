"""Networks that write about an input, in onnxruntime: translators and captioners."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch
from unrolled.runtime.graph import State
from unrolled.runtime.readers import RuntimeNetwork, fed
from unrolled.search import Shared, TokenStep


class Memory(NamedTuple):
    """An encoder's output, in parts as the graphs have them."""

    state: State  # of the decoder before its first step
    shared: tuple[NDArray[Any], ...]  # what all hypotheses of an input read
    mask: NDArray[np.bool_] | None  # (B, S), True at real positions of the input; None: all are


class RuntimeWriter(RuntimeNetwork):
    """An encoder, and a decoder that writes from its memory."""

    @property
    def attends(self) -> bool:
        return "attention" in self.step_graph.outputs

    @property
    def hard(self) -> bool:
        """True if a captioner reads one region for each word."""
        return bool(self.config.model.decoder.attention == "hard")

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the regions of a picture, where these form a grid."""
        grid = self.manifest.entry("grid")
        return None if grid is None else (int(grid[0]), int(grid[1]))

    def showing_attention(self) -> RuntimeWriter:
        """The network itself: every step gives its attention."""
        return self

    def encode(self, batch: Batch) -> Memory:
        found, _ = self.graphs["encode"](fed(batch))
        step = self.step_graph
        empty = step.initial(len(batch.inputs))  # where the encoder gives no state, nothing was written yet
        state = tuple(found.get(one.name, zeros) for one, zeros in zip(step.entry.state, empty, strict=True))
        mask = None
        if batch.lengths is not None:
            mask = np.arange(batch.inputs.shape[1]) < batch.lengths[:, None]
        return Memory(state, tuple(found[name] for name in self._shared), mask)

    @property
    def _shared(self) -> list[str]:
        return [one.name for one in self.step_graph.entry.inputs if one.name.startswith("shared_")]

    def start(self, memory: Memory) -> Any:
        return memory.state, Shared(memory.shared)

    def step(self, tokens: NDArray[np.int64], state: Any) -> TokenStep:
        own, shared = state
        found, own = self.step_graph({"tokens": tokens, **dict(zip(self._shared, shared.value, strict=True))}, own)
        return TokenStep(found["log_probs"], (own, shared), found.get("attention"))
