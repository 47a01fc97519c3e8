"""Recordings: samples of one channel at one rate, from wav, flac, ogg or mp3 files, whole or in blocks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.wav import missing_seconds
from unrolled.errors import UserError, note
from unrolled.text.files import is_file

if TYPE_CHECKING:
    import soundfile

Samples = NDArray[np.float32]
BLOCK = 1 << 20  # samples decoded at a time
SILENT = 1e-4  # silence: all samples are at least 80 dB below full scale
FIX = "Expected a whole wav, flac, ogg or mp3 file."


class AudioFacts(NamedTuple):
    """Facts from the header of a file."""

    rate: int  # samples a second
    channels: int
    samples: int

    @property
    def seconds(self) -> float:
        return self.samples / self.rate


def audio_facts(medium: Medium) -> AudioFacts:
    """Rate, channels and length, without decoding the file."""
    with _file(medium) as file:
        return AudioFacts(file.samplerate, file.channels, file.frames)


def read_audio(medium: Medium, rate: int) -> Samples:
    """All samples (N,) from −1 to 1 at `rate` samples a second; several channels are averaged."""
    with _file(medium) as file:
        samples = _mean(_decoded(file, -1, medium), medium)
        return resampled(samples, file.samplerate, rate)


def audio_blocks(medium: Medium, rate: int, seconds: float) -> Iterator[Samples]:
    """The same samples in blocks, for files larger than memory."""
    import soxr

    with _file(medium) as file:
        stream = soxr.ResampleStream(file.samplerate, rate, 1, dtype="float32") if file.samplerate != rate else None
        size = max(1, int(seconds * file.samplerate))
        last, left = False, file.frames
        while not last:
            samples = _mean(_decoded(file, size, medium), medium)
            last, left = len(samples) < size, left - len(samples)
            if last and left > 0:
                note(f"{medium} ends early: {left / file.samplerate:.2f} of the declared seconds are missing.")
            yield samples if stream is None else stream.resample_chunk(samples, last=last)


def resampled(samples: Samples, rate: int, wanted: int) -> Samples:
    """Samples at another rate."""
    import soxr

    if rate == wanted or not len(samples):
        return samples
    result: Samples = soxr.resample(samples, rate, wanted)
    return result


def is_silent(samples: Samples) -> bool:
    return not len(samples) or float(np.abs(samples).max()) < SILENT


def _file(medium: Medium) -> soundfile.SoundFile:
    soundfile = _soundfile()
    # a member of an archive is unpacked first
    if not medium.member and is_file(medium.path):
        source: object = str(medium.path)
    else:
        source = io.BytesIO(medium.read())
    try:
        file = soundfile.SoundFile(source)
    except (soundfile.SoundFileError, TypeError) as error:
        raise UserError(f"{medium} is not a readable recording: {_reason(error)}.", FIX) from None
    return file


def missing_audio(medium: Medium) -> float:
    """Seconds that a wav file declares but does not contain."""
    if not medium.member and medium.path.is_file():
        with medium.path.open("rb") as file:
            return missing_seconds(file)
    return missing_seconds(io.BytesIO(medium.read()))


def _soundfile() -> Any:
    try:
        import soundfile
        import soxr  # noqa: F401, needed beside it
    except ImportError as error:
        raise UserError(f"Recordings need the package {error.name}.", "pip install 'unrolled[audio]'") from None
    return soundfile


def _decoded(file: soundfile.SoundFile, size: int, medium: Medium) -> NDArray[np.float32]:
    import soundfile

    parts: list[NDArray[np.float32]] = []
    wanted = size if size >= 0 else file.frames
    try:
        while True:  # a damaged header may declare any length: memory grows with the samples
            part = file.read(min(BLOCK, wanted), dtype="float32", always_2d=True)
            parts.append(part)
            wanted -= len(part)
            if wanted <= 0 or len(part) < BLOCK:
                return np.concatenate(parts) if len(parts) > 1 else part
    except (soundfile.SoundFileError, ValueError, MemoryError) as error:
        raise UserError(f"{medium} is damaged: {_reason(error)}.", FIX) from None


def _mean(samples: NDArray[np.float32], medium: Medium) -> Samples:
    mixed: Samples = samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1)
    if not np.isfinite(mixed).all():
        raise UserError(f"{medium} holds samples that are not finite.", "Write it again, from −1 to 1.")
    return np.ascontiguousarray(mixed)


def _reason(error: Exception) -> str:
    text = str(error)
    return text.split(": ", 1)[-1].strip().rstrip(".") if ": " in text else text.rstrip(".")
