"""A step on a GPU as a CUDA graph: launching its kernels one by one takes longer than running them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from unrolled.cells import State
from unrolled.kernels.cuda.recording import recorded

StepFunction = Callable[[Tensor, State], tuple[Tensor, State]]


class CapturedStep:
    """A step for one batch size, with its own buffers; it keeps its `state` between calls."""

    def __init__(self, step: StepFunction, x: Tensor, state: State) -> None:
        self.x = x.clone()
        self._state = tuple(s.clone() for s in state)

        def run() -> Tensor:
            output, new = step(self.x, self._state)
            for kept, fresh in zip(self._state, new, strict=True):
                kept.copy_(fresh)
            return output

        self._output, self._graph = recorded(run, x.device)

    @property
    def state(self) -> State:
        """A copy of the state after the last step."""
        return tuple(s.clone() for s in self._state)

    @state.setter
    def state(self, state: State) -> None:
        for kept, new in zip(self._state, state, strict=True):
            kept.copy_(new)

    def feed(self, x: Tensor) -> Tensor:
        """One step: x (B, D) → output (B, O)."""
        self.x.copy_(x)
        self._graph.replay()
        return self._output.clone()
