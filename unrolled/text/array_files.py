"""Safe reading of .npy and .npz files.

Nothing is unpickled, and no more memory is allocated than the file has bytes for.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

PACKED = 1100  # the largest compression ratio of deflate
CHARACTERS = 0x110000


class ArrayError(ValueError):
    """The reason why an array file cannot be read; its text is part of a message."""


class PickledError(ArrayError):
    """An array of Python objects."""


def read_npz(path: Path, wanted: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file: all, or the wanted ones that it has. Other errors come from the disk."""
    with _archive(path) as archive:
        found = {}
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if wanted is None or name in wanted:
                found[name] = _member(archive, member, name)
        return found


def names_of_npz(path: Path) -> list[str]:
    with _archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_npy(file: IO[bytes], size: int) -> NDArray[Any]:
    """The array of an open .npy file of `size` bytes."""
    try:
        version = npy.read_magic(file)
        header: Callable[..., Any] | None = {
            (1, 0): npy.read_array_header_1_0,
            (2, 0): npy.read_array_header_2_0,
        }.get(version)
        if header is None:
            raise ArrayError(f"format {version[0]}.{version[1]} of .npy files is not read")
        shape, fortran, dtype = header(file)
    except ArrayError:
        raise
    except OSError:
        raise
    except Exception as error:  # numpy parses the header as Python, which fails in many ways
        raise ArrayError(f"its header cannot be read ({_short(error)})") from None
    if dtype.hasobject:
        raise PickledError("it holds Python objects")
    return _filled(file, shape, fortran, dtype, size - file.tell())


def _filled(file: IO[bytes], shape: Any, fortran: bool, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    if not dtype.itemsize or any(length < 0 for length in shape) or len(shape) > 32:
        raise ArrayError(f"its header declares shape {_short(shape)} and type {_short(dtype)}")
    expected = math.prod(shape) * dtype.itemsize
    if expected > size:
        raise ArrayError(f"its header declares {expected:,} bytes of numbers, and there are {max(0, size):,}")
    try:
        raw = bytearray(expected)
        if file.readinto(raw) != expected:  # type: ignore[attr-defined]
            raise ArrayError("it is cut off")
        array: NDArray[Any] = np.frombuffer(raw, dtype) if expected else np.empty(math.prod(shape), dtype)
        array = array.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError) as error:
        if isinstance(error, ArrayError):
            raise
        raise ArrayError(_short(error)) from None
    _check_text(array)
    own = np.dtype(np.float64) if dtype.kind == "f" and dtype.itemsize > 8 else dtype.newbyteorder("=")
    return array.astype(own, copy=False)  # native byte order, and only types that torch has


def _check_text(array: NDArray[Any]) -> None:
    """Check text: NumPy stores 32 bits per character, and not every number is a code point."""
    if array.dtype.kind != "U" or not array.size:
        return
    order = "<" if array.dtype.byteorder in "=|" and np.little_endian else array.dtype.byteorder
    codes = np.ascontiguousarray(array).reshape(-1).view(f"{'>' if order == '>' else '<'}u4")
    if ((codes >= CHARACTERS) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise ArrayError("it holds text with invalid code points")


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise ArrayError(_short(error)) from None


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    """One array. Declared sizes that are impossible are errors."""
    packed = member.compress_type == zipfile.ZIP_DEFLATED
    if not packed and member.compress_type != zipfile.ZIP_STORED:
        raise ArrayError(f"{_short(name)} uses a compression that numpy does not write")
    if member.file_size > member.compress_size * (PACKED if packed else 1) + PACKED:
        raise ArrayError(f"{_short(name)} declares more bytes than it can hold")
    try:
        with archive.open(member) as file:
            array = read_npy(file, member.file_size)
            file.read()  # up to the checksum
        return array
    except PickledError:
        raise
    except ArrayError as error:
        raise ArrayError(f"{_short(name)} is not an array: {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise ArrayError(f"{_short(name)} is damaged: {_short(error)}") from None


def _short(value: object) -> str:
    text = str(value).rstrip(".")
    return text if len(text) <= 100 else f"{text[:99]}…"
