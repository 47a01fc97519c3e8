"""Writing files of word vectors: word2vec's text, NumPy's .npz."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np

from unrolled.errors import UserError
from unrolled.text.files import new_file
from unrolled.text.vector_files import Floats, is_number


def write_npz(path: Path, words: Sequence[str], matrix: Floats) -> None:
    with new_file(path) as beside, beside.open("wb") as file:
        np.savez(file, vectors=matrix, words=np.array(words, dtype=str))


def write_text(path: Path, words: Sequence[str], matrix: Floats) -> None:
    """word2vec's text: a line WORDS WIDTH, then a word and its numbers on each line."""
    for word in words:
        if not _fits_a_line(word):
            raise UserError(f"The word {word!r} cannot be written as a line of text.", "Write an .npz file.")
    with new_file(path) as beside, _created(beside, packed=path.suffix == ".gz") as file:
        file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for start in range(0, len(words), 5000):
            rows = zip(words[start : start + 5000], _lines_of(matrix[start : start + 5000]), strict=True)
            file.write(b"".join(b"%s %s\n" % (word.encode(), line) for word, line in rows))


def _lines_of(matrix: Floats) -> list[bytes]:
    """Rows as text; each number has the fewest digits that restore its float32."""
    import pyarrow
    from pyarrow import csv

    table = pyarrow.table(list(matrix.T), names=[str(column) for column in range(matrix.shape[1])])
    text = io.BytesIO()
    csv.write_csv(table, text, csv.WriteOptions(include_header=False, delimiter=" "))
    return text.getvalue().splitlines()


def _fits_a_line(word: str) -> bool:
    """True if a line that begins with the word is read back as that word."""
    first, *more = word.split(" ")
    return not any(sign in word for sign in "\n\t") and (
        all(more) and not is_number(more[-1].encode()) if more else bool(first)
    )


def _created(path: Path, *, packed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "wb", compresslevel=6)) if packed else path.open("wb")
