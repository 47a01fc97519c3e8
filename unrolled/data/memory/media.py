"""Recordings and pictures in memory, as readers of files take them: samples with their rate, pictures, arrays."""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.arrays import as_array, is_array
from unrolled.data.readers.media.archives import Medium
from unrolled.errors import UserError

EXPECTED = "Expected a path, (samples, rate), {'array': samples, 'sampling_rate': rate}, a PIL image, or an array."


@dataclass(frozen=True)
class HeldMedium(Medium):
    """The bytes of a file that is in memory."""

    data: bytes = b""

    def read(self) -> bytes:
        return self.data

    def size(self) -> int:
        return len(self.data)

    def digest(self) -> bytes:
        return hashlib.sha256(self.data).digest()

    def stamp(self) -> tuple[int, int] | None:
        return len(self.data), 0


def medium_of(given: Any, folder: Path | None, place: str) -> Medium | NDArray[Any]:
    """The recording or picture that a value of a row means: a path, or content in memory; arrays as they are."""
    if isinstance(given, (str, Path)) and str(given).strip():
        return Medium.named(str(given).strip(), folder, place)
    if isinstance(given, Medium) or given is None or isinstance(given, str):
        if isinstance(given, Medium):
            return given
        raise UserError(f"{place} names no file.", "Expected the path of a recording or picture.")
    samples, rate = _sound(given)
    if samples is not None:
        return _held(_wav(as_array(samples, place), rate, place), ".wav", place)
    if is_picture(given):
        file = io.BytesIO()
        given.save(file, "png")
        return _held(file.getvalue(), ".png", place)
    if is_array(given):
        array = as_array(given, place)
        if array.ndim == 1:
            raise UserError(f"{place} is samples, which do not say how many are a second.", "Give (samples, rate).")
        return array
    raise UserError(f"{place}: the input is {type(given).__name__}.", EXPECTED)


def _held(data: bytes, suffix: str, place: str) -> HeldMedium:
    """A file in memory, whose name is a hash of its content: equal ones are known as one."""
    return HeldMedium(Path(f"{hashlib.sha256(data).hexdigest()[:16]}{suffix}"), place=place, data=data)


def is_picture(given: Any) -> bool:
    """True for a picture of PIL."""
    return hasattr(given, "convert") and hasattr(given, "mode") and hasattr(given, "save")


def _sound(given: Any) -> tuple[Any, Any]:
    """Samples and their rate, if the value is sound."""
    if isinstance(given, Mapping) and "array" in given and "sampling_rate" in given:
        return np.asarray(given["array"]), given["sampling_rate"]
    if isinstance(given, (tuple, list)) and len(given) == 2 and is_array(given[0]):
        return given[0], given[1]
    return None, None


def _wav(samples: NDArray[Any], rate: Any, place: str) -> bytes:
    """A wav file of one channel, of 32-bit floats."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float, np.number)) or not 100 <= rate <= 10_000_000:
        raise UserError(f"{place}: rate={rate!r} is not a number of samples a second.", "Use 8000, 16000 or the like.")
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise UserError(
            f"{place}: samples have shape {samples.shape} and type {samples.dtype}.",
            "Expected floats from −1 to 1, (N,): divide 16-bit integers by 32768, and average channels.",
        )
    if not np.isfinite(samples).all():
        raise UserError(f"{place} holds samples that are not finite.", "Expected numbers from −1 to 1.")
    raw, whole = samples.astype("<f4").tobytes(), round(float(rate))
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, whole, 4 * whole, 4, 32)
    body = b"WAVE" + head + struct.pack("<4sI", b"data", len(raw)) + raw
    return b"RIFF" + struct.pack("<I", len(body)) + body
