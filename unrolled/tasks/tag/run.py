"""`unrolled run` of a tagger: texts, CoNLL-U, columns or frames in, tags out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unrolled.data.readers.tagged.frames import read_untagged_frames
from unrolled.errors import UserError
from unrolled.tasks.answer_lines import AnswerLines, Format, csv_line
from unrolled.tasks.runner import Input, Request, Runner
from unrolled.tasks.tag.batches import unlabelled
from unrolled.tasks.tag.columns import columns_of, frame_columns_of
from unrolled.tasks.tag.documents import Document, Documents, in_a_row
from unrolled.tasks.tag.predict import FrameTags, paths_of, sentence_of_input, settings_of
from unrolled.tasks.tag.stream import TagStream, feed_many, stream_lines


class TagRunner(Runner):
    """Tags sentences, or frames."""

    def run(self, request: Request, stream: bool = False, **options: Any) -> Iterator[str]:
        """Files of CoNLL-U or columns come back with their tags in place; a text as word/TAG on a line.

        As csv there is a row for every word: the number of the sentence, the word, the tag. With `stream` each line
        of standard input is answered as it comes.
        """
        if stream:
            yield from stream_lines(self.model, request)
        elif request.format == "text" and not self.model.assets.frames:
            yield from in_a_row(self._tagged(one) for one in self._documents(request))
        else:
            yield from super().run(request, **options)

    def prepared(self, options: Mapping[str, Any], format: Format) -> dict[str, Any]:
        return {"probabilities": format != "text" and not (format == "csv" and options.get("segments"))}

    def header(self, options: Mapping[str, Any], format: Format) -> str:
        if format != "csv":
            return ""
        if not self.model.assets.frames:
            return "sentence,token,tag,probability\n"
        return "sequence,frame,tag,probability\n" if options["probabilities"] else "sequence,start,end,tag\n"

    def part(
        self, inputs: Sequence[Input], first: int, options: Mapping[str, Any], lines: AnswerLines
    ) -> Iterator[str]:
        """As csv there is a row for each word or frame; without probabilities for each segment of frames."""
        if lines.format != "csv":
            yield from super().part(inputs, first, options, lines)
            return
        for number, answer in enumerate(self.answers([one.value for one in inputs], options), first + 1):
            if not isinstance(answer, FrameTags):
                yield "".join(csv_line((number, word, tag, round(p, 6))) for word, tag, p in answer)
            elif options["probabilities"]:
                rows = zip(answer.tags, answer.probabilities, strict=True)
                yield "".join(csv_line((number, at, tag, round(p, 6))) for at, (tag, p) in enumerate(rows))
            else:
                yield "".join(csv_line((number, start, end, kind)) for kind, start, end in answer.segments)

    def whole(self, request: Request, options: Mapping[str, Any]) -> UserError | None:
        if options.get("stream"):
            return UserError("--stream answers each line as it comes.", "Leave it out, or --workers.")
        plain = request.format == "text" and not self.model.assets.frames
        if plain and any(one.write is not None for one in self._documents(request)):
            return UserError(
                "A file of CoNLL-U or columns comes back with its tags in place: it is written as a whole.",
                "Leave --workers out, or ask for --format jsonl.",
            )
        return None

    def inputs(self, request: Request) -> Iterator[Any]:
        if shape := self.model.assets.frames:
            if not request.files:
                raise UserError(
                    "This model reads frames, not text.",
                    "Give a .npz file with `frames`, a .npy or a .csv file; or --stream and lines of numbers.",
                )
            asked = frame_columns_of(settings_of(self.model))
            columns = replace(asked, features=self.model.assets.frame_columns or asked.features)
            for file in request.files:
                yield from read_untagged_frames(file, shape, columns)
            return
        for document in self._documents(request):
            yield from document.sentences

    def _documents(self, request: Request) -> Iterator[Document]:
        assets = self.model.assets
        return Documents(columns_of(settings_of(self.model)), assets.tags, assets.features).of(request)

    def _tagged(self, document: Document) -> Iterator[str]:
        """The text of a document with its tags."""
        if document.write is not None:
            sentences = [sentence_of_input(self.model, one) for one in document.sentences]
            paths = paths_of(self.model, unlabelled(self.model, sentences))
            yield from document.write([self.model.assets.names(path) for path in paths])
        else:
            yield from self.parts(map(Input, document.sentences), {}, AnswerLines(self, "text"))

    def record(self, one: Any, answer: Any) -> dict[str, Any]:
        if isinstance(answer, FrameTags):
            return {
                "input": one.place,
                "tags": answer.tags,
                "probabilities": [round(p, 6) for p in answer.probabilities],
                "segments": [span._asdict() for span in answer.segments],
            }
        words, tags, chances = zip(*answer, strict=True) if answer else ((), (), ())
        return {"tokens": words, "tags": tags, "probabilities": [round(p, 6) for p in chances]}

    def line(self, one: Any, answer: Any) -> str:
        if isinstance(answer, FrameTags):
            return f"{answer}\n"
        return " ".join(f"{word}/{tag}" for word, tag in answer) + "\n"

    def stream(self, **options: Any) -> TagStream:
        return TagStream(self.model, **options)

    def feed_many(self, pieces: Sequence[tuple[Any, Any]]) -> list[Any]:
        return feed_many(pieces)

    def report(self, scores: Mapping[str, Any]) -> str:
        from unrolled.tasks.tag.scores import report

        return report(scores)
