"""Inputs of recognition with their transcripts: a manifest of recordings or pictures, or frames in .npz files."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.arrays import read_ragged
from unrolled.data.readers.labelled import check_frames
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.tables.read_table import Row, read_table
from unrolled.errors import UserError

Frames = NDArray[np.float32] | NDArray[np.uint8]
"""(T, D), images (T, H, W) or (T, H, W, C); a grey line (H, W) as bytes."""


@dataclass(frozen=True)
class Transcribed:
    """A recording, a picture or frames, with its transcript and place."""

    input: Medium | Frames
    text: str
    place: str


def read_transcripts(
    path: str | Path, *, input_column: str | None = None, text_column: str | None = None
) -> list[Transcribed]:
    """The rows of a table (file, transcript), or the sequences of a .npz file with `frames`, `texts` and `lengths`.

    Paths are relative to the table's folder; `lines.zip/1.png` is a member of an archive.
    """
    path = Path(path)
    if path.suffix == ".npz":
        arrays = read_ragged(path, ["frames", "texts"])
        result = []
        for number, (frames, text) in enumerate(zip(arrays["frames"], arrays["texts"], strict=True), 1):
            place = f"{path}: sequence {number}"
            result.append(Transcribed(check_frames(frames, place), tidy(str(np.ravel(text)[0])), place))
        if not result:
            raise UserError(f"{path} holds no example.", "Give a file with at least one sequence.")
        return result
    rows = read_table(path, [input_column, text_column], ["file", "transcript"], also=[".npz"])
    return [_transcribed(row, path.parent) for row in rows]


def tidy(text: str) -> str:
    """Normalise a transcript: one blank between words, none at the ends, composed accents (NFC).

    >>> tidy(" two  words ")
    'two words'
    """
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _transcribed(row: Row, folder: Path) -> Transcribed:
    name, text = row.values
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"{row.place} names no file.", "Expected the path of a recording or picture.")
    if not isinstance(text, str):
        raise UserError(f"{row.place}: the transcript is {type(text).__name__}.", "Expected a string.")
    return Transcribed(Medium.named(name.strip(), folder, row.place), tidy(text), row.place)
