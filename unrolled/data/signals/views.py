"""Inputs of a picture model: pixels, features of regions, or one vector, and their common shape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.arrays import read_arrays
from unrolled.errors import UserError

Kind = Literal["pixels", "regions", "vector"]
NAMES = ("pictures", "regions", "vectors", "names")


@dataclass(frozen=True)
class View:
    """One picture: pixels (H, W, 3) of 8 bits, or features of regions (h, w, D) or (S, D); and perhaps a vector (V,).

    >>> View(np.zeros((7, 7, 48))).shape
    Shape(kind='regions', sizes=(7, 7, 48), vector=0)
    """

    values: NDArray[Any] | None
    vector: NDArray[Any] | None = None

    @property
    def shape(self) -> Shape:
        vector = 0 if self.vector is None else len(self.vector)
        if self.values is None:
            return Shape("vector", (), vector)
        return Shape("pixels" if self.values.dtype == np.uint8 else "regions", self.values.shape, vector)


@dataclass(frozen=True)
class Shape:
    """The shape that all pictures of a model share."""

    kind: Kind
    sizes: tuple[int, ...]  # (H, W, 3) of pixels; (h, w, D) or (S, D) of regions
    vector: int = 0  # size of the additional vector

    def __str__(self) -> str:
        if self.kind == "pixels":
            return f"{self.sizes[0]}×{self.sizes[1]} pixels"
        grid = "×".join(map(str, self.sizes[:-1]))
        parts = [f"{grid} regions of {self.sizes[-1]} numbers"] if self.sizes else []
        return " and ".join(parts + ([f"a vector of {self.vector} numbers"] if self.vector else []))

    @property
    def regions(self) -> tuple[int, int] | None:
        """Rows and columns of the regions, if they form a grid."""
        return (self.sizes[0], self.sizes[1]) if self.kind == "regions" and len(self.sizes) == 3 else None


def check_view(view: View, place: str) -> View:
    """Check that all numbers are finite."""
    for name, part in (("regions", view.values), ("vector", view.vector)):
        if part is not None and part.dtype.kind == "f" and not np.isfinite(part).all():
            where = [int(i) for i in np.argwhere(~np.isfinite(part))[0]]
            raise UserError(f"{place}: {name} hold {part[tuple(where)]} at {where}.", "Replace it, or leave it out.")
    return view


def views_of_arrays(path: Path) -> tuple[list[View], list[str]]:
    """The rows of an npz file with `pictures`, or with `regions` and `vectors` or one of them; their names, if any."""
    arrays = read_arrays(path, NAMES)
    names = [str(name) for name in arrays.pop("names", np.array([])).tolist()]
    if not arrays:
        raise UserError(
            f"{path} has no array `pictures`, `regions` or `vectors`.", "Make one with numpy.savez(file, regions=…)."
        )
    if "pictures" in arrays and len(arrays) > 1:
        raise UserError(f"{path} has both pictures and features.", "Give one or the other.")
    counts = {name: len(array) for name, array in arrays.items()} | ({"names": len(names)} if names else {})
    if len(set(counts.values())) > 1:
        raise UserError(f"{path}: arrays of different numbers of rows, {counts}.", "Expected a row for each picture.")
    if "pictures" in arrays:
        return [View(one) for one in _colours(arrays["pictures"], path)], names
    for name, dimensions, meaning in (
        ("regions", (3, 4), "(N, rows, columns, D) or (N, regions, D)"),
        ("vectors", (2,), "(N, D)"),
    ):
        if name in arrays and (arrays[name].ndim not in dimensions or arrays[name].dtype.kind not in "fiu"):
            got = f"{path}: {name} has shape {arrays[name].shape} and type {arrays[name].dtype}"
            raise UserError(f"{got}.", f"Expected numbers {meaning}.")
    regions, vectors = arrays.get("regions"), arrays.get("vectors")
    if regions is not None and regions.dtype == np.uint8:
        regions = regions.astype(np.float32)  # uint8 means pixels
    some = regions if regions is not None else vectors
    assert some is not None
    return [
        View(None if regions is None else regions[row], None if vectors is None else vectors[row])
        for row in range(len(some))
    ], names


def _colours(pictures: NDArray[Any], path: Path) -> NDArray[np.uint8]:
    """(N, H, W) or (N, H, W, C) → (N, H, W, 3); the fourth channel is opacity on white."""
    expected = "Expected (N, height, width) or (N, height, width, 1, 3 or 4), of 8 bits: uint8."
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4):
        raise UserError(f"{path}: pictures has shape {pictures.shape} and type {pictures.dtype}.", expected)
    if pictures.ndim == 3:
        pictures = pictures[..., None]
    if pictures.shape[-1] == 1:
        return np.repeat(pictures, 3, axis=-1)
    if pictures.shape[-1] == 4:
        opaque = pictures[..., 3:].astype(np.float32) / 255
        return (pictures[..., :3] * opaque + 255 * (1 - opaque)).round().astype(np.uint8)
    if pictures.shape[-1] != 3:
        raise UserError(f"{path}: pictures has shape {pictures.shape}.", expected)
    return pictures
