"""Recordings and pictures that requests bring: decoded in worker threads, within bounds."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import audio_facts
from unrolled.data.signals.pictures import decode_picture, unreadable
from unrolled.data.signals.views import View
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.inputs import Upload
from unrolled.serve.service.settings import ServeSettings

NOWHERE = Path("/dev/null/upload")  # never a file
MOST_CHANNELS, MOST_RATE = 16, 192_000


@dataclass(frozen=True)
class Uploaded(Medium):
    """A file in memory, as readers of recordings and pictures take it."""

    data: bytes = b""
    what: str = "The upload"

    def __str__(self) -> str:
        return self.what

    @property
    def name(self) -> str:
        return self.what

    @property
    def suffix(self) -> str:
        return ""

    def read(self) -> bytes:
        return self.data

    def size(self) -> int:
        return len(self.data)


def decoded(model: Model, one: Any, settings: ServeSettings) -> Any:
    """An input with its file decoded, if it brought one; an error where the file is larger than allowed."""
    if not isinstance(one, Upload):
        return one
    if model.task.name == "caption":
        check_picture(one.data, settings)
        return View(decode_picture(io.BytesIO(one.data), "The picture")[0])
    kind = getattr(getattr(model.assets, "reader", None), "kind", None) if model.task.name == "recognize" else None
    if kind == "audio":
        medium = Uploaded(NOWHERE, data=one.data, what="The recording")
        check_recording(medium, settings)
        return medium
    if kind == "line":
        check_picture(one.data, settings)
        return Uploaded(NOWHERE, data=one.data, what="The picture")
    if kind == "frames":
        return Uploaded(NOWHERE, data=one.data, what="The array")
    raise UserError(f"A model of {model.task.name} takes no file.", "Give a text, or what the documentation says.")


def check_recording(medium: Medium, settings: ServeSettings) -> None:
    """Refuse a recording by its header, before it is decoded."""
    facts = audio_facts(medium)
    if facts.channels > MOST_CHANNELS or facts.rate > MOST_RATE or facts.rate < 1:
        raise ServiceError(
            413,
            f"The recording has {facts.channels} channels at {facts.rate:,} Hz; the limits are {MOST_CHANNELS} and "
            f"{MOST_RATE:,}.",
            "recording_too_large",
            "inputs",
        )
    if facts.seconds > settings.max_seconds:
        raise ServiceError(
            413,
            f"The recording has {facts.seconds:,.1f} seconds; the limit is {settings.max_seconds:,.0f}. Cut it.",
            "recording_too_long",
            "inputs",
        )


def check_picture(data: bytes, settings: ServeSettings) -> None:
    """Refuse a picture by its header, before it is decoded."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
    except Image.DecompressionBombError:
        width = height = 1 << 20
    except Exception:  # Pillow's error depends on the format and the damage
        raise unreadable(data[:12], "The picture") from None
    if width * height > settings.max_pixels:
        raise ServiceError(
            413,
            f"The picture has {width:,} × {height:,} pixels; the limit is {settings.max_pixels:,} in all.",
            "picture_too_large",
            "inputs",
        )
