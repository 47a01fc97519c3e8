"""A recording from a pipe: a causal model writes text as the sound arrives, other models window by window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING

import numpy as np

from unrolled.data.readers.media.audio import Samples, is_silent
from unrolled.data.readers.media.wav import SoundPipe
from unrolled.errors import note
from unrolled.tasks.recognize.features import InputReader, checked_rate
from unrolled.tasks.recognize.predict import SECONDS, cut_recording, hear_window
from unrolled.tasks.recognize.search import Piece, RecognitionOptions, Recognized, Search, joined, piece_of
from unrolled.tasks.recognize.stream import RecognizeStream, streams

if TYPE_CHECKING:
    from unrolled.model import Model


def recognize_live(model: Model, file: IO[bytes], options: RecognitionOptions) -> Iterator[str | Recognized]:
    """Pieces of text that cannot change any more, then the whole answer. Ctrl-C ends the recording."""
    reader: InputReader = model.assets.reader
    pipe = SoundPipe(file, None if options.rate is None else checked_rate(options.rate))
    if pipe.rate < reader.rate:
        note(f"Standard input has {pipe.rate:,} samples a second; the model learnt from {reader.rate:,}.")
    if pipe.header is not None and pipe.header.channels > 1:
        note(f"Standard input has {pipe.header.channels} channels: their mean is read.")
    if streams(model) and (options.lexicon is not None or not options.searches):
        yield from _as_it_arrives(model, pipe, options)
    else:
        yield from _in_windows(model, pipe, options)


def _until_stopped(pipe: SoundPipe) -> Iterator[Samples]:
    """The samples as they arrive, until the recording ends or the user stops it."""
    try:
        yield from pipe
    except KeyboardInterrupt:
        return


def _as_it_arrives(model: Model, pipe: SoundPipe, options: RecognitionOptions) -> Iterator[str | Recognized]:
    grows = options.lexicon is None
    if not grows:
        note("With a lexicon, words can change until the end of the recording. The text is written then.")
    stream = RecognizeStream(model, replace(options, rate=pipe.rate))
    told = ""
    for samples in _until_stopped(pipe):
        text = stream.feed(samples)
        if grows and len(text) > len(told) and text.startswith(told):
            yield text[len(told) :]
            told = text
    answer = stream.finish()
    if answer.text.startswith(told):
        yield answer.text[len(told) :]
    yield answer


def _in_windows(model: Model, pipe: SoundPipe, options: RecognitionOptions) -> Iterator[str | Recognized]:
    reader: InputReader = model.assets.reader
    seconds = options.window or SECONDS
    why = "A beam search" if streams(model) else "This model"
    note(
        f"{why} needs the end of a window before it writes: text comes for each window of up to {seconds:g} seconds, "
        "cut where the sound is quietest."
    )
    search, glue = Search(model.assets.labels, options), model.assets.labels.glue
    pieces: list[list[Piece]] = []
    told = False
    for start, samples in cut_recording(reader, _at_rate(pipe, reader.rate), seconds):
        if is_silent(samples):
            continue
        heard = hear_window(model, samples, start)
        (readings,) = search([heard.log_probs])
        pieces.append([piece_of(search, one, heard.moment, heard.log_probs) for one in readings])
        if text := pieces[-1][0].text:
            yield f"{glue}{text}" if told else text
            told = True
    yield joined(pieces, glue, reader.unit, options.n_best)


def _at_rate(pipe: SoundPipe, rate: int) -> Iterator[Samples]:
    if pipe.rate == rate:
        yield from _until_stopped(pipe)
        return
    import soxr

    stream = soxr.ResampleStream(pipe.rate, rate, 1, dtype="float32")
    for samples in _until_stopped(pipe):
        yield stream.resample_chunk(samples)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)
