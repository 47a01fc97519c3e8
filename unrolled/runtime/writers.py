"""Networks that write token by token, in onnxruntime: language models, translators, captioners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.runtime.graph import State
from unrolled.runtime.readers import RuntimeNetwork, fed
from unrolled.search import Shared, TokenStep
from unrolled.search.arrays import NUMPY

Ids = NDArray[np.int64]


class RuntimeLanguageModel(RuntimeNetwork):
    """The next token from those before it."""

    def __call__(self, tokens: Ids, state: State | None, lengths: Ids | None = None) -> tuple[NDArray[Any], State]:
        """log P of the token after each of (B, T), and the state after the last."""
        graph = self.whole
        found, state = graph({"tokens": tokens}, graph.initial(len(tokens)) if state is None else state)
        return found["log_probs"], state

    def nats(self, inputs: Sequence[int], targets: Sequence[int], state: State | None) -> tuple[float, State]:
        """The summed loss of tokens after others, and the state after these."""
        log_probs, state = self(np.array([inputs]), state)
        picked = NUMPY.gather(log_probs[0], np.array(targets)[:, None])
        return -float(picked.astype(np.float64).sum()), state

    def for_writing(self, rows: int, weights: str = "fp32") -> RuntimeLanguageModel:
        """The model to continue `rows` sequences; it reads prompts as a whole where their states can be joined."""
        if weights != "fp32":
            raise UserError(
                f"weights={weights!r} is for the model file: an exported model has the weights of its graphs.",
                "Leave it out, or export with --int8 or --fp16.",
            )
        together = rows == 1 or not self.step_graph.grows
        return PromptReader(self.graphs, self.manifest, self.config, self.assets) if together else self

    def start(self, memory: State | None) -> State | None:
        return memory

    def step(self, tokens: Ids, state: State | None) -> TokenStep:
        graph = self.step_graph
        found, state = graph({"tokens": tokens}, graph.initial(len(tokens)) if state is None else state)
        return TokenStep(found["log_probs"], state)


class PromptReader(RuntimeLanguageModel):
    """A language model that reads whole prompts: those of one length side by side."""

    def prefill(self, tokens: Ids, lengths: Ids, state: State | None) -> TokenStep:
        state = self.whole.initial(len(tokens)) if state is None else state
        last: list[Any] = [None] * len(tokens)
        after: list[Any] = [None] * len(tokens)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            log_probs, found = self(tokens[rows, :length], tuple(part[rows] for part in state))
            for place, row in enumerate(rows.tolist()):
                last[row], after[row] = log_probs[place, -1], [part[place] for part in found]
        return TokenStep(np.stack(last), tuple(np.stack(parts) for parts in zip(*after, strict=True)))


class Memory(NamedTuple):
    """An encoder's output: the same fields as `unrolled.models.encoder.EncoderOutput`."""

    memory: NDArray[np.float32]  # (B, S, M)
    mask: NDArray[np.bool_]  # (B, S)
    state: State  # of the decoder before its first step


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
        rows = len(batch.inputs)
        names = [one.name for one in self.step_graph.entry.state]
        zeros = dict(zip(names, self.step_graph.initial(rows), strict=True)) if not set(names) <= set(found) else {}
        mask = found["mask"] if "mask" in found else np.ones(found["memory"].shape[:2], dtype=bool)
        return Memory(found["memory"], mask, tuple(found.get(name, zeros.get(name)) for name in names))

    def start(self, memory: Memory) -> Any:
        return memory.state, Shared((memory.memory, memory.mask))

    def step(self, tokens: Ids, state: Any) -> TokenStep:
        own, shared = state
        memory, mask = self._for_each(len(tokens), shared)
        found, own = self.step_graph({"tokens": tokens, "memory": memory, "mask": mask}, own)
        return TokenStep(found["log_probs"], (own, shared), found.get("attention"))

    def _for_each(self, rows: int, shared: Shared) -> tuple[NDArray[Any], NDArray[Any]]:
        """The memory of each hypothesis; those of one input stand next to each other. The last result is kept."""
        kept: Any = self.__dict__.get("_last")
        if kept is None or kept[0] is not shared or kept[1] != rows:
            memory, mask = shared.value
            times = rows // len(memory)
            repeated = (memory, mask) if times == 1 else (np.repeat(memory, times, 0), np.repeat(mask, times, 0))
            kept = self.__dict__["_last"] = (shared, rows, repeated)
        result: tuple[NDArray[Any], NDArray[Any]] = kept[2]
        return result
