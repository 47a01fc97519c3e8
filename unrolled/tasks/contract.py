"""What a task is: all that tells one kind of job from another. The loop, the files and the commands know only this."""

from __future__ import annotations

import csv
import io
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, NamedTuple

from torch import nn

from unrolled.config import Section
from unrolled.data import Batch
from unrolled.data.readers.tables.table import Row
from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.models.weights import copy_weights
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption
from unrolled.tasks.options import TaskOptions
from unrolled.text import Vectors
from unrolled.training import Batches, Goal, Loss

Format = Literal["text", "jsonl", "csv"]
STANDARD_INPUT = "-"  # as a user names it in the place of a file


@dataclass(frozen=True)
class Data:
    """What was read: training and validation examples in the task's own form, and where they came from."""

    train: Any
    valid: Any
    source: str  # in words, for the report
    fingerprint: str  # changes when the data does
    contents: str = ""  # changes when recordings and the like do, which the fingerprint knows by name and size


@dataclass(frozen=True)
class Request:
    """What `unrolled run` was given: texts, files, or a stream of lines; and how answers are written."""

    texts: Sequence[str] | None = None
    files: Sequence[str] = ()
    lines: Iterable[str] = ()  # standard input
    format: Format = "text"
    keep: Sequence[str] = ()  # columns of the files that go into the records beside the answers
    raw: IO[bytes] | None = None  # standard input, where it is one input itself and not lines


@dataclass(frozen=True)
class Given:
    """One input of a request, and the columns of its row that are kept."""

    input: Any
    kept: Mapping[str, Any] = field(default_factory=dict)


class Example(NamedTuple):
    """An input as `Task.trace` takes it, and what its answer should be, which its option `truth` takes."""

    input: Any
    truth: Any = None


