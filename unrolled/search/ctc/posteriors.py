"""Posteriors as the searches want them: (T, V) log-probabilities, float32 on the CPU."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, unknown_name
from unrolled.search.arrays import arrays_of

Frames = NDArray[np.float32]
Kind = Literal["log_probs", "probs", "logits"]
KINDS = ("log_probs", "probs", "logits")
IMPOSSIBLE = -1e30  # what some write for the logarithm of 0
TRANSPOSE = "Expected (frames, labels): take its transpose, array.T."
OFF = 0.05  # how far from 1 a row of rounded probabilities may add up to


def as_log_probs(
    posteriors: Any, kind: str = "log_probs", labels: int | None = None, name: str = "posteriors"
) -> Frames:
    """The log-probabilities (T, V) of a tensor, an array or lists; whatever is none is refused with what it looks like.

    >>> as_log_probs([[0.5, 0.5]], kind="probs")
    array([[-0.6931472, -0.6931472]], dtype=float32)
    """
    if kind not in KINDS:
        raise unknown_name("kind of posteriors", kind, KINDS)
    given = posteriors.detach().cpu() if hasattr(posteriors, "detach") else np.asarray(posteriors)
    arrays = arrays_of(given)
    given = arrays.float(given)
    frames: Frames = arrays.host(given)
    if frames.ndim != 2:
        raise UserError(f"{name} must be (frames, labels), got shape {tuple(frames.shape)}.")
    if labels is not None and frames.shape[1] != labels:
        if frames.shape[0] == labels:
            raise UserError(
                f"{name} has shape {tuple(frames.shape)}, and there are {labels} labels: it looks transposed.",
                TRANSPOSE,
            )
        raise UserError(
            f"{name} has {frames.shape[1]} columns, but there are {labels} labels.",
            "Name one label for each column, the blank included.",
        )
    if not bool((frames < np.inf).all()):
        frame, label = np.argwhere(~(frames < np.inf))[0].tolist()
        raise UserError(f"{name}[{frame}, {label}] is {frames[frame, label]}.", "Posteriors must be numbers.")
    if kind == "probs":
        if bool((frames < 0).any()) or _far(frames.sum(1), 1.0):
            raise UserError(
                f"The rows of {name} are not probabilities: {_looks(frames)}.",
                f"Say what they are: {_say('logits', 'log_probs')}.",
            )
        with np.errstate(divide="ignore"):
            logs: Frames = np.log(frames)
        return logs
    if kind == "logits":
        normalised: Frames = arrays.host(arrays.log_softmax(given))
        return normalised
    if _far(np.exp(frames).sum(1), 1.0):
        if len(frames) > 1 and not _far(np.exp(frames).sum(0), 1.0):
            raise UserError(
                f"The exponentials of each column of {name} add up to 1, not those of each row: it looks transposed.",
                TRANSPOSE,
            )
        raise UserError(
            f"{name} are not log-probabilities: {_looks(frames)}.",
            f"Take log_softmax of logits and the logarithm of probabilities, or say {_say('logits', 'probs')}.",
        )
    least = np.float32(IMPOSSIBLE)
    return np.ascontiguousarray(np.where(frames < least, np.float32(-np.inf), frames))


def _far(values: Frames, wanted: float) -> bool:
    return bool((np.abs(values - wanted) > OFF).any())


def _say(*kinds: str) -> str:
    """As it is written in Python and typed in a command."""
    return " or ".join(f"kind={kind!r} (--kind {kind})" for kind in kinds)


def _looks(frames: Frames) -> str:
    if bool((frames >= 0).all()) and not _far(frames.sum(1), 1.0):
        return "they look like probabilities, each row adds up to 1"
    sums = np.exp(frames).sum(1)
    if not _far(sums, 1.0):
        return "they look like log-probabilities, the exponentials of each row add up to 1"
    row = int(np.abs(sums - 1).argmax())
    return f"the exponentials of row {row} add up to {float(sums[row]):.3g}, so they look like logits"
