"""What a CTC model says of every frame, for pictures (S34)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Frames:
    """Posteriors (T, V) over frames, the label that each frame was aligned with, and what was heard or seen.

    `labels` are the names of the V outputs, `blank` the place of the blank among them. `alignment` has an output for
    every frame. `picture` (rows, T') is a spectrogram or a line image that the frames come from, drawn above them.
    """

    posteriors: Tensor  # (T, V), probabilities
    labels: list[str]
    alignment: list[int]
    blank: int = 0
    seconds: float | None = None  # of one frame; None: frames are counted
    picture: Tensor | None = None

    @property
    def spikes(self) -> list[tuple[int, str, float]]:
        """(frame, label, probability) where the alignment first says a label."""
        found = []
        for t, label in enumerate(self.alignment):
            if label != self.blank and (t == 0 or label != self.alignment[t - 1]):
                found.append((t, self.labels[label], float(self.posteriors[t, label])))
        return found
