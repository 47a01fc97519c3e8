"""Conditional random fields without torch: the likeliest tags, and the probability of each. `unrolled.nn.crf` has them
for tensors, under their equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import stored_entry
from unrolled.errors import UserError
from unrolled.runtime.manifest import AGAIN

FORBIDDEN = -1e4  # score of a forbidden transition: finite, so that a path always remains
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Transitions:
    """Scores of a tag after another (K, K), of the first tag (K,) and of the last (K,)."""

    transitions: Scores
    start: Scores
    end: Scores

    @classmethod
    def of(cls, stored: Any, tags: int, forbidden: Sequence[NDArray[np.bool_]] | None) -> Transitions:
        """Those of a manifest, very low where they are forbidden."""
        kinds = {"transitions": list[list[float]], "start": list[float], "end": list[float]}
        parts = [np.array(stored_entry(stored, name, kind, "CRF"), dtype=np.float32) for name, kind in kinds.items()]
        if [part.shape for part in parts] != [(tags, tags), (tags,), (tags,)]:
            raise UserError(f"The CRF of the manifest is not one of {tags} tags.", AGAIN)
        masks = forbidden or [np.zeros(part.shape, dtype=bool) for part in parts]
        return cls(*(np.where(mask, np.float32(FORBIDDEN), part) for part, mask in zip(parts, masks, strict=True)))

    def best(self, emissions: Scores) -> list[int]:
        """The likeliest tags of one sequence (Viterbi): emissions (T, K)."""
        if not len(emissions):
            return []
        best = self.start + emissions[0]
        came = np.zeros(emissions.shape, dtype=np.int64)
        arriving = np.ascontiguousarray(self.transitions.T)  # (to, from)
        for t in range(1, len(emissions)):
            scores = best + arriving
            came[t] = scores.argmax(-1)
            best = np.take_along_axis(scores, came[t][:, None], 1)[:, 0] + emissions[t]
        path = [int((best + self.end).argmax())]
        for t in range(len(emissions) - 1, 0, -1):
            path.append(int(came[t, path[-1]]))
        return path[::-1]

    def marginals(self, emissions: Scores) -> NDArray[np.float32]:
        """The probability of each tag at each step of one sequence, (T, K): the forward–backward algorithm."""
        x, between = emissions.astype(np.float64), self.transitions.astype(np.float64)
        forward, backward = np.zeros_like(x), np.zeros_like(x)
        if not len(x):
            return x.astype(np.float32)
        forward[0] = self.start + x[0]
        for t in range(1, len(x)):
            forward[t] = _log_sum(forward[t - 1][:, None] + between) + x[t]
        backward[-1] = self.end
        for t in range(len(x) - 2, -1, -1):
            backward[t] = _log_sum((between + x[t + 1] + backward[t + 1]).T)
        total = _log_sum((forward[-1] + self.end)[:, None])[0]
        chances: NDArray[np.float32] = np.exp(forward + backward - total).astype(np.float32)
        return chances


def _log_sum(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """log Σ exp over the first axis."""
    most = scores.max(0)
    total: NDArray[np.float64] = most + np.log(np.exp(scores - most).sum(0))
    return total
