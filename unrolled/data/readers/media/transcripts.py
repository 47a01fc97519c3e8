"""Inputs of recognition with their transcripts: a manifest of recordings or pictures, or frames in .npz files."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.held import held, shown
from unrolled.data.memory.media import medium_of
from unrolled.data.memory.sources import HeldArrays
from unrolled.data.readers.arrays import read_ragged
from unrolled.data.readers.labelled import check_frames
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.tables.read_table import SUFFIXES, Row, read_table
from unrolled.errors import UserError
from unrolled.text.globs import files_of, is_several

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

    Paths are relative to the table's folder; `lines.zip/1.png` is a member of an archive. In memory an input may be a
    path, (samples, rate), a picture or an array.
    """
    path = Path(path)
    if is_several(path):
        columns = {"input_column": input_column, "text_column": text_column}
        files = files_of(path, (*SUFFIXES, ".npz"))
        return [example for file in files for example in read_transcripts(file, **columns)]
    if path.suffix == ".npz" or isinstance(held(path), HeldArrays):
        arrays = read_ragged(path, ["frames", "texts"])
        path = shown(path)
        result = []
        for number, (frames, text) in enumerate(zip(arrays["frames"], arrays["texts"], strict=True), 1):
            place = f"{path}: sequence {number}"
            result.append(Transcribed(check_frames(frames, place), tidy(str(np.ravel(text)[0])), place))
        if not result:
            raise UserError(f"{path} holds no example.", "Give a file with at least one sequence.")
        return result
    rows = read_table(path, [input_column, text_column], ["file", "transcript"], also=[".npz"])
    folder = path.parent if held(path) is None else None
    return [_transcribed(row, folder) for row in rows]


def tidy(text: str) -> str:
    """Normalise a transcript: one blank between words, none at the ends, composed accents (NFC).

    >>> tidy(" two  words ")
    'two words'
    """
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _transcribed(row: Row, folder: Path | None) -> Transcribed:
    given, text = row.values
    medium = medium_of(given, folder, row.place)
    if not isinstance(text, str):
        what = "has no transcript" if text is None else f": the transcript is {type(text).__name__}"
        raise UserError(f"{row.place}{what if what[0] == ':' else f' {what}'}.", "Expected a string.")
    if isinstance(medium, np.ndarray):
        grey = medium.dtype == np.uint8 and medium.ndim == 2
        medium = medium if grey else check_frames(medium, row.place)
    return Transcribed(medium, tidy(text), row.place)
