"""Ragged sequences of numbers in .npz files: arrays end to end, and the length of each sequence."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.held import arrays_of, shown
from unrolled.errors import UserError
from unrolled.text.array_files import ArrayError, PickledError, names_of_npz, read_npz
from unrolled.text.files import reading


def read_ragged(path: str | Path, names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, list[NDArray[Any]]]:
    """The named arrays of a .npz file, each as a list with one entry per sequence.

    With an array `lengths` (N,), an array of sum(lengths) rows holds the N sequences end to end, and one of N rows has
    one entry for each. Without it every array has N rows, (N, T, …) or (N,): all sequences are equally long. Arrays of
    Python objects are an error: they would need unpickling.
    """
    path, given = Path(path), arrays_of(path)
    if given is not None and given.sequences:
        if names[1:]:
            parts = ", ".join(f"{name!r}: …" for name in names)
            raise UserError(
                f"{given.title} has {names[0]} and no {names[1]}.",
                f"Give a list of pairs ({', '.join(names)}), or a dictionary {{{parts}}}.",
            )
        return {names[0]: list(given.sequences)}
    arrays = read_arrays(path, [*names, *optional, "lengths"])
    for name in names:
        if name not in arrays:
            known = names_of_npz(path) if given is None else list(given.arrays)
            raise UserError(f"{shown(path)} has no array {name!r}.", f"It has: {', '.join(known[:20])}.")
    path = shown(path)
    lengths = arrays.pop("lengths", None)
    if lengths is None:
        sizes = {name: len(array) for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise UserError(f"{path}: arrays of different numbers of rows, {sizes}.", "Add an array `lengths`.")
        return {name: list(array) for name, array in arrays.items()}
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
        raise UserError(f"{path}: lengths has shape {lengths.shape} and type {lengths.dtype}.", "Expected counts (N,).")
    total, number = sum(lengths.tolist()), len(lengths)
    result = {}
    for name, array in arrays.items():
        if len(array) == total:
            result[name] = np.split(array, np.cumsum(lengths)[:-1])
        elif len(array) == number:
            result[name] = list(array)
        else:
            raise UserError(
                f"{path}: {name} has {len(array)} rows.",
                f"Expected {total}, the sum of lengths, or {number}, their number.",
            )
    return result


def read_arrays(path: Path, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The wanted arrays that a .npz file has, or a dictionary in memory."""
    given = arrays_of(path)
    arrays = _of_file(path, wanted) if given is None else {k: v for k, v in given.arrays.items() if k in wanted}
    for name, array in arrays.items():
        if array.ndim == 0:
            raise UserError(f"{shown(path)}: {name} is a single number.", "Expected an array with a row for each step.")
    return arrays


def _of_file(path: Path, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    with reading(path, "npz file"), path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise UserError(f"{path} is not an npz file.", "Make one with numpy.savez.")
    try:
        with reading(path, "npz file"):
            return read_npz(path, wanted)
    except PickledError:
        raise UserError(
            f"{path} holds Python objects, which are not read: they could run code.",
            "Store one array end to end, and an array `lengths`.",
        ) from None
    except ArrayError as error:
        raise UserError(f"{path} is not an npz file: {error}.", "Make one with numpy.savez.") from None
