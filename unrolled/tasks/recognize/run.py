"""`unrolled run` of a recogniser: files or sound as it arrives in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from unrolled.data.readers.labelled import read_frames
from unrolled.errors import UserError
from unrolled.search.ctc.decoded import reading_record, utterance_record
from unrolled.tasks.recognize.features import InputReader
from unrolled.tasks.recognize.live import recognize_live
from unrolled.tasks.recognize.search import RecognitionOptions, Recognized
from unrolled.tasks.recognize.stream import RecognizeStream, feed_many
from unrolled.tasks.runner import STANDARD_INPUT, Input, PictureRunner, Request, ranked_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RecognizeRunner(PictureRunner):
    """Recognises recordings, pictures of lines and frames."""

    at_once: ClassVar[int] = 16  # files: the first answers come soon
    reads_files: ClassVar[bool] = True
    reads_bytes: ClassVar[bool] = True
    dpi: ClassVar[int] = 120

    def run_bytes(self, request: Request, options: Mapping[str, Any]) -> Iterator[str]:
        """The answer to standard input: sound as it arrives, a picture or frames as a whole."""
        reader: InputReader = self.model.assets.reader
        assert request.raw is not None
        answer: Any = None
        if reader.kind == "audio":
            if options.get("rescore") is not None:
                raise UserError("Sound is not rescored while it arrives.", "Give a file, or leave out --rescore.")
            for piece in recognize_live(self.model, request.raw, RecognitionOptions(**options)):
                if not isinstance(piece, str):
                    answer = piece
                elif request.format == "text":
                    yield piece
            if request.format == "text" and not answer.others:
                yield "\n"
                return
            yield "" if request.format != "text" else "\n"
        else:
            answer = self.model.predict(reader.from_bytes(request.raw.read()), **options)
        yield from self.write([(Input(STANDARD_INPUT), answer)], request.format)

    def inputs(self, request: Request) -> Iterator[Any]:
        """Files, or the names of files on the lines of standard input."""
        yield from request.texts or ()
        for file in request.files:
            if Path(file).suffix == ".npz":
                yield from read_frames(file)
            else:
                yield file
        for line in request.lines:
            if name := line.strip():
                yield name

    def answers(self, inputs: Sequence[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        """An answer for each input, or its error."""
        try:
            return super().answers(inputs, options)
        except UserError as error:
            if len(inputs) == 1:
                return [error]
        return [answer for one in inputs for answer in self.answers([one], options)]

    def answer_and_drawing(self, one: Any, options: Mapping[str, Any]) -> tuple[Recognized, Figure]:
        from unrolled.tasks.recognize.drawing import recognize_drawn  # it needs matplotlib

        return recognize_drawn(self.model, one, RecognitionOptions(**options))

    def drawing(self, inputs: Any, **options: Any) -> Figure:
        """Labels over time under the sound or picture, as a figure: `savefig` writes PNG, SVG or PDF."""
        return self.answer_and_drawing(inputs, options)[1]

    def record(self, one: Any, answer: Recognized) -> dict[str, Any]:
        """The same keys as those of `unrolled decode`: see docs/decode.md."""
        return utterance_record(
            one if isinstance(one, str) else f"{len(one)} frames",
            answer.unit,
            [
                reading_record(
                    found.text, found.score, found.complete, found.words, [label[:3] for label in found.labels]
                )
                for found in (answer, *answer.others)
            ],
        )

    def line(self, one: Any, answer: Recognized) -> str:
        return ranked_lines(answer)

    def report(self, scores: Mapping[str, Any]) -> str:
        from unrolled.tasks.recognize.scores import search_table

        return search_table(scores)

    def stream(self, **options: Any) -> RecognizeStream:
        """A stream of samples or frames: `feed` gives the text so far, `finish` the answer."""
        return RecognizeStream(self.model, RecognitionOptions(**options))

    def feed_many(self, pieces: Sequence[tuple[Any, Any]]) -> list[Any]:
        return feed_many(pieces)