class Task(ABC):
    """One kind of job. A config has the sections data, model and train; `assets` is what is learnt from the data
    before training, such as a vocabulary, and is kept in the model file."""

    name: ClassVar[str]
    config_class: ClassVar[type[Section]]
    unit: ClassVar[str] = "tokens"  # what a loss counts
    at_once: ClassVar[int] = 1024  # inputs that `run` reads before it answers
    options: ClassVar[TaskOptions] = TaskOptions()  # of train, run, eval, predict and stream
    trace_options: ClassVar[tuple[TraceOption, ...]] = ()
    reads_files: ClassVar[bool] = False  # whether an input is the path of a file
    reads_bytes: ClassVar[bool] = False  # whether standard input may be such a file itself
    inherited: ClassVar[tuple[str, ...]] = ()  # keys of the data section that a model trained further brings along
    file_keys: ClassVar[tuple[str, ...]] = ()  # keys of the data section that `run` and `eval` may set for their file
    keeps: ClassVar[bool] = False  # whether `run` reads tables whose columns can be kept
    keeps_lines: ClassVar[bool] = False  # whether standard input may be such a table
    parallel: ClassVar[bool] = False  # whether `evaluate` takes two files too

    @abstractmethod
    def goal(self, config: Any, assets: Any) -> Goal:
        """The score that decides which model is best."""

    @abstractmethod
    def read(self, config: Any) -> Data:
        """Reads the files a config names, or the embedded data."""

    @abstractmethod
    def make_assets(self, config: Any, data: Data, init: Any = None) -> Any:
        """Vocabularies and the like; `init` are those of a model that training starts from."""

    @abstractmethod
    def assets_to_json(self, assets: Any) -> Any: ...

    @abstractmethod
    def assets_from_json(self, stored: Any) -> Any: ...

    @abstractmethod
    def build(self, config: Any, assets: Any) -> nn.Module:
        """The untrained network."""

    def architecture(self, config: Any) -> dict[str, Any]:
        """What a model that training starts from decides: its own shape, and what its tokens are."""
        keys = {f"model.{name}": value for name, value in config.model.model_dump().items()}
        return keys | {f"data.{name}": getattr(config.data, name) for name in self.inherited}

    def initialize(self, network: nn.Module, config: Any, assets: Any, data: Data) -> None:  # noqa: B027
        """What a new network starts from besides chance: pretrained vectors, the scale of the training data."""

    def transfer(self, old: Model, network: nn.Module, assets: Any) -> None:
        """Gives a new network the weights of a model that training starts from, and its own `assets` more rows."""
        copy_weights(old.network, network)

    @abstractmethod
    def batches(self, config: Any, assets: Any, examples: Any, *, training: bool) -> Batches: ...

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss: ...

    def prepare(self, network: nn.Module, config: Any, batch: Batch, state: Any, done: float) -> Batch:
        """What a training batch becomes before its loss is taken, when `done` of the run is over."""
        return batch

    @abstractmethod
    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        """Scores on batches of the validation examples."""

    @abstractmethod
    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, Any]:
        """Scores on a file of the user's; tables of them too, as dictionaries."""

    def evaluate_with(self, model: Model, path: Any, **options: Any) -> dict[str, Any]:
        """`evaluate_file`, in the way that options of `unrolled eval` ask for, where the task has any."""
        return self.evaluate_file(model, path)

    @abstractmethod
    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """The answer to one input, or to a list of them in its order."""

    def log_prob(self, model: Model, texts: Sequence[str]) -> list[float]:
        """The log-probability of each text, where the task models texts."""
        raise UserError(f"A model of {self.name} gives texts no probability.", "Use one of generate.")

    def embed(self, model: Model, inputs: Any) -> Any:
        """A vector for each input, where the network has an encoder."""
        raise UserError(f"A model of {self.name} has no encoder that gives one vector.")

    def word_vectors(self, model: Model) -> Vectors:
        """The vectors of the words, or other tokens, that the network looks up, where it looks any up."""
        raise UserError(f"A model of {self.name} has no word vectors.", "Give one that reads words, or a vectors file.")

    def run(self, model: Model, request: Request, **options: Any) -> Iterator[str]:
        """What `unrolled run` writes, piece by piece: a line for each input, in their order.

        An input that cannot be read has an empty line, or a record with its error, which is told at once; at the end
        there is one more.
        """
        return self.written(self.answered(model, self.given(model, request), options), request.format)

    def answered(self, model: Model, given: Iterator[Given], options: Mapping[str, Any]) -> Iterator[tuple[Given, Any]]:
        """Each input with its answer, or its error."""
        first = True
        for rows in _chunks(given, self.at_once):
            answers = self.answers(model, [row.input for row in rows], options)
            if first and all(isinstance(answer, UserError) for answer in answers):
                raise answers[0]  # it is the options, or nothing is any good
            first = False
            yield from zip(rows, answers, strict=True)

    def written(self, answered: Iterable[tuple[Given, Any]], format: Format) -> Iterator[str]:
        """Inputs and their answers as lines of a format."""
        columns: list[str] = []
        waiting: list[dict[str, Any]] = []  # of a table: inputs without an answer before the first that has one
        good = failed = 0
        for row, answer in answered:
            if isinstance(answer, UserError):
                failed += 1
                note(str(answer))
                record = with_kept(row.kept, {"input": str(row.input), "error": str(answer)})
                if format == "csv" and not columns:
                    waiting.append(record)
                    continue
            else:
                good += 1
                record = with_kept(row.kept, self.record(row.input, answer))
                if format == "csv" and not columns:
                    columns = [*record, *(["error"] if self.reads_files else [])]
                    yield _csv(columns)
                    yield from (_csv_row(earlier, columns) for earlier in waiting)
            if format == "csv":
                yield _csv_row(record, columns)
            elif format == "jsonl":
                yield json.dumps(record, ensure_ascii=False, default=str) + "\n"
            else:
                yield "\n" if isinstance(answer, UserError) else self.line(row.input, answer)
        if failed:
            raise UserError(f"{failed} of {failed + good} inputs could not be read.", "The others are above.")

    def answers(self, model: Model, inputs: Sequence[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        """What `predict` says of each; a task whose inputs are files has an error in place of one that is no good."""
        answers: Sequence[Any] = self.predict(model, inputs, **options)
        return answers

    def given(self, model: Model, request: Request) -> Iterator[Given]:
        """The inputs that a request means, with what is kept of their rows."""
        if not request.keep:
            yield from map(Given, self.inputs(model, request))
            return
        for file in request.files:
            for row in self.rows(model, file, request.keep):
                yield Given(row.values[0], row.kept)

    def inputs(self, model: Model, request: Request) -> Iterator[Any]:
        """The inputs that a request means: here texts, one on a line."""
        if request.texts is not None:
            yield from request.texts
        for file in request.files:
            for row in self.rows(model, file):
                yield row.values[0]
        yield from self.piped(model, request.lines)

    def piped(self, model: Model, lines: Iterable[str]) -> Iterator[str]:
        """The texts of standard input, as they come: its lines, unless the task reads tables there too."""
        for line in lines:
            yield line.rstrip("\r\n")

    def rows(self, model: Model, file: str, keep: Sequence[str] = ()) -> Sequence[Row]:
        """The texts of a file to be answered: its lines, unless the task reads tables; there with columns to keep."""
        return [Row((line,), f"{file}:{number}") for number, line in enumerate(read_lines(file), 1)]

    def record(self, one: Any, answer: Any) -> dict[str, Any]:
        """An input and its answer for a program to read."""
        return {"input": str(one), "answer": str(answer)}

    def line(self, one: Any, answer: Any) -> str:
        """An answer for a person to read, ended by a new line."""
        return f"{answer}\n"

    def report(self, scores: Mapping[str, Any]) -> str:
        """What `evaluate_file` gave, for a person to read."""
        return table_of({name: value for name, value in scores.items() if not isinstance(value, Mapping)})

    def stream(self, model: Model, **options: Any) -> Any:
        """For input in pieces, where the task allows it."""
        raise UserError(f"A model of {self.name} needs its whole input: it does not stream.")

    def trace(self, model: Model, inputs: Any, **options: Any) -> ModelTrace:
        """Everything that happened inside on one input; `trace_options` can be changed."""
        raise UserError(f"A model of {self.name} cannot be traced.")

    def trace_input(self, model: Model, request: Request) -> Any:
        """The one input that `unrolled inspect` was given."""
        return next(self.inputs(model, request), "")

    def example(self, examples: Any, number: int) -> Any:
        """One of the validation examples that `read` gave: its input as `trace` takes it, or an `Example`."""
        return nth(examples, number).input

    def samples(self, model: Model) -> list[str]:
        """A few fixed examples of what the model does, shown while it learns."""
        return []

    def stateful(self, config: Any) -> bool:
        """Whether the state of a batch is carried to the next."""
        return False

    def window(self, config: Any) -> int | None:
        """How many steps gradients go back; None: the batch's."""
        return None

    def usual_tokens(self, config: Any) -> int | None:
        """The tokens of an update that train.lr is meant for, where it should follow their number."""
        return None

    def judge_start(self, config: Any) -> bool:
        """Whether a new network may be good already, and is evaluated before the first update."""
        return False

    def warnings(self, config: Any, batches: Batches) -> list[str]:
        """What a user should know before a long run."""
        return []

    def roles(self, assets: Any) -> Mapping[str, str]:
        """What each column of the data is to a model, for the beginning of a run and `unrolled info`."""
        return {}

    def remarks(self, model: Model) -> list[str]:
        """What a user should know of a trained model, for the end of a run and `unrolled info`."""
        return []

    def statistics(self, config: Any, data: Data, assets: Any) -> Mapping[str, Any]:
        """Facts about the data, for `unrolled check`."""
        return {}


def nth(examples: Sequence[Any], number: int) -> Any:
    """One of the examples, by its number from 0."""
    if not 0 <= number < len(examples):
        raise UserError(f"There is no example {number}.", f"Expected 0 to {len(examples) - 1:,}.")
    return examples[number]


def table_of(scores: Mapping[str, Any]) -> str:
    """Names and numbers under each other.

    >>> print(table_of({"accuracy": 0.5, "examples": 1200}))
    accuracy  0.5000
    examples  1,200
    """
    width = max(map(len, scores))
    shown = {
        k: f"{v:,}" if isinstance(v, int) else f"{v:.4f}" if isinstance(v, float) else v for k, v in scores.items()
    }
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())


def _chunks(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def with_kept(kept: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """A record after the columns that are kept; one with a name of the record's own is `given_…`.

    >>> with_kept({"id": 7, "label": "bad"}, {"input": "fine", "label": "good"})
    {'id': 7, 'given_label': 'bad', 'input': 'fine', 'label': 'good'}
    """
    return {f"given_{name}" if name in record else name: value for name, value in kept.items()} | dict(record)


def _csv_row(record: Mapping[str, Any], columns: Sequence[str]) -> str:
    """A record as a row of a table; what it does not have is empty."""
    values = (record.get(column, "") for column in columns)
    return _csv([value if isinstance(value, (str, int, float)) else json.dumps(value, default=str) for value in values])


def _csv(row: Sequence[Any]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow(row)
    return file.getvalue()
