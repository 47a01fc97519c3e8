"""The work of every process: a model, how it reads and writes, and the answers to a part of the inputs."""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from unrolled.corpus.loading import load_either, with_text_scorer
from unrolled.errors import Note, UserError
from unrolled.tasks.answer_lines import AnswerLines, Format
from unrolled.tasks.runner import Input

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class CorpusWork:
    """A model by its path, and the options of `unrolled run`, as they were given: texts and numbers."""

    model: str
    format: Format
    options: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] | Sequence[str] | None = None  # of the keys about reading a file
    device: str = "cpu"
    own: str | None = None  # FILE.py:CLASS of a task of the user's


def place_of(task: Any) -> str | None:
    """The file and class of a task of the user's, for other processes; None for a built-in task."""
    if task is None or type(task).__module__.startswith("unrolled."):
        return None
    module, name = sys.modules[type(task).__module__], type(task).__qualname__
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None or not name.isidentifier():
        raise UserError(
            f"Other processes cannot import the task {name}: it is not in a file of its own.",
            "Put the class into a Python file and import it from there.",
        )
    return f"{file}:{name}"


@dataclass(frozen=True)
class CorpusPart:
    """Inputs to answer, of which the first is number `first`; `columns` are those of a csv, if they are known."""

    first: int
    inputs: Sequence[Input]
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Answered:
    """The lines of a part, and what is to be told of it."""

    text: str
    inputs: int
    failed: int
    columns: Sequence[str]
    errors: Sequence[str]
    notes: Sequence[str]
    counts: Mapping[str, int]


class Office:
    """A loaded model at its work."""

    def __init__(self, work: CorpusWork, model: Any = None) -> None:
        self.work = work
        self.model = (load(work) if model is None else model).read_as(work.changes)
        if hasattr(self.model.task, "check"):  # of an exported model, which lacks some options
            self.model.task.check(work.options)
        self.runner = self.model.runner

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options with their files read."""
        return dict(self.runner.prepared(with_text_scorer(self.work.options, self.work.device), self.work.format))

    @property
    def header(self) -> str:
        header: str = self.runner.header(self.options, self.work.format)
        return header

    def answer(self, part: CorpusPart) -> Answered:
        errors: list[str] = []
        lines = AnswerLines(self.runner, self.work.format, part.columns, report=errors.append)
        with collected_notes() as notes:
            counts = self.runner.counts(part.inputs)
            text = "".join(self.runner.part(part.inputs, part.first, self.options, lines))
        return Answered(text, len(part.inputs), lines.failed, lines.columns, errors, notes, counts)


def load(work: CorpusWork) -> Any:
    """The model, its weights mapped into memory."""
    task = None
    if work.own is not None:
        from unrolled.tasks.own import load_task  # it needs torch

        task = load_task(work.own)
    return load_either(work.model, task, work.device, mapped=True)


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """The notes of a block, which are not shown."""
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", Note)
        usual = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, Note):
                found.append(str(message))
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = keep
        yield found


class Notes:
    """Notes of many parts: those that differ by their first number alone are one, with the sum.

    >>> notes = Notes({})
    >>> notes.add(["3 texts were cut."]), notes.add(["2 texts were cut."]), notes.texts()
    (None, None, ['5 texts were cut.'])
    """

    def __init__(self, sums: Mapping[str, int]) -> None:
        self.sums = Counter(sums)

    def add(self, notes: Sequence[str]) -> None:
        for text in notes:
            number = _NUMBER.search(text)
            self.sums[_NUMBER.sub("\0", text, count=1)] += int(number[0]) if number else 0

    def texts(self) -> list[str]:
        return [text.replace("\0", str(total)) for text, total in self.sums.items()]
