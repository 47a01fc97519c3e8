"""Runner: from the inputs of a request to records and lines, for `unrolled run`, streams and scores of text."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, ClassVar

from unrolled.data.readers.tables.read_table import Row
from unrolled.data.readers.text_lines import TextLines
from unrolled.errors import UserError
from unrolled.tasks.answer_lines import AnswerLines, Format, NotAllRead

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unrolled.model import Model

STANDARD_INPUT = "-"  # the name of standard input, in place of a file


@dataclass(frozen=True)
class Request:
    """Inputs of `unrolled run`: texts, files, or a stream of lines; and the format of the answers."""

    texts: Sequence[str] | None = None
    files: Sequence[str] = ()
    lines: Iterable[str] = ()  # standard input
    format: Format = "text"
    keep: Sequence[str] = ()  # columns of the files to copy into the records
    raw: IO[bytes] | None = None  # standard input as bytes, where it is one recording or picture
    checked: bool = False  # the files were read once without an error: their rows come one after the other


@dataclass(frozen=True)
class Input:
    """One input of a request, and the columns to copy from its row."""

    value: Any
    kept: Mapping[str, Any] = field(default_factory=dict)


class Runner:
    """Answers requests with a model. A task with other inputs or records overrides the methods that differ."""

    at_once: ClassVar[int] = 1024  # inputs in a chunk: they are read, then answered together
    reads_files: ClassVar[bool] = False  # an input is the path of a file
    reads_bytes: ClassVar[bool] = False  # standard input may be a file itself
    keeps: ClassVar[bool] = False  # input files may be tables with columns to keep
    keeps_lines: ClassVar[bool] = False  # standard input may be a table

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, request: Request, **options: Any) -> Iterator[str]:
        """Output of `unrolled run`, piece by piece: a line for each input, in order.

        An input that cannot be read gets an empty line, or a record with its error. The error is reported
        immediately; a summary error follows at the end.
        """
        options, lines = self.prepared(options, request.format), AnswerLines(self, request.format)
        if header := self.header(options, request.format):
            yield header
        yield from self.parts(self.read(request), options, lines)
        if lines.failed:
            raise NotAllRead(lines.failed, lines.total)

    def prepared(self, options: Mapping[str, Any], format: Format) -> dict[str, Any]:
        """The options of `answers` for a format, with files read that all inputs need."""
        return dict(options)

    def read(self, request: Request) -> Iterator[Input]:
        """The inputs of a request, each with its kept columns."""
        if not request.keep:
            yield from map(Input, self.inputs(request))
            return
        for file in request.files:
            for row in self._rows(request, file):
                yield Input(row.values[0], row.kept)

    def inputs(self, request: Request) -> Iterator[Any]:
        """The inputs of a request: texts, one on a line, unless overridden."""
        yield from request.texts or ()
        for file in request.files:
            for row in self._rows(request, file):
                yield row.values[0]
        yield from self.piped(request.lines)

    def _rows(self, request: Request, file: str) -> Iterable[Row]:
        """The rows of a file, all of them checked before the first."""
        rows = self.rows(file, request.keep)
        return rows if request.checked else list(rows)

    def rows(self, file: str, keep: Sequence[str] = ()) -> Iterable[Row]:
        """The texts of a file: its lines, unless the task reads tables; there with columns to keep."""
        return (Row((line,), f"{file}:{number}") for number, line in enumerate(TextLines(file), 1))

    def piped(self, lines: Iterable[str]) -> Iterator[str]:
        """The texts of standard input as they arrive: its lines, unless the task reads tables there."""
        for line in lines:
            yield line.rstrip("\r\n")

    def header(self, options: Mapping[str, Any], format: Format) -> str:
        """The line before the first part, where the first answer does not write it."""
        return ""

    def parts(self, inputs: Iterator[Input], options: Mapping[str, Any], lines: AnswerLines) -> Iterator[str]:
        """The lines of all inputs, which are answered a part at a time; at the end remarks on the inputs."""
        counts, first = Counter[str](), 0
        while some := list(itertools.islice(inputs, self.at_once)):
            counts.update(self.counts(some))
            yield from self.part(some, first, options, lines)
            first += len(some)
        self.remark(counts)

    def part(
        self, inputs: Sequence[Input], first: int, options: Mapping[str, Any], lines: AnswerLines
    ) -> Iterator[str]:
        """The lines of some inputs, of which the first is number `first`; `options` are `prepared`.

        The parts of a request, joined, are its output, however the inputs are divided.
        """
        if (drawn := self.draws(options)) and options.get("seed") is not None:  # of each input its own
            options = {**options, "seed": options["seed"] + first * drawn}
        answers = self.answers([one.value for one in inputs], options)
        if not first and answers and all(isinstance(answer, UserError) for answer in answers):
            raise answers[0]  # the options are wrong, or every input is
        for one, answer in zip(inputs, answers, strict=True):
            if line := lines(one.value, answer, one.kept):
                yield line

    def whole(self, request: Request, options: Mapping[str, Any]) -> UserError | None:
        """The reason why a request can only be answered as a whole, not in parts; None if it can be."""
        if type(self).run not in (Runner.run, PictureRunner.run):
            problem = f"The runner of {self.model.task.name} has its own `run`, which answers a request as a whole."
            return UserError(problem, "Leave --workers out.")
        return None

    def draws(self, options: Mapping[str, Any]) -> int:
        """The number of answers that are drawn at random for each input; 0: they are computed."""
        return 0

    def counts(self, inputs: Sequence[Input]) -> Mapping[str, int]:
        """Facts about inputs that `remark` reports, by name."""
        return {}

    def remark(self, counts: Mapping[str, int]) -> None:
        """Notes about all inputs of a run, from the sums of their `counts`."""

    def answers(self, inputs: Sequence[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        """The prediction for each input; or, where inputs are files, the error of one that could not be read."""
        answers: Sequence[Any] = self.model.predict(inputs, **options)
        return answers

    def write(self, answered: Iterable[tuple[Input, Any]], format: Format) -> Iterator[str]:
        """Inputs and their answers as lines of a format."""
        lines = AnswerLines(self, format)
        for one, answer in answered:
            yield lines(one.value, answer, one.kept)

    def record(self, one: Any, answer: Any) -> dict[str, Any]:
        """An input and its answer, for a program to read."""
        return {"input": str(one), "answer": str(answer)}

    def line(self, one: Any, answer: Any) -> str:
        """An answer for a person to read, with a line end."""
        return f"{answer}\n"

    def report(self, scores: Mapping[str, Any]) -> str:
        """Scores of a file as a table for a person to read."""
        return table_of(plain_scores(scores))

    def stream(self, **options: Any) -> Any:
        """A stream that takes input in pieces, if the task supports it."""
        raise UserError(f"A model of {self.model.task.name} needs its whole input: it does not stream.")

    def feed_many(self, pieces: Sequence[tuple[Any, Any]]) -> list[Any]:
        """The answers of streams to a piece each."""
        return [stream.feed(piece) for stream, piece in pieces]

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        """The log-probability of each text, if the task models text."""
        raise UserError(f"A model of {self.model.task.name} cannot score text.", "Use a model of generate.")


class PictureRunner(Runner):
    """A runner that can also draw a picture of the answer to one input."""

    dpi: ClassVar[int] = 150

    def run(self, request: Request, picture: str | None = None, **options: Any) -> Iterator[str]:
        """A line for each input; with the path of a `picture`, the answer to the only input is drawn there too."""
        if request.raw is not None:
            if picture is not None:
                raise UserError("A picture shows a file, and standard input is not one.", "Give a file.")
            yield from self.run_bytes(request, self.prepared(options, request.format))
            return
        if picture is None:
            yield from super().run(request, **options)
            return
        from unrolled.see.figures.lengths import check_picture  # it needs matplotlib

        place, inputs = check_picture(picture), list(self.read(request))
        if len(inputs) != 1:
            raise UserError(f"A picture shows one input, and there are {len(inputs)}.", "Give one.")
        self.remark(self.counts(inputs))
        answer, figure = self.answer_and_drawing(inputs[0].value, self.prepared(options, request.format))
        figure.savefig(place, dpi=self.dpi)
        yield from self.write([(inputs[0], answer)], request.format)

    def run_bytes(self, request: Request, options: Mapping[str, Any]) -> Iterator[str]:
        """The answer to the one file on standard input."""
        raise NotImplementedError

    def drawable(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options by which an answer can be drawn; an error where the model has nothing to draw."""
        return options

    def answer_and_drawing(self, one: Any, options: Mapping[str, Any]) -> tuple[Any, Figure]:
        """The answer to one input, and its picture."""
        (answer,) = self.answers([one], self.drawable(options))
        if isinstance(answer, UserError):
            raise answer
        return answer, self.draw(one, answer, options)

    def draw(self, one: Any, answer: Any, options: Mapping[str, Any]) -> Figure:
        """The picture of an answer."""
        raise NotImplementedError


def ranked_lines(answer: Any, read: Callable[[Any], str] = lambda one: one.text) -> str:
    """An answer as `read` gives it; of an n-best list, a line for each with its rank and score."""
    if not answer.others:
        return f"{read(answer)}\n"
    ranked = enumerate((answer, *answer.others), 1)
    return "".join(f"{rank}\t{one.score:.4f}\t{read(one)}\n" for rank, one in ranked)


def plain_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    """The scores that are numbers, without tables."""
    return {name: value for name, value in scores.items() if not isinstance(value, Mapping)}


def table_of(scores: Mapping[str, Any]) -> str:
    """Names and numbers in two columns.

    >>> print(table_of({"accuracy": 0.5, "examples": 1200}))
    accuracy  0.5000
    examples  1,200
    """
    width = max(map(len, scores))
    shown = {
        k: f"{v:,}" if isinstance(v, int) else f"{v:.4f}" if isinstance(v, float) else v for k, v in scores.items()
    }
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
