"""Wav headers, and recordings from a pipe: a wav file of unknown length, or raw samples."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, note

Samples = NDArray[np.float32]
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
ENDLESS = 0x7FFF_0000  # bytes: programs that write to a pipe declare about 2 or 4 GiB
OTHERS = (b"fLaC", b"OggS", b"ID3", b"FORM", b"\xff\xfb", b"\xff\xf3", b".snd", b"caff")  # soundfile reads them
MOST_HEADER = 1 << 20  # bytes before the samples
AT_ONCE = 1 << 16  # bytes per read: a read returns what has arrived
FIX = "Expected a wav file, or raw 16-bit samples (S16_LE, one channel) and their rate: --rate 16000."


class WavHeader(NamedTuple):
    """The header of a wav file."""

    rate: int
    channels: int
    type: str  # numpy type of a sample; "" if it is not a plain number
    block: int  # bytes of a sample of all channels
    bytes_per_second: int
    declared: int | None  # bytes of samples; None if the writer did not know
    before: int  # bytes of the header itself


def read_wav_header(file: IO[bytes]) -> WavHeader | None:
    """The header of a wav file, read up to its samples; None if it is missing or truncated."""
    head = _exactly(file, 12)
    if head[:4] not in (b"RIFF", b"RF64") or head[8:12] != b"WAVE":
        return None
    done, about = 12, None
    while done < MOST_HEADER:
        head = _exactly(file, 8)
        if len(head) < 8:
            return None
        name, size = head[:4], struct.unpack("<I", head[4:])[0]
        done += 8
        if name == b"data":
            unknown = size == 0 or size >= ENDLESS
            return None if about is None else about._replace(declared=None if unknown else size, before=done)
        size += size % 2
        if size > MOST_HEADER:
            return None
        body = _exactly(file, size)
        if len(body) < size:
            return None
        done += size
        if name == b"fmt ":
            about = _format(body)
    return None


def _format(body: bytes) -> WavHeader | None:
    if len(body) < 16:
        return None
    tag, channels, rate, per_second, block, bits = struct.unpack("<HHIIHH", body[:16])
    if tag == EXTENSIBLE and len(body) >= 26:
        tag = struct.unpack("<H", body[24:26])[0]
    if not channels or not rate or not block:
        return None
    types = {
        (PCM, 8): "u1",
        (PCM, 16): "<i2",
        (PCM, 24): "i3",
        (PCM, 32): "<i4",
        (FLOAT, 32): "<f4",
        (FLOAT, 64): "<f8",
    }
    kind = types.get((tag, bits), "")
    if kind and block != channels * bits // 8:
        return None
    return WavHeader(rate, channels, kind, block, per_second or rate * block, None, 0)


def missing_seconds(file: IO[bytes]) -> float:
    """Seconds of sound that a wav file declares but does not contain."""
    header = read_wav_header(file)
    if header is None or header.declared is None:
        return 0.0
    present = file.seek(0, io.SEEK_END) - header.before
    return max(0, header.declared - present) / header.bytes_per_second


def cut_short(name: object, rate: int, present: float, missing: float) -> str:
    """The warning for a recording that lacks `missing` of its declared seconds.

    >>> cut_short("a.wav", 8000, 0.4, 0.4)
    'a.wav ends early: it declares 0.80 seconds, and has 0.40. These are read.'
    """
    declared = f"{present + missing:.2f}"
    if not present:
        return f"{name} ends early: it declares {declared} seconds, and has none."
    if f"{present:.2f}" != declared:
        return f"{name} ends early: it declares {declared} seconds, and has {present:.2f}. These are read."
    samples = math.ceil(missing * rate - 1e-6)  # part of a sample counts as a lost one
    lost = "its last sample is" if samples == 1 else f"its last {samples:,} samples are"
    return f"{name} ends early: {lost} missing. The others are read."


class SoundPipe:
    """A recording from a pipe: iterating gives samples of one channel as they arrive.

    Raw samples are 16-bit little-endian integers of one channel; they need a `rate`.
    """

    def __init__(self, file: IO[bytes], rate: int | None = None) -> None:
        self._file = file
        self._begun = _exactly(file, 4)
        self.header: WavHeader | None = None
        if self._begun in (b"RIFF", b"RF64"):
            again = _Again(self._begun, file)
            self.header = read_wav_header(again)  # type: ignore[arg-type]
            self._begun = b""
            if self.header is None or not self.header.type:
                raise UserError("The wav file on standard input has a header that cannot be read.", FIX)
            if rate is not None and rate != self.header.rate:
                raise UserError(
                    f"The wav file on standard input has {self.header.rate:,} samples a second, and --rate says "
                    f"{rate:,}.",
                    "Leave --rate out.",
                )
            self.rate = self.header.rate
        elif rate is not None:
            self.rate = rate
        elif self._begun.startswith(OTHERS):
            self._file, self.header, self.rate = self._unpacked(file)
            self._begun = b""
        else:
            raise UserError(f"Standard input is not a recording: it begins with {self._begun!r}.", FIX)

    def _unpacked(self, file: IO[bytes]) -> tuple[IO[bytes], WavHeader, int]:
        """A flac, ogg or mp3 file, read completely, as the samples of a wav file."""
        try:
            import soundfile

            samples, rate = soundfile.read(io.BytesIO(self._begun + file.read()), dtype="float32", always_2d=True)
        except ImportError:
            raise UserError("Recordings need the package soundfile.", "pip install 'unrolled[audio]'") from None
        except soundfile.SoundFileError:
            raise UserError("Standard input is not a complete, readable recording.", FIX) from None
        channels = samples.shape[1]
        return io.BytesIO(samples.tobytes()), WavHeader(rate, channels, "<f4", 4 * channels, 0, None, 0), rate

    def __iter__(self) -> Iterator[Samples]:
        kind, channels = ("<i2", 1) if self.header is None else (self.header.type, self.header.channels)
        block = 2 if self.header is None else self.header.block
        left = None if self.header is None else self.header.declared
        held, read = self._begun, 0
        while left is None or left > 0:
            raw = _some(self._file, AT_ONCE if left is None else min(left, AT_ONCE))
            if not raw:
                break
            left = None if left is None else left - len(raw)
            held += raw
            whole = len(held) // block * block
            if whole:
                read += whole // block
                yield _numbers(held[:whole], kind, channels)
                held = held[whole:]
        if left and self.header is not None:
            note(cut_short("Standard input", self.rate, read / self.rate, left / block / self.rate))


def _numbers(raw: bytes, kind: str, channels: int) -> Samples:
    """Samples from −1 to 1, the mean of all channels."""
    values: NDArray[Any]
    if kind == "i3":  # 24 bits: three bytes become the upper ones of four
        bytes_ = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        values = np.pad(bytes_, ((0, 0), (1, 0))).view("<i4")[:, 0] / 2.0**31
    else:
        read = np.frombuffer(raw, kind)
        scale = {"u1": 2.0**7, "<i2": 2.0**15, "<i4": 2.0**31}.get(kind, 1.0)
        values = (read.astype(np.float64) - (128 if kind == "u1" else 0)) / scale
    samples: Samples = values.reshape(-1, channels).mean(axis=1).astype(np.float32)
    if not np.isfinite(samples).all():
        raise UserError("Standard input holds samples that are not finite.", "Write it again, from −1 to 1.")
    return samples


def raw_samples(raw: bytes) -> Samples:
    """Raw 16-bit little-endian samples; half a sample at the end is dropped."""
    return _numbers(raw[: len(raw) // 2 * 2], "<i2", 1)


class _Again:
    """A stream with some bytes put back before it."""

    def __init__(self, begun: bytes, file: IO[bytes]) -> None:
        self._begun, self._file = begun, file

    def read(self, size: int) -> bytes:
        if not self._begun:
            return self._file.read(size)
        raw, self._begun = self._begun[:size], self._begun[size:]
        return raw


def _some(file: Any, size: int) -> bytes:
    """The bytes that have arrived, at most `size`; empty at the end."""
    raw: bytes = file.read1(size) if hasattr(file, "read1") else file.read(size)
    return raw


def _exactly(file: Any, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (raw := file.read(size - len(parts))):
        parts += raw
    return parts
