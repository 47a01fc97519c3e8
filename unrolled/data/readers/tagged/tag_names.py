"""Tags that are whole numbers, as in Hugging Face's datasets: their column and their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unrolled.config.stored import parsed
from unrolled.data.memory.held import held, rows_of
from unrolled.data.readers.tables.records import json_records, open_parquet
from unrolled.data.readers.text import read_text
from unrolled.errors import UserError, note

WORDS = ("tokens", "words")
TAGS = ("tags", "labels")


def usual_columns(path: Path, words: str | None, tags: str | None) -> tuple[str, str]:
    """The columns of words and tags of JSON lines or Parquet: the configured ones, or the usual names.

    A single column such as `ner_tags` is recognised too.
    """
    known = column_names(path)
    words = words or next((name for name in WORDS if name in known), WORDS[0])
    if tags is not None or TAGS[0] in known:
        return words, tags or TAGS[0]
    likely = [name for name in known if name in TAGS or name.endswith(("_tags", "_labels"))]
    if len(likely) > 1:
        raise UserError(f"{path} has several columns of tags: {', '.join(likely)}.", "Say which: data.tag_column.")
    return words, likely[0] if likely else TAGS[0]


def column_names(path: Path) -> list[str]:
    """The names in a Parquet file, in the first record of a JSON file, or of rows in memory."""
    if (given := rows_of(path)) is not None:
        return list(given.as_roles((WORDS[0], TAGS[0])).names)
    if path.suffix == ".parquet":
        return list(_schema(path).names)
    _, record = next(json_records(path), ("", {}))
    return list(map(str, record))


def stored_names(path: Path, column: str) -> list[str] | None:
    """The names of a column's tags in the metadata of a Parquet file by Hugging Face."""
    schema = _schema(path) if path.suffix == ".parquet" and held(path) is None else None
    if schema is None or not schema.metadata or b"huggingface" not in schema.metadata:
        return None
    try:
        features = parsed(schema.metadata[b"huggingface"])["info"]["features"]
        return _names_in(features[column])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def parse_tag_names(value: str | Sequence[str]) -> list[str]:
    """The names in data.tag_names: a list, text separated by commas, or a file with one per line or a JSON list."""
    if not isinstance(value, str):
        return [str(name) for name in value]
    path = Path(value)
    if "," in value and not path.is_file():
        return [name.strip() for name in value.split(",")]
    text = read_text(path)
    if text.lstrip()[:1] in "[{":
        try:
            found = _names_in(parsed(text))
        except (ValueError, RecursionError):
            found = None
        if found is None:
            raise UserError(f"{path} has no list of names.", 'Expected ["O", "B-PER", …], or a name on each line.')
        return found
    return [line.strip() for line in text.split("\n") if line.strip()]


def tags_of_numbers(numbers: Sequence[int], names: Sequence[str] | None, column: str, place: str) -> tuple[str, ...]:
    """The names of tags that are numbers; without any, the numbers themselves."""
    if names is None:
        return tuple(map(str, numbers))
    for number in numbers:
        if not 0 <= number < len(names):
            raise UserError(
                f"{place}: {column} holds {number}, and there are {len(names)} names.",
                f"Expected numbers from 0 to {len(names) - 1}; set data.tag_names.",
            )
    return tuple(names[number] for number in numbers)


def note_unnamed_tags(path: Path, column: str) -> None:
    note(
        f"{path}: {column} are whole numbers without names: the tags are '0', '1', …. "
        "Give their names with data.tag_names."
    )


def _names_in(value: Any) -> list[str] | None:
    """The first list of names in a JSON value: the list itself, or the value of `names`."""
    if isinstance(value, list):
        return value if value and all(isinstance(name, str) for name in value) else None
    if not isinstance(value, dict):
        return None
    inner = [value["names"]] if "names" in value else [value[key] for key in value]
    return next((found for one in inner if (found := _names_in(one)) is not None), None)


def _schema(path: Path) -> Any:
    """The schema of a Parquet file, with its metadata."""
    return open_parquet(path).schema_arrow
