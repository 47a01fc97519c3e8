"""Data in memory where readers expect paths: a name goes where a path goes, and the readers find the data by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unrolled.config import MEMORY, in_memory
from unrolled.data.memory.objects import source_of
from unrolled.data.memory.sources import HeldArrays, HeldRows, HeldTexts, Source
from unrolled.errors import UserError
from unrolled.text.files import not_held

_HELD: ContextVar[Mapping[str, Source]] = ContextVar("data in memory", default=MappingProxyType({}))


@contextmanager
def given(**data: Any) -> Iterator[dict[str, str]]:
    """A block in which readers find data in memory by its name; gives the path or name of each that is not None.

    >>> with given(train=[("a fine film", "good")], valid="valid.csv") as names:
    ...     names["valid"], held(names["train"]).title
    ('valid.csv', 'list of 1 pair')
    """
    data = {key: value for key, value in data.items() if value is not None}
    _check_once(data)
    names, sources = dict[str, str](), dict[str, Source]()
    for key, value in data.items():
        if isinstance(value, (str, PathLike)):
            names[key] = fspath(value)
            continue
        source = source_of(value, key)
        names[key] = f"{MEMORY}{source.title}#{source.digest[:16]}"
        sources[names[key]] = source  # the same name means the same content
    before = _HELD.get()
    _HELD.set({**before, **sources})
    try:
        yield names
    except UserError as error:
        raise _by_title(error, sources) from error.__cause__
    finally:
        _HELD.set(before)
        for source in sources.values():
            source.close()


def held(path: str | Path) -> Source | None:
    """The data in memory of a name; None for the path of a file."""
    if not in_memory(path):
        return None
    source = _HELD.get().get(str(path))
    if source is None:
        raise not_held(path)
    return source


def check_held(paths: Iterable[str], folder: object = "FOLDER") -> None:
    """An error for a name of data that is not in memory; `folder` is that of the run."""
    for path in paths:
        if in_memory(path) and path not in _HELD.get():
            raise not_held(path, folder)


def rows_of(path: str | Path) -> HeldRows | None:
    """The rows in memory of a name; None for the path of a file, and for data of another kind."""
    source = held(path)
    return source if isinstance(source, HeldRows) else None


def arrays_of(path: str | Path) -> HeldArrays | None:
    """The arrays in memory of a name; None for the path of a file, and for data of another kind."""
    source = held(path)
    return source if isinstance(source, HeldArrays) else None


def texts_of(path: str | Path) -> HeldTexts | None:
    """The texts in memory of a name; None for the path of a file. Other data is an error."""
    source = held(path)
    if source is None or isinstance(source, HeldTexts):
        return source
    raise UserError(f"{source.title} holds no plain texts.", "Give a list or an iterator of texts, or a file.")


def shown(path: str | Path) -> Path:
    """The path for messages: of data in memory its title."""
    source = held(path)
    return Path(path) if source is None else Path(source.title)


def _check_once(data: Mapping[str, Any]) -> None:
    """Reject one iterator in two places: the first would leave nothing for the second."""
    seen = dict[int, str]()
    for key, value in data.items():
        if hasattr(value, "__next__"):
            if id(value) in seen:
                raise UserError(
                    f"{seen[id(value)]} and {key} are the same {type(value).__name__}, which can be read only once.",
                    "Make a list of it: list(…), or give each its own.",
                )
            seen[id(value)] = key


def _by_title(error: UserError, sources: Mapping[str, Source]) -> UserError:
    """The same error with titles in the place of names."""
    problem, fix = error.problem, error.fix
    for name, source in sources.items():
        problem, fix = problem.replace(name, source.title), fix.replace(name, source.title)
    if (problem, fix) == (error.problem, error.fix):
        return error
    return UserError(problem, fix)
