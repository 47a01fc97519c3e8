"""The answer to one input and its picture: the input is read once, and goes through the network once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import audio_facts
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.see.figures.recognition import RecognitionRow, recognition_figure
from unrolled.tasks.recognize.features import InputReader
from unrolled.tasks.recognize.labels import RecognizeAssets
from unrolled.tasks.recognize.predict import (
    Window,
    answers_of,
    base_of,
    hear,
    moments,
    posteriors_of,
    read_inputs,
    sound_blocks,
)
from unrolled.tasks.recognize.search import RecognitionOptions, Recognized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_DRAWN = 4000  # steps of an input in a picture


def recognize_drawn(model: Model, one: Any, options: RecognitionOptions) -> tuple[Recognized, Figure]:
    """The answer to an input, and its labels over time below the sound, line or frames.

    An input that is read in several windows, or streamed, goes through the network once more, as a whole.
    """
    assets: RecognizeAssets = model.assets
    (given,) = read_inputs(assets.reader, [one], options.rate, alone=True)
    given = _in_memory(assets.reader, given)
    heard = list(hear(model, [given], options.window, draw=True))
    (answer,) = answers_of(model, heard, 1, options)
    drawn = [part for parts in heard for part in parts]
    window = drawn[0].window if len(drawn) == 1 else None
    if window is not None and window.base is not None and window.start == 0:
        return answer, _figure(model, window, drawn[0].log_probs, answer)
    base, scale = base_of(assets.reader, given, tell=False)
    window = Window(0, assets.reader.features(base), scale=scale, base=base)
    return answer, _figure(model, window, posteriors_of(model, [window])[0], answer)


def _in_memory(reader: InputReader, given: Any) -> Any:
    """The input, read from its file; an error if it is too long for a picture."""
    if isinstance(given, Medium):
        if reader.kind == "audio":
            _check_length(int(audio_facts(given).seconds * reader.rate) // reader.mel.hop)
            return np.concatenate([np.zeros(0, np.float32), *sound_blocks(reader, given)])
        given = reader.line(given) if reader.kind == "line" else reader.base(given)
    return given


def _check_length(steps: int) -> None:
    if steps > MOST_DRAWN:
        raise UserError(
            f"The input has {steps:,} steps; a picture shows {MOST_DRAWN:,} at the most.", "Give a shorter piece."
        )


def _figure(model: Model, window: Window, log_probs: Any, answer: Recognized) -> Figure:
    assets: RecognizeAssets = model.assets
    assert window.base is not None
    _check_length(len(window.base))
    return recognition_figure(
        RecognitionRow(
            signal=window.base,
            kind=assets.reader.kind,
            posteriors=np.exp(log_probs),
            names=assets.labels.names,
            labels=[(span.text, span.start, span.end) for span in answer.labels],
            text=answer.text,
            unit=assets.reader.unit,
            end=moments(model, len(window.base), scale=window.scale)(len(log_probs)),
        )
    )
