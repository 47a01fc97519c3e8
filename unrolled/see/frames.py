"""The output of a CTC model for every frame, for figures."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch import Tensor

BLANK = 0  # index of the blank label


@dataclass(frozen=True)
class Frames:
    """Posteriors (T, V) over frames, their alignment with labels, and the input signal.

    `labels` are the names of the V outputs, the blank first. `alignment` has an output for every frame. The frames
    span 0 to `end`, in `unit`. `signal` (T', D) is the spectrogram, the pixel columns of a line, or the frames.
    """

    posteriors: Tensor  # (T, V), probabilities
    labels: list[str]
    alignment: list[int]
    kind: str = "frames"  # audio, line or frames
    unit: str = "frames"
    end: float = 0.0
    signal: Tensor | None = None
    lattice: Tensor | None = None  # (T, 2L + 1), state probabilities of the text: see `ctc_occupancy`
    states: tuple[str, ...] = ()  # names of the 2L + 1 states

    @property
    def spans(self) -> list[tuple[str, float, float]]:
        """Each label of the alignment with its start and end."""
        each, found, frame = self.end / max(1, len(self.alignment)), [], 0
        for label, run in itertools.groupby(self.alignment):
            after = frame + len(list(run))
            if label != BLANK:
                found.append((self.labels[label], frame * each, after * each))
            frame = after
        return found

    @property
    def path(self) -> list[int]:
        """The lattice state of the alignment at each frame.

        >>> import torch
        >>> Frames(torch.zeros(5, 3), ["-", "a", "b"], [0, 1, 1, 2, 0]).path
        [0, 1, 1, 3, 4]
        """
        state, found, before = 0, [], BLANK
        for label in self.alignment:
            if label != before:
                state += 2 if BLANK not in (label, before) else 1
            found.append(state)
            before = label
        return found

    @property
    def spikes(self) -> list[tuple[int, str, float]]:
        """(frame, label, probability) of each label of the alignment, at the frame where it is likeliest.

        >>> import torch
        >>> Frames(torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), ["-", "a"], [0, 1, 1]).spikes
        [(2, 'a', 0.8...)]
        """
        found = []
        for label, run in itertools.groupby(range(len(self.alignment)), key=lambda t: self.alignment[t]):
            if label != BLANK:
                best = max(run, key=lambda t: float(self.posteriors[t, label]))
                found.append((best, self.labels[label], float(self.posteriors[best, label])))
        return found
