"""Inputs and their answers as lines of text, jsonl or csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from unrolled.errors import UserError, note

Format = Literal["text", "jsonl", "csv"]
FORMATS = get_args(Format)


class AnswerForms(Protocol):
    """The part of a runner that says how an answer looks."""

    @property
    def reads_files(self) -> bool: ...
    def record(self, one: Any, answer: Any) -> dict[str, Any]: ...
    def line(self, one: Any, answer: Any) -> str: ...


class AnswerLines:
    """Writes answers one after the other, and counts those that are errors.

    `columns` are those of a csv whose first rows were written before; without them the first answer decides, and a
    header comes first.
    """

    def __init__(
        self,
        forms: AnswerForms,
        format: Format,
        columns: Sequence[str] = (),
        report: Callable[[str], object] = note,
    ) -> None:
        self.forms, self.format, self.columns, self.report = forms, format, list(columns), report
        self._waiting: list[dict[str, Any]] = []  # errors before the first answer, whose record names the columns
        self.total = self.failed = 0

    def __call__(self, one: Any, answer: Any, kept: Mapping[str, Any]) -> str:
        """The line of an answer or of an error, with the columns kept from its row; several for an n-best list."""
        self.total += 1
        if wrong := isinstance(answer, UserError):
            self.failed += 1
            self.report(str(answer))
        if self.format == "text":
            return "\n" if wrong else self.forms.line(one, answer)
        found = {"input": str(one), "error": str(answer)} if wrong else self.forms.record(one, answer)
        record = with_kept(kept, found)
        if self.format == "jsonl":
            return json.dumps(record, ensure_ascii=False, default=str) + "\n"
        if wrong and not self.columns:
            self._waiting.append(record)
            return ""
        header = ""
        if not self.columns:
            self.columns = [*record, *(["error"] if self.forms.reads_files else [])]
            header = csv_line(self.columns) + "".join(_csv_row(earlier, self.columns) for earlier in self._waiting)
        return header + _csv_row(record, self.columns)


class NotAllRead(UserError):
    """The error at the end of a run in which some inputs could not be read."""

    def __init__(self, failed: int, total: int, place: str = "above") -> None:
        super().__init__(f"{failed} of {total} inputs could not be read.", f"The others are {place}.")
        self.failed, self.total = failed, total


def with_kept(kept: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """A record after its kept columns; a column with the name of a record's key becomes `given_…`.

    >>> with_kept({"id": 7, "label": "bad"}, {"input": "fine", "label": "good"})
    {'id': 7, 'given_label': 'bad', 'input': 'fine', 'label': 'good'}
    """
    return {f"given_{name}" if name in record else name: value for name, value in kept.items()} | dict(record)


def _csv_row(record: Mapping[str, Any], columns: Sequence[str]) -> str:
    """A record as a row of a table; missing values are empty."""
    values = (record.get(column, "") for column in columns)
    return csv_line(
        [value if isinstance(value, (str, int, float)) else json.dumps(value, default=str) for value in values]
    )


def csv_line(row: Sequence[Any]) -> str:
    """Values as a line of CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow(row)
    return file.getvalue()
