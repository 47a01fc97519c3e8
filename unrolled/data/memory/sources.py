"""Data in memory as readers take it: rows of named values, arrays, or texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.arrays import as_array, is_array
from unrolled.errors import UserError

ANSWERS = ("label", "number", "tag", "tags", "labels", "target", "transcript", "captions")
"""Roles of what a model answers: the second of a pair."""


@dataclass(frozen=True)
class HeldRows:
    """Rows of values: a table with names of columns, or pairs without."""

    title: str  # in messages: "DataFrame with 9 rows"
    names: tuple[str, ...]
    count: int
    get: Callable[[int], list[Any]]  # the values of a column
    named: bool = True  # False: pairs, whose columns are known by their order
    records_of: Sequence[Mapping[str, Any]] | None = None  # of a list of dictionaries, which may differ in their keys

    def place(self, row: int) -> str:
        """The place of a row, counted from 0, for messages."""
        return f"{self.title}, row {row}"

    def column(self, name: str) -> list[Any]:
        return self.get(self.names.index(name))

    def records(self, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The rows with these columns, and their places; a missing value is None."""
        if self.records_of is not None:
            for row, record in enumerate(self.records_of):
                yield self.place(row), {name: _present(value) for name, value in record.items()}
            return
        for row, values in enumerate(zip(*map(self.column, columns), strict=True)):
            yield self.place(row), dict(zip(columns, map(_present, values), strict=True))

    def as_roles(self, roles: Sequence[str]) -> HeldRows:
        """Pairs with the names of their roles: the input first, then what a model answers. Tables as they are."""
        if self.named:
            return self
        order = sorted(roles, key=lambda role: role in ANSWERS)
        if len(order) != len(self.names):
            raise UserError(
                f"{self.title} has {len(self.names)} values in each row.", f"Expected ({', '.join(order)}) in each."
            )
        return replace(self, names=tuple(order), named=True)

    def first(self, column: int) -> Any:
        """The first value of a column that is not missing."""
        return next((value for value in self.get(column) if _present(value) is not None), None)

    @property
    def digest(self) -> str:
        columns = [_column_digest(self.get(at)) for at in range(len(self.names))]
        return _digest([*self.names, *columns])

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class HeldArrays:
    """Arrays by name, as a .npz file has them; or, without a name, an array for each sequence."""

    title: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    sequences: Sequence[NDArray[Any]] = ()

    @property
    def digest(self) -> str:
        return _digest([[name, array] for name, array in self.arrays.items()] + list(self.sequences))

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class HeldTexts:
    """Texts one after another, each with a line end: in memory, or, where they are large, in a temporary file."""

    title: str
    digest: str
    text: str = ""
    path: Path | None = None

    @property
    def whole(self) -> str:
        """All of the text, also where it is in a file."""
        return self.text if self.path is None else self.path.read_text(encoding="utf-8")

    def close(self) -> None:
        """Remove the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


Source = HeldRows | HeldArrays | HeldTexts


def is_missing(value: Any) -> bool:
    """True for None and NaN."""
    return value is None or (isinstance(value, float) and value != value)


def _present(value: Any) -> Any:
    return None if is_missing(value) else value


def _column_digest(values: list[Any]) -> str:
    """`_digest` of a column; one of texts alone, or of floats, is hashed at once."""
    kinds = set(map(type, values))
    if kinds == {str}:
        lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        raw = "".join(values).encode("utf-8", "surrogatepass")
        return hashlib.sha256(b"texts" + lengths.tobytes() + raw).hexdigest()
    if kinds == {float}:
        numbers = np.array(values)
        return hashlib.sha256(b"numbers" + np.where(np.isnan(numbers), np.nan, numbers).tobytes()).hexdigest()
    return _digest(values)


def _digest(value: Any) -> str:
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """A value as bytes: equal for equal values, whatever holds them."""
    if isinstance(value, str):
        yield b"s" + value.encode("utf-8", "surrogatepass")
    elif is_missing(value):
        yield b"n"
    elif isinstance(value, (list, tuple)):
        yield b"l%d" % len(value)
        for one in value:
            yield from _parts(one)
    elif isinstance(value, Mapping):
        yield b"m%d" % len(value)
        for key, one in value.items():
            yield from _parts(str(key))
            yield from _parts(one)
    elif is_array(value):
        value = as_array(value, "A value")
        yield f"a{value.dtype.str}{value.shape}".encode()
        if value.dtype.kind == "O":
            yield from _parts(value.tolist())
        else:
            yield np.ascontiguousarray(value).tobytes()
    elif hasattr(value, "tobytes") and hasattr(value, "size"):  # a picture of PIL
        yield f"p{getattr(value, 'mode', '')}{value.size}".encode()
        yield value.tobytes()
    else:
        yield b"o" + repr(value).encode("utf-8", "surrogatepass")
