"""Records of names and values: JSON lines, lists in JSON, Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unrolled.config.stored import parsed
from unrolled.data.readers.tables.parquet import reading_parquet
from unrolled.data.readers.text import read_text
from unrolled.data.readers.text_lines import TextLines
from unrolled.errors import UserError
from unrolled.text.files import suffix_of

ON_LINES = "Expected one object on each line."
IN_A_LIST = 'Expected a list of objects, [{"text": …}, …]; pandas writes one with to_json(orient="records").'
_MISSING = object()


def json_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a .jsonl file, one on each line, or of a .json file that is one list of them; with their places.

    A .json file may have one object on each line too.
    """
    suffix = suffix_of(path)
    text = read_text(path) if suffix == ".json" else ""
    if text.lstrip().startswith("["):
        whole = _parsed(text, str(path), IN_A_LIST)
        for number, record in enumerate(whole, 1):
            place = f"{path}, record {number}"
            if not isinstance(record, dict):
                raise UserError(f"{place} is {type(record).__name__}.", IN_A_LIST)
            yield place, record
        return
    for number, line in enumerate(text.split("\n") if suffix == ".json" else TextLines(path), 1):
        if not line.strip():
            continue
        try:
            record = _parsed(line, f"{path}:{number}", ON_LINES)
        except UserError:
            if suffix == ".json" and number == 1 and _is_object(text):  # over several lines
                raise UserError(f"{path} is one object.", IN_A_LIST) from None
            raise
        if not isinstance(record, dict):
            raise UserError(f"{path}:{number} is {type(record).__name__}.", ON_LINES)
        if suffix == ".json" and number == 1 and "\n" not in text.strip() and _holds_tables(record):
            raise UserError(f"{path} is one object.", IN_A_LIST)
        yield f"{path}:{number}", record


def parquet_records(path: Path, columns: list[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a Parquet file, of these columns or of all, with their places."""
    file = open_parquet(path)
    number = 0
    with reading_parquet(path):
        for part in file.iter_batches(columns=columns):
            for record in part.to_pylist():
                number += 1
                yield f"{path}:{number}", record


def open_parquet(path: Path) -> Any:
    """An open Parquet file; its rows are not read yet."""
    import pyarrow.parquet

    with reading_parquet(path):
        return pyarrow.parquet.ParquetFile(path)


def value_of(record: Mapping[str, Any], name: str) -> Any:
    """The value of a name in a record; `doc.body` is the body inside doc. KeyError if it is missing.

    >>> value_of({"doc": {"body": "a text"}, "a.b": 1}, "doc.body"), value_of({"a.b": 1}, "a.b")
    ('a text', 1)
    """
    if name in record:
        return record[name]
    first, dot, rest = name.partition(".")
    while dot:
        inside = record.get(first, _MISSING)
        if isinstance(inside, Mapping):
            return value_of(inside, rest)
        more, dot, rest = rest.partition(".")
        first = f"{first}.{more}"
    raise KeyError(name)


def names_in(record: Mapping[str, Any]) -> list[str]:
    """The names of all values, with dots for nested objects.

    >>> names_in({"doc": {"title": "", "body": ""}, "id": 1})
    ['doc.title', 'doc.body', 'id']
    """
    found = []
    for name, value in record.items():
        inside = names_in(value) if isinstance(value, Mapping) and value else None
        found += [str(name)] if inside is None else [f"{name}.{one}" for one in inside]
    return found


def _parsed(text: str, place: str, fix: str) -> Any:
    try:
        return parsed(text)
    except ValueError as error:
        raise UserError(f"{place} is not JSON: {error}.", fix) from None


def _is_object(text: str) -> bool:
    try:
        return isinstance(parsed(text), dict)
    except ValueError:
        return False


def _holds_tables(record: Mapping[str, Any]) -> bool:
    """True if an object is a whole table, not a row: its values are lists of records, or columns."""
    values = list(record.values())
    columns = bool(values) and all(isinstance(value, dict) for value in values)
    return columns or any(isinstance(value, list) and value and isinstance(value[0], dict) for value in values)
