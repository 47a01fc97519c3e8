"""`unrolled run` of a captioner: pictures in, captions out."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.media.captions import (
    Captioned,
    PicturePlace,
    PictureReader,
    fitted_view,
    places_of_pictures,
)
from unrolled.data.signals.pictures import decode_picture
from unrolled.data.signals.views import View
from unrolled.errors import UserError
from unrolled.tasks.caption.predict import CaptionAnswer, drawable_pixels
from unrolled.tasks.runner import STANDARD_INPUT, Input, Request
from unrolled.tasks.shared.answers import WritingRunner, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PictureInput(Captioned):
    """A picture in the shape that the model reads, and as it was."""

    original: View | None = None


class CaptionRunner(WritingRunner):
    """Describes the pictures of files, folders and archives."""

    at_once: ClassVar[int] = 64  # pictures are held in memory as they were
    reads_files: ClassVar[bool] = True
    reads_bytes: ClassVar[bool] = True
    needs_attention = "model.decoder.attention=soft"

    def run_bytes(self, request: Request, options: Mapping[str, Any]) -> Iterator[str]:
        """The caption of the picture on standard input."""
        assert request.raw is not None
        pixels, _ = decode_picture(io.BytesIO(request.raw.read()), "Standard input")
        one = Captioned(fitted_view(View(pixels), self.model.assets.shape, "Standard input"), (), STANDARD_INPUT)
        yield from self.write([(Input(one), self.model.predict(one, **options))], request.format)

    def read(self, request: Request) -> Iterator[Input]:
        """The place of every picture of the files of a request; texts and lines are paths too."""
        for place in places_of_pictures(paths_of(request)):
            yield Input(place)

    def inputs(self, request: Request) -> Iterator[PictureInput]:
        """The pictures themselves; one that cannot be read is an error."""
        reader = PictureReader()
        for place in places_of_pictures(paths_of(request)):
            found = self._read(reader, place)
            if isinstance(found, UserError):
                raise found
            yield found

    def _read(self, reader: PictureReader, place: PicturePlace) -> PictureInput | UserError:
        found = reader.read(place)
        if isinstance(found, UserError):
            return found
        try:
            shape = self.model.assets.shape
            return PictureInput(fitted_view(found, shape, place.name), (), place.name, original=found)
        except UserError as error:
            return error

    def answers(self, inputs: Sequence[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        """A `CaptionAnswer` of each picture, or the error of one that could not be read."""
        reader = PictureReader()
        given = [self._read(reader, one) if isinstance(one, PicturePlace) else one for one in inputs]
        reader.tell()
        read = [one for one in given if not isinstance(one, UserError)]
        described = iter(self.model.predict(read, **options) if read else ())
        return [one if isinstance(one, UserError) else next(described) for one in given]

    def drawable(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        options, network = super().drawable(options), self.model.network
        if getattr(network, "grid", None) is None:
            raise UserError("The regions of this model form no grid to draw.")
        return options

    def draw(self, one: Any, answer: CaptionAnswer, options: Mapping[str, Any]) -> Figure:
        """The attention of each word to the regions of the picture; below it, of hard attention, the region it read."""
        if answer.attention is None or not answer.tokens:
            raise UserError("There is no caption to show.", "Train the model longer.")
        from unrolled.see.figures.caption import attention_maps, hard_attention_maps  # they need torch

        one = self._read(PictureReader(), one) if isinstance(one, PicturePlace) else one
        picture = drawable_pixels(one.original if isinstance(one, PictureInput) else one)
        maps = hard_attention_maps if self._hard else attention_maps
        return maps(picture, answer.tokens, answer.attention, str(answer))

    def drawing(self, inputs: Any, picture: Any = None, **options: Any) -> Figure:
        """The attention of each word, as a figure; `picture` is the background where `inputs` are features."""
        answer: CaptionAnswer = self.model.predict(inputs, **self.drawable(options))
        return self.draw(inputs if picture is None else picture, answer, options)

    def record(self, one: Captioned | PicturePlace, answer: CaptionAnswer) -> dict[str, Any]:
        return {"input": one.name, "image": one.name, **self.ranked_record(answer)}

    def answer_record(self, answer: CaptionAnswer) -> dict[str, Any]:
        return {
            "caption": answer.text,
            "score": answer.score,
            "log_prob": answer.log_prob,
            "ended": answer.ended,
            "tokens": answer.tokens,
            "attention": rounded(answer.attention),
            **({"looked_at": _regions(answer.attention)} if self._hard else {}),
            **self.words_record(answer),
        }

    @property
    def _hard(self) -> bool:
        """True if the decoder reads one region for each word."""
        return bool(getattr(self.model.network, "hard", False))

    def report(self, scores: Mapping[str, Any]) -> str:
        """Scores of the chosen search, then a table of all."""
        from unrolled.tasks.caption.scores import search_table

        return f"{super().report(scores)}\n\n{search_table(scores['searches'])}"


def _regions(attention: NDArray[np.float32] | None) -> list[Any] | None:
    """The region with the largest weight of each token: (row, column), or its number where there is no grid."""
    if attention is None:
        return None
    places = [np.unravel_index(int(weights.argmax()), weights.shape) for weights in attention]
    return [[int(place) for place in one] if len(one) > 1 else int(one[0]) for one in places]


def paths_of(request: Request) -> list[str]:
    """The paths of a request: its texts, files and lines."""
    lines = (line.rstrip("\r\n") for line in request.lines)
    return [*(request.texts or ()), *request.files, *(line for line in lines if line)]
