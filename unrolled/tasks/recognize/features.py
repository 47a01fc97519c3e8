"""The features of a recording, a line or frames, and the time of each step. Stored in the model file."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import DAMAGED, stored_as
from unrolled.data.readers.labelled import check_frames
from unrolled.data.readers.media.archives import ARRAYS, AUDIO, IMAGES, RAW, Medium
from unrolled.data.readers.media.audio import AudioFacts, audio_facts, missing_audio, read_audio, resampled
from unrolled.data.readers.media.transcripts import Frames, Transcribed
from unrolled.data.readers.media.wav import raw_samples
from unrolled.data.signals.line_images import LineImage, grey_of, line_facts, prepared_line, read_line
from unrolled.data.signals.log_mel import LogMel, with_deltas
from unrolled.errors import UserError, note
from unrolled.text.array_files import ArrayError, read_npy

if TYPE_CHECKING:
    from unrolled.tasks.recognize.config import RecognizeData, RecognizeTraining

Kind = Literal["audio", "line", "frames"]
MOST_RATE = 16_000  # samples a second: speech has little above 8 kHz
LOUDEST = 1e6  # of samples from −1 to 1; somewhat more than 1 is a recording that was made louder
LARGEST = 1_000_000  # of a rate, or of the numbers in a step
USUAL_HEIGHT = 48  # pixels of a line: small print is still legible
UNITS = {"audio": "seconds", "line": "pixels", "frames": "frames"}
WHAT = {"audio": "a recording", "line": "a picture", "frames": "an array of frames"}
EXPECTED = {
    "audio": "a recording: a path, or an array of samples (N,) and their rate",
    "line": "a picture of a line: a path, or a grey array (height, width)",
}


@dataclass(frozen=True)
class InputReader:
    """From an input to features (T, …): log-mel frames, columns of a line, or frames as they are."""

    kind: Kind
    shape: tuple[int, ...]  # of one step
    rate: int = 0  # audio: samples a second
    bands: int = 0
    deltas: int = 0
    center_bands: bool = False  # audio: less each band's mean over the recording
    straighten: bool = False  # line

    @classmethod
    def train(cls, settings: RecognizeData, examples: Sequence[Transcribed], causal: bool) -> InputReader:
        """A reader for examples like these."""
        kinds = Counter(_kind(example.input, settings.kind) for example in examples)
        kind: Kind = max(kinds, key=lambda one: kinds[one])
        if len(kinds) > 1:
            other = next(e for e in examples if _kind(e.input, settings.kind) != kind)
            what = WHAT[_kind(other.input, settings.kind)]
            raise UserError(f"{other.place} is {what}; most are {WHAT[kind]}.", "Train a model for each kind.")
        if kind == "line":
            return cls(kind, (settings.height or usual_height(examples),), straighten=settings.straighten)
        if kind == "audio":
            rate = settings.sample_rate or usual_rate(examples)
            center = not causal if settings.center_bands is None else settings.center_bands
            if center and causal:
                raise UserError(
                    "data.center_bands=true needs the whole recording, model.bidirectional=false reads it as it comes.",
                    "Use data.center_bands=false.",
                )
            size = settings.bands * (1 + settings.deltas)
            return cls(kind, (size,), rate, settings.bands, settings.deltas, center)
        return cls(kind, _one_shape(examples))

    @property
    def mel(self) -> LogMel:
        """The spectrogram without slopes; these are added after it was changed."""
        return LogMel(self.rate, self.bands)

    @property
    def expects(self) -> str:
        return EXPECTED.get(self.kind, f"an array of frames (steps, {', '.join(map(str, self.shape))})")

    @property
    def unit(self) -> str:
        """The unit of times."""
        return UNITS[self.kind]

    def __str__(self) -> str:
        if self.kind == "audio":
            slopes = f" and {self.deltas} orders of slopes" if self.deltas else ""
            return f"recordings at {self.rate:,} Hz, {self.bands} mel bands{slopes}"
        return f"lines, {self.shape[0]} pixels high" if self.kind == "line" else f"frames of shape {self.shape}"

    def given(self, one: Any, place: str = "The input", rate: float | None = None) -> Any:
        """An input of the user's as it is read: a file, or an array; samples are brought to the model's rate.

        An array of samples says its rate beside it, (samples, rate), or it is `rate`.
        """
        if is_sound(one):
            one, rate = one
        if isinstance(one, (str, Path)):
            one = Medium.named(str(one))
        if isinstance(one, Medium):
            if self.kind == "audio" and one.suffix in RAW:
                return self._resampled(raw_samples(one.read()), rate, str(one))
            if one.suffix in (*AUDIO, *IMAGES, *ARRAYS) and one.kind != self.kind:
                raise UserError(f"{one} is {WHAT[one.kind]}.", f"This model expects {self.expects}.")
            return one
        if hasattr(one, "detach"):  # a tensor
            one = one.detach().cpu().numpy()
        if not isinstance(one, np.ndarray):
            hint = " Make a NumPy array of it: np.array(…)." if isinstance(one, (list, tuple)) else ""
            raise UserError(f"{place} is {type(one).__name__}.", f"Expected {self.expects}.{hint}")
        return self._resampled(self.samples(one, place), rate, place) if self.kind == "audio" else one

    def from_bytes(self, data: bytes) -> Any:
        """The picture or the array of frames that the bytes of a file hold."""
        if self.kind == "line":
            return grey_of(data, "Standard input")
        try:
            return np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError, OSError):
            raise UserError("Standard input is not a readable array.", "Write it with numpy.save.") from None

    def needs_rate(self, one: Any) -> bool:
        """True if an input has no rate of its own: samples without one, and files of raw samples."""
        if self.kind != "audio" or is_sound(one):
            return False
        return not isinstance(one, (str, Path, Medium)) or Path(str(one)).suffix.lower() in RAW

    def _resampled(self, samples: NDArray[np.float32], rate: float | None, place: str) -> NDArray[np.float32]:
        if rate is None:
            raise UserError(
                f"{place} is samples, which do not say how many are a second.",
                f"Give rate (--rate); the model reads {self.rate}.",
            )
        return resampled(samples, checked_rate(rate), self.rate)

    def base(self, one: Any, place: str = "The input") -> Frames:
        """The part of an input to keep in memory: a spectrogram, a grey line (W, height), or frames."""
        if self.kind == "audio":
            return self.mel(self.samples(one, place))
        if self.kind == "line":
            columns: Frames = self.line(one, place).columns
            return columns
        frames = _array_of(one, place) if isinstance(one, Medium) else check_frames(one, place)
        if frames.shape[1:] != self.shape:
            raise UserError(
                f"{place} has frames of shape {frames.shape[1:]}.", f"Expected {self.shape}, as in training."
            )
        return frames

    def samples(self, one: Any, place: str = "The input") -> NDArray[np.float32]:
        """The samples of a recording."""
        if isinstance(one, Medium):
            return read_audio(one, self.rate)
        samples = np.asarray(one)
        if samples.ndim != 1:
            raise UserError(f"{place} has shape {samples.shape}.", f"Expected samples (N,) at {self.rate} Hz.")
        if samples.dtype.kind != "f":
            raise UserError(
                f"{place} holds {samples.dtype}.", f"Expected floats from −1 to 1{_to_floats(samples.dtype)}."
            )
        loudest = float(np.abs(samples).max(initial=0.0))
        if not math.isfinite(loudest):
            raise UserError(f"{place} holds samples that are not finite.", "Expected numbers from −1 to 1.")
        if loudest > LOUDEST:
            raise UserError(f"{place} holds samples as large as {loudest:.3g}.", "Expected numbers from −1 to 1.")
        return samples.astype(np.float32, copy=False)

    def line(self, one: Any, place: str = "The input") -> Any:
        """The columns of a line, and their scale; of a `LineImage`, its own."""
        if isinstance(one, LineImage):
            return one
        if isinstance(one, Medium):
            return read_line(one, self.shape[0], self.straighten)
        grey = np.asarray(one)
        if grey.dtype != np.uint8:
            raise UserError(
                f"{place} holds {grey.dtype}.", "Expected grey from 0, black, to 255 as uint8 (height, width)."
            )
        return prepared_line(grey, self.shape[0], self.straighten, place)

    def features(self, base: Frames) -> NDArray[np.float32]:
        """The input of the network: (T, *shape)."""
        if self.kind == "audio":
            return self._finished(base)
        frames: NDArray[np.float32] = base.astype(np.float32)
        return frames if self.scale is None else frames / self.scale

    @property
    def scale(self) -> np.float32 | None:
        """The number that features are divided by at last: a line keeps 8 bits until then."""
        return np.float32(255) if self.kind == "line" else None

    def augmented(self, base: Frames, settings: RecognizeTraining, random: np.random.Generator) -> Frames:
        """The same of a recording that was changed by chance; frames are never changed."""
        from unrolled.data.signals.augment import changed_spectrum, masked_spectrum

        assert self.kind != "line"  # kernels.lines changes those, a batch at a time
        if self.kind == "frames":
            return self.features(base)
        frames = self._finished(changed_spectrum(base.astype(np.float32), settings.spectrum, random))
        return masked_spectrum(frames, self.bands, settings.spectrum, random)

    def _finished(self, base: Frames) -> NDArray[np.float32]:
        frames: NDArray[np.float32] = base.astype(np.float32)  # a copy
        if self.center_bands:
            frames -= frames.mean(axis=0)
        finished: NDArray[np.float32] = with_deltas(frames, self.deltas)
        return finished

    def moment(self, step: float, scale: float = 1.0) -> float:
        """The time or place of a step, in `unit`; `scale` is the line's."""
        if self.kind == "audio":
            return round(step / 100, 3)
        return round(step / scale, 1) if self.kind == "line" else step

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, stored: Any) -> InputReader:
        reader: InputReader = stored_as(cls, stored, "way to read inputs")
        sizes = (reader.rate, reader.bands, reader.deltas, *reader.shape)
        if not reader.shape or not all(0 <= size <= LARGEST for size in sizes) or 0 in reader.shape:
            raise UserError(f"The stored way to read inputs is damaged: {reader}.", DAMAGED)
        bands = (reader.bands * (reader.deltas + 1),)
        if reader.kind == "audio" and (reader.rate < 100 or reader.deltas > 2 or reader.shape != bands):
            raise UserError(f"The stored way to read inputs is damaged: {reader}.", DAMAGED)
        return reader


