"""Inputs of requests: their JSON forms, and what `model.predict` takes for each."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from unrolled.errors import UserError
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.settings import ServeSettings

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class FramesBody(BaseModel):
    """Frames: numbers for each step."""

    model_config = STRICT
    frames: list[Any] = Field(description="Nested lists of numbers, (steps, …).")


class WordsBody(BaseModel):
    """The words of a sentence."""

    model_config = STRICT
    words: list[str]


class ColumnsBody(BaseModel):
    """A sentence whose words have other columns beside them."""

    model_config = STRICT
    columns: dict[str, list[str]]


class RowsBody(BaseModel):
    """The rows of a series, the oldest first."""

    model_config = STRICT
    rows: list[list[float | str | None]]


class AudioBody(BaseModel):
    """A recording."""

    model_config = STRICT
    audio: str = Field(description="A wav, flac, ogg or mp3 file in base64.")


class PictureBody(BaseModel):
    """A picture."""

    model_config = STRICT
    image: str = Field(description="A png, jpeg or other picture file in base64.")


def listed(given: Any) -> list[Any]:
    """The inputs of a request, one or many, as a list."""
    return given if isinstance(given, list) else [given]


def check_count(inputs: Sequence[Any], settings: ServeSettings) -> None:
    if not inputs:
        raise ServiceError(400, "There is no input. Give at least one.", "no_input", "inputs")
    if len(inputs) > settings.max_inputs:
        raise ServiceError(
            413,
            f"There are {len(inputs):,} inputs; the limit is {settings.max_inputs:,}. Send several requests.",
            "too_many_inputs",
            "inputs",
        )


def check_text(text: str, settings: ServeSettings, param: str = "inputs") -> str:
    if len(text) > settings.max_chars:
        raise ServiceError(
            413,
            f"An input has {len(text):,} characters; the limit is {settings.max_chars:,}.",
            "too_long",
            param,
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ServiceError(400, "A text holds half of a surrogate pair.", "invalid_text", param) from None
    return text


def native(one: Any, settings: ServeSettings) -> Any:
    """An input as `model.predict` takes it. Files are decoded in a worker thread: see `decoded`."""
    if isinstance(one, str):
        return check_text(one, settings)
    if isinstance(one, WordsBody):
        check_text(" ".join(one.words), settings)
        return one.words
    if isinstance(one, ColumnsBody):
        check_text(" ".join(" ".join(column) for column in one.columns.values()), settings)
        return one.columns
    if isinstance(one, FramesBody):
        return array(one.frames, settings)
    if isinstance(one, RowsBody):
        check_steps(len(one.rows), settings)
        return rows(one.rows)
    if isinstance(one, AudioBody):
        return Upload(from_base64(one.audio, "audio"))
    if isinstance(one, PictureBody):
        return Upload(from_base64(one.image, "image"))
    raise ServiceError(400, f"An input is {type(one).__name__}.", "invalid_value", "inputs")


def array(frames: list[Any], settings: ServeSettings) -> Any:
    check_steps(len(frames), settings)
    try:
        found = np.asarray(frames, dtype=np.float32)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise UserError("frames are not numbers, or its lists differ in length.", "Give (steps, …) numbers.") from None
    if not np.isfinite(found).all():
        raise UserError("frames hold numbers that are not finite.", "Give finite ones.")
    return found


def rows(given: list[list[float | str | None]]) -> Any:
    """Rows of numbers as an array; with categories as they are."""
    if any(isinstance(cell, str) for row in given for cell in row):
        return [list(row) for row in given]
    try:
        found = np.array([[np.nan if cell is None else cell for cell in row] for row in given], dtype=np.float64)
    except ValueError:
        raise UserError("The rows differ in length.", "Give each the same columns.") from None
    if found.ndim != 2:
        raise UserError("There are no rows, or they are empty.", "Give at least one number.")
    return found


def check_steps(steps: int, settings: ServeSettings) -> None:
    if steps > settings.max_chars:
        raise ServiceError(
            413, f"An input has {steps:,} steps; the limit is {settings.max_chars:,}.", "too_long", "inputs"
        )


def from_base64(text: str, what: str) -> bytes:
    """The bytes of a base64 text, or of a data: URL."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ServiceError(400, f"{what} is not base64.", "invalid_base64", "inputs") from None


class Upload:
    """The bytes of a file that a request brought; decoded in a worker thread, within bounds."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        """Comparable with characters: a second of 16-bit speech at 16 kHz is 500."""
        return len(self.data) // 64


def size_of(one: Any, options: Mapping[str, Any]) -> float:
    """The rough cost of an input: its length, times the hypotheses of a search, or the tokens to write."""
    length = len(one) if hasattr(one, "__len__") else 1
    written = options.get("max_tokens") or options.get("steps") or 0
    return (8 + length + written) * (options.get("beam") or 1)
