"""Sequences with labels: texts in a table, or frames in .npz files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.arrays import as_array, is_array
from unrolled.data.memory.held import held, shown
from unrolled.data.memory.sources import HeldArrays, HeldTexts
from unrolled.data.readers.arrays import read_ragged
from unrolled.data.readers.tables.read_table import SUFFIXES, Row, read_table
from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError, note
from unrolled.text.files import as_text, opened, suffix_of
from unrolled.text.globs import files_of, is_several

FASTTEXT = "__label__"
LOOKED_AT = 4096  # bytes that decide whether a file has fastText's format
NO_LINES = (".npz", ".csv", ".jsonl", ".json", ".parquet")  # suffixes that fastText does not have
_FASTTEXT = re.compile(rf"(?:^|(?<=\s)){FASTTEXT}(\S+)")

Sequence = str | NDArray[np.float32]
"""A text, or frames (T, D) or images (T, H, W) or (T, H, W, C)."""


@dataclass(frozen=True)
class Labelled:
    """A sequence, its labels, and its place in the file."""

    input: Sequence
    labels: tuple[str, ...]
    place: str


def read_labelled(
    path: str | Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    separator: str | None = None,
    numbers: bool = False,
) -> list[Labelled]:
    """The examples of a table (label, text), of lines with fastText's `__label__x`, or of a .npz file with `frames`,
    `labels` and perhaps `lengths`.

    With a `separator` an example has any number of labels, otherwise one. `numbers`: a column `score` may hold the
    labels too. A path may mean several files; data in memory has rows (text or frames, label), or the arrays of a .npz
    file.
    """
    if is_several(path):
        how: dict[str, Any] = {"text_column": text_column, "label_column": label_column}
        parts = (
            read_labelled(file, **how, separator=separator, numbers=numbers)
            for file in files_of(path, (*SUFFIXES, ".npz"))
        )
        return [example for part in parts for example in part]
    if Path(path).suffix == ".npz" or isinstance(held(path), HeldArrays):
        return _read_frames(Path(path), separator)
    if is_fasttext(path):
        return _read_fasttext(Path(path), several=separator is not None)
    rows = read_table(path, [label_column, text_column], ["number" if numbers else "label", "text"], also=[".npz"])
    return [_labelled(row, separator) for row in rows]


def is_fasttext(path: str | Path) -> bool:
    """True if the first line of a text file begins with a label of fastText."""
    path = Path(path)
    if (given := held(path)) is not None:
        return isinstance(given, HeldTexts) and given.whole.lstrip().startswith(FASTTEXT)
    suffix = suffix_of(path)
    if suffix in NO_LINES or not path.is_file():
        return False
    with opened(path, "UTF-8 text file") as file:
        start = file.read(LOOKED_AT)
    return as_text(start).lstrip().startswith(FASTTEXT)


def without_labels(line: str) -> str:
    """A line in fastText's format without its labels.

    >>> without_labels("__label__good __label__short a fine film")
    'a fine film'
    """
    return _FASTTEXT.sub(" ", line).strip()


def _read_fasttext(path: Path, *, several: bool) -> list[Labelled]:
    result, lines = [], read_lines(path)
    path = shown(path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place, labels = f"{path}:{number}", tuple(dict.fromkeys(_FASTTEXT.findall(line)))
        if not several and len(labels) != 1:
            many = f"{len(labels)} labels" if labels else f"no {FASTTEXT}…"
            fix = "Give one, or use data.multi_label=true." if labels else "Give one, or leave the line out."
            raise UserError(f"{place} has {many}: {line[:60]!r}.", fix)
        result.append(Labelled(without_labels(line), labels, place))
    note(f"{path} is in fastText's format: words that begin with {FASTTEXT} are labels.")
    return result


def read_frames(path: str | Path) -> list[NDArray[np.float32]]:
    """The sequences of a .npz file, without labels."""
    frames = read_ragged(path, ["frames"])["frames"]
    return [check_frames(one, f"{shown(path)}: sequence {number}") for number, one in enumerate(frames, 1)]


def check_frames(frames: NDArray[Any], place: str) -> NDArray[np.float32]:
    """Frames (T, D) or images as finite numbers."""
    frames = np.asarray(frames)
    if frames.dtype.kind not in "fiub":
        raise UserError(f"{place} holds {frames.dtype}.", "Expected numbers.")
    frames = frames.astype(np.float32)
    if not 2 <= frames.ndim <= 4:
        raise UserError(
            f"{place} has shape {frames.shape}.", "Expected (steps, features), (steps, height, width) or with colours."
        )
    if not np.isfinite(frames).all():
        step, *where = (int(i) for i in np.argwhere(~np.isfinite(frames))[0])
        raise UserError(f"{place} holds {frames[(step, *where)]} at step {step}, position {where}.", "Replace it.")
    return frames


def _read_frames(path: Path, separator: str | None) -> list[Labelled]:
    arrays, result = read_ragged(path, ["frames", "labels"]), []
    path = shown(path)
    for number, (frames, label) in enumerate(zip(arrays["frames"], arrays["labels"], strict=True), 1):
        place = f"{path}: sequence {number}"
        if np.size(label) != 1:
            raise UserError(
                f"{place} has {np.size(label)} labels.",
                "Expected `labels` to have one for each sequence: a name, or a number.",
            )
        text = str(np.ravel(label)[0])
        result.append(Labelled(check_frames(frames, place), _labels(text, separator, place), place))
    if not result:
        raise UserError(f"{path} holds no example.", "Give a file with at least one sequence.")
    return result


def _labelled(row: Row, separator: str | None) -> Labelled:
    label, text = row.values
    if is_array(text) or (isinstance(text, list) and text and not isinstance(text[0], str)):
        text = check_frames(as_array(text, row.place) if is_array(text) else text, row.place)
    elif text is None:
        raise UserError(f"{row.place} has no text.", "Give one, or leave the row out.")
    elif not isinstance(text, str):
        raise UserError(f"{row.place}: the text is {type(text).__name__}.", "Expected a string.")
    return Labelled(text, _labels(label, separator, row.place), row.place)


def _labels(value: Any, separator: str | None, place: str) -> tuple[str, ...]:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    elif isinstance(value, (tuple, set, frozenset)):
        value = sorted(value) if isinstance(value, (set, frozenset)) else list(value)
    if separator is not None:
        parts = value if isinstance(value, list) else str("" if value is None else value).split(separator)
        return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))
    if isinstance(value, list):
        raise UserError(f"{place} has a list of labels.", "Expected one, or data.multi_label=true.")
    if not isinstance(value, (str, int, float, type(None))):
        raise UserError(f"{place} has a label that is {type(value).__name__}.", "Expected a text or a number.")
    label = "" if value is None else str(value).strip()
    if not label:
        raise UserError(f"{place} has no label.", "Give one, or leave the row out.")
    return (label,)