def is_sound(one: Any) -> bool:
    """True if an input is (samples, rate)."""
    return isinstance(one, tuple) and len(one) == 2 and hasattr(one[0], "ndim") and isinstance(one[1], (int, float))


def checked_rate(rate: float) -> int:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 100 <= rate <= 10_000_000:
        raise UserError(f"rate={rate!r} is not a number of samples a second.", "Use 8000, 16000 or the like.")
    return round(rate)


def usual_height(examples: Sequence[Transcribed]) -> int:
    """48, or the height of most lines if they are lower."""
    some = examples[:: max(1, len(examples) // 200)]
    heights = [line_facts(e.input).height if isinstance(e.input, Medium) else e.input.shape[0] for e in some]
    return max(8, min(USUAL_HEIGHT, int(np.median(heights))))


def _to_floats(kind: np.dtype[Any]) -> str:
    """The conversion of samples of this type to floats, if known."""
    if kind == np.uint8:
        return ": take 128 from 8-bit unsigned integers, and divide by 128"
    if kind == np.int16:
        return ": divide 16-bit integers by 32768"
    return f": divide by {-np.iinfo(kind).min}" if kind.kind == "i" else ""


def usual_rate(examples: Sequence[Transcribed]) -> int:
    """The rate of most of the recordings, 16,000 at the most; what is unusual about them is said."""
    files = [(example.input, example.place) for example in examples if isinstance(example.input, Medium)]
    if not files:
        raise UserError("Arrays of samples do not say their rate.", "Give data.sample_rate.")
    facts = [audio_facts(medium) for medium, _ in files]
    tell_about(facts)
    early = [place for medium, place in files if missing_audio(medium)]
    if early:
        note(
            f"{len(early):,} of {len(facts):,} recordings end before what they declare, the first at {early[0]}. "
            "What is there is read."
        )
    return min(MOST_RATE, Counter(one.rate for one in facts).most_common(1)[0][0])


def tell_about(facts: Sequence[AudioFacts]) -> None:
    mixed = sum(one.channels > 1 for one in facts)
    if mixed:
        note(f"{mixed:,} of {len(facts):,} recordings have several channels: their mean is read.")
    rates = Counter(one.rate for one in facts)
    if len(rates) > 1:
        shown = ", ".join(f"{rate:,} Hz ({count:,})" for rate, count in rates.most_common(4))
        note(f"Recordings have different rates, {shown}: all are read at one.")


def _kind(one: Any, asked: str) -> Kind:
    if asked != "auto":
        return asked  # type: ignore[return-value]
    if isinstance(one, Medium):
        return one.kind  # type: ignore[return-value]
    return "line" if one.dtype == np.uint8 and one.ndim == 2 else "frames"


def _one_shape(examples: Sequence[Transcribed]) -> tuple[int, ...]:
    shape: tuple[int, ...] | None = None
    for example in examples:
        frames = _array_of(example.input, example.place) if isinstance(example.input, Medium) else example.input
        if shape is not None and frames.shape[1:] != shape:
            raise UserError(f"{example.place} has frames of shape {frames.shape[1:]}, the first of {shape}.")
        shape = frames.shape[1:]
    assert shape is not None
    return shape


def _array_of(medium: Medium, place: str) -> NDArray[np.float32]:
    raw = medium.read()
    try:
        frames = read_npy(io.BytesIO(raw), len(raw))
    except ArrayError as error:
        raise UserError(f"{medium} is not a readable array: {error}.", "Write it with numpy.save.") from None
    return check_frames(frames, str(medium) if medium.place else place)
