"""The blank label: found by its name, or checked against the posteriors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, note

# Names of blanks, the plainest first. The blank of Hugging Face's models is their padding token.
NAMES = (
    ("<blank>", "[blank]", "blank", "<blk>", "[blk]", "<ctc>", "<ctc_blank>", "<eps>", "<epsilon>", "ε", "ϵ", "∅"),
    ("<pad>", "[pad]", "pad"),
    ("_",),
)
FIRST_ONLY = ("-", "~")  # as the first label a blank, elsewhere a sign of the text
NO_BLANK = "none"  # given in place of a label
FIX = "Say which label is the blank, by its name or its column from 0 on: blank (--blank)."


def find_blank(labels: Sequence[str]) -> int | None:
    """The column of the label that is named as a blank; None where no name says so.

    >>> find_blank(["a", "b", "[PAD]"]), find_blank(["-", "a"]), find_blank(["a", "-"])
    (2, 0, None)
    """
    for names in NAMES:
        found = [column for column, label in enumerate(labels) if label.strip().lower() in names]
        if len(found) > 1:
            shown = ", ".join(repr(labels[column]) for column in found)
            raise UserError(f"Several labels may be the blank: {shown}.", FIX)
        if found:
            return found[0]
    return 0 if labels and labels[0] in FIRST_ONLY else None


def chosen_blank(
    labels: Sequence[str], posteriors: Iterable[NDArray[np.float32]] | None = None, *, always_say: bool = False
) -> int:
    """The blank's column; it is said where it is not the first label by name, or always.

    Where no label has the name of a blank, the first one is taken, as long as the posteriors agree: the blank is the
    likeliest label of more frames than any other.
    """
    if not labels:
        raise UserError("There are no labels.", "Give one for each column, the blank among them.")
    column = find_blank(labels)
    if column is not None:
        if column or always_say:
            note(f"The blank is the label {labels[column]!r}, column {column}. Say another with blank (--blank).")
        return column
    commonest = None if posteriors is None else _commonest(posteriors, len(labels))
    if commonest not in (None, 0):
        raise UserError(
            f"No label is named as a blank, and the first one, {labels[0]!r}, does not look like one: "
            f"{labels[commonest]!r}, column {commonest}, is the likeliest label of most frames.",
            FIX,
        )
    note(f"No label is named as a blank: the first one, {labels[0]!r}, is taken. Say which it is with blank (--blank).")
    return 0


def _commonest(posteriors: Iterable[NDArray[np.float32]], labels: int) -> int | None:
    """The label that is the likeliest one of the most frames; of equals the first, None without frames."""
    counts = np.zeros(labels, dtype=np.int64)
    for frames in posteriors:
        if frames.ndim == 2 and frames.shape[1] == labels and len(frames):
            counts += np.bincount(frames.argmax(1), minlength=labels)
    return int(counts.argmax()) if int(counts.sum()) else None


def blank_column(labels: Sequence[str], given: str) -> int:
    """The column that a name means, or, where no label has it, a number from 0 on."""
    if given in labels:
        return list(labels).index(given)
    if given.isdecimal() and int(given) < len(labels):
        return int(given)
    raise UserError(
        f"The blank {given!r} is none of the {len(labels)} labels.",
        f"Give a label or its column, 0 to {len(labels) - 1}. Labels: {' '.join(labels)}",
    )
