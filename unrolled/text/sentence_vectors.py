"""Vectors of sentences: written to files, and the nearest to one of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, unknown_name
from unrolled.text.files import new_file

SUFFIXES = (".npz", ".jsonl", ".csv")
Matrix = NDArray[np.float32]


def check_place(path: str | Path, force: bool) -> Path:
    """The path of a file of vectors; an error for an unknown kind, and for a file that exists unless `force`."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise unknown_name("kind of file", path.name, SUFFIXES)
    if path.exists() and not force:
        raise UserError(f"{path} exists.", "Choose another name, or overwrite it with --force.")
    return path


def write_vectors(path: Path, names: Sequence[str], matrix: Matrix, *, force: bool = False) -> None:
    """Write names and vectors (N, D): arrays `texts` and `vectors` (.npz), or a record for each (.jsonl, .csv)."""
    check_place(path, force)
    with new_file(path, force=force) as beside:
        if path.suffix == ".npz":
            with beside.open("wb") as file:
                np.savez(file, vectors=matrix, texts=np.array(names, dtype=str))
            return
        with beside.open("w", encoding="utf-8", newline="") as lines:
            (write_jsonl if path.suffix == ".jsonl" else write_csv)(lines, names, matrix)


def write_jsonl(file: IO[str], names: Sequence[str], matrix: Matrix) -> None:
    """{"text": …, "vector": […]} on each line; numbers restore the same float32."""
    for name, row in zip(names, matrix, strict=True):
        record = {"text": name, "vector": numbers(row)}
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_csv(file: IO[str], names: Sequence[str], matrix: Matrix) -> None:
    """A header text, 0, 1, …, then a row for each."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["text", *range(matrix.shape[1])])
    table.writerows([name, *numbers(row)] for name, row in zip(names, matrix, strict=True))


def numbers(row: Matrix) -> list[float]:
    """Numbers with the fewest digits that restore their float32."""
    return [float(str(value)) for value in row]


def nearest_rows(matrix: Matrix, query: Matrix, count: int) -> list[tuple[int, float]]:
    """The rows of (N, D) nearest to a query (D,) by the cosine, the nearest first; a vector of zeros has cosine 0.

    >>> table = np.array([[1, 0], [0, 2], [3, 3]], dtype=np.float32)
    >>> [(row, round(cosine, 2)) for row, cosine in nearest_rows(table, np.array([0, 1], dtype=np.float32), 2)]
    [(1, 1.0), (2, 0.71)]
    """
    if not np.any(query):
        raise UserError("The vector of this sentence is zero: it has no direction.", "Ask for another one.")
    wide: NDArray[Any] = matrix.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1)
    direction = query.astype(np.float64) / np.linalg.norm(query.astype(np.float64))
    cosines = wide @ direction / np.where(norms == 0, 1, norms)
    order = np.argsort(-cosines, kind="stable")[:count]
    return [(int(row), float(cosines[row])) for row in order]
