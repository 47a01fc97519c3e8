"""From a TOML file and `--set key=value` to a checked configuration; every mistake in one report."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from unrolled.config.describe import Key, S, Section, is_unicode, keys, plain, sections_of, show
from unrolled.errors import UserError, unknown_name

RECIPE, SWEEP = "recipe", "sweep"  # tables of a file that are not for training
FROM_VALIDATORS = ("value_error", "assertion_error")  # pydantic's kinds of errors


class _Value(NamedTuple):
    """A value from a file, a flag or an override; messages about it begin with `where`."""

    path: str
    value: Any
    where: str


Problem = tuple[int, UserError]  # index of the value, for the order of the report


@dataclass(frozen=True)
class TomlFile:
    """A TOML file that was read: its path, its text and its content."""

    path: Path
    text: str
    data: Mapping[str, Any]


def read_config(
    cls: type[S],
    file: TomlFile | Path | None,
    overrides: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
    also: Sequence[UserError] = (),
) -> S:
    """The configuration of a TOML file (or the defaults), changed by `extra`, then by `overrides`, and validated.

    `extra` maps dotted keys to Python values; `overrides` are texts such as "train.lr=3e-4". All mistakes are
    reported in one UserError, and those of `also` with them. A file's tables `recipe` and `sweep` are not for training
    but for `unrolled reproduce` and `unrolled sweep`.

    >>> from pydantic import Field
    >>> from unrolled.config import Section
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    ...     clip_norm: float | None = Field(1.0, description="Largest norm of the gradient.")
    >>> read_config(Train, None, ["lr=.1", "clip_norm=none"])
    Train(lr=0.1, clip_norm=None)
    >>> read_config(Train, None, ["lr=-1", "clip_nrom=2"])
    Traceback (most recent call last):
    unrolled.errors.UserError: The config has 2 mistakes:
      --set: lr=-1 is out of range. Expected a number above 0.
      --set: Unknown key 'clip_nrom'. Did you mean 'clip_norm'?
    """
    known, sections = keys(cls), sections_of(cls)
    changes: list[_Value] = []
    problems: list[Problem] = []
    if file is not None:
        try:
            file = read_toml(file) if isinstance(file, Path) else file
        except UserError as error:
            problems.append((0, error))
        else:
            lines = _line_numbers(file.text)
            data = {name: value for name, value in file.data.items() if name not in (RECIPE, SWEEP) or name in known}
            changes += [_Value(key, value, f"{file.path}:{lines[key]}: ") for key, value in _flatten(data, sections)]
    changes += [_Value(key, value, "") for key, value in _flatten(extra or {}, sections)]
    for override in overrides:
        name, equals, value = override.partition("=")
        name = name.strip()
        if equals and name:
            changes.append(_Value(name, _parse(value, known.get(name)), "--set: "))
        else:
            key = name if name in known else next(iter(known), "key")
            fix = f"Write key=value, such as {key}=..."
            problems.append((len(changes), UserError(f"--set: {override!r} gives no key a value.", fix)))
    problems += [(len(changes), error) for error in also]
    defaults = {key.path: key.default for key in known.values() if key.default is not ...}
    return _build(cls, defaults, changes, problems)


def parsed_value(cls: type[Section], path: str, text: str) -> Any:
    """The value that a text such as that of `--set` gives a key."""
    return _parse(text, keys(cls).get(path))


def unknown_key(cls: type[Section], path: str, value: object = "") -> UserError | None:
    """The error for a path that is not a key, with the nearest one; None for a key."""
    known, sections = keys(cls), sections_of(cls)
    return None if path in known else _misplaced(path, value, known, sections)


def refused(cls: type[Section], path: str, value: Any) -> UserError | None:
    """The error for a value that a key cannot have, whatever the others are; None if it can."""
    known, sections = keys(cls), sections_of(cls)
    values = {key.path: key.default for key in known.values() if key.default is not ...} | {path: value}
    try:
        cls.model_validate_json(_json(values, sections), strict=True)
    except ValidationError as error:
        for detail in error.errors():
            place, problem = _wrong(detail, known, values)
            if place == path and detail["type"] not in FROM_VALIDATORS:
                return problem
    return None


def changes_of(set: Mapping[str, Any] | Sequence[str] | None) -> tuple[list[str], dict[str, Any]]:
    """The texts ("model.cell=gru") and the values of dotted keys in the argument `set` of a function."""
    if not isinstance(set, (Mapping, list, tuple, type(None))):
        raise UserError(
            f"set is {type(set).__name__} {set!r}.", 'Expected {"model.cell": "gru"} or ["model.cell=gru"].'
        )
    return list(set) if isinstance(set, (list, tuple)) else [], dict(set) if isinstance(set, Mapping) else {}


def apply(config: S, dotted: Mapping[str, Any]) -> S:
    """A validated copy of `config` with the values of some dotted keys changed.

    >>> from pydantic import Field
    >>> from unrolled.config import Section
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    >>> apply(Train(), {"lr": 0.1})
    Train(lr=0.1)
    >>> apply(Train(), {"lr": -1})
    Traceback (most recent call last):
    unrolled.errors.UserError: lr=-1 is out of range. Expected a number above 0.
    """
    cls = type(config)
    changes = [_Value(key, value, "") for key, value in _flatten(dotted, sections_of(cls))]
    return _build(cls, {path: attrgetter(path)(config) for path in keys(cls)}, changes, [])


def read_toml(path: Path) -> TomlFile:
    """Read a TOML file; a file that cannot be read is a UserError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"There is no file {str(path)!r}.", "`unrolled new` writes a config.") from None
    except IsADirectoryError:
        raise UserError(f"{str(path)!r} is a directory.", "Expected a TOML file.") from None
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = f"{path}:{line}: Byte {error.start} (0x{raw[error.start]:02x}) is not valid UTF-8."
        raise UserError(problem, "Save the file as UTF-8.") from None
    try:
        return TomlFile(path, text, tomllib.loads(text))
    except RecursionError:
        raise UserError(f"{path}: Lists are nested too deeply.") from None
    except ValueError as error:
        message, _, place = str(error).partition(" (at ")
        lines = text.split("\n")
        line, column = re.findall(r"\d+", place) or (len(lines), len(lines[-1]) + 1)
        fix = 'Text stands in quotes: key = "text".' if message == "Invalid value" else ""
        problem = f"{path}:{line}:{column}: Not valid TOML: {message[:1].lower()}{message[1:]}."
        raise UserError(problem, fix) from None


def _line_numbers(text: str) -> dict[str, int]:
    """The line number of each key of a valid TOML text, found statement by statement."""
    numbers: dict[str, int] = {}
    table, statement, start = "", "", 1
    for number, line in enumerate(text.split("\n"), 1):
        start = start if statement else number
        statement += line + "\n"
        try:
            found = list(_paths(tomllib.loads(statement)))
        except ValueError:
            continue  # the value goes on in the next line
        is_header = statement.lstrip().startswith("[")
        for path in found:
            numbers.setdefault(path if is_header else table + path, start)
        table = f"{found[-1]}." if is_header else table
        statement = ""
    return numbers


def _paths(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in data.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")


def _flatten(data: Mapping[str, Any], sections: Mapping[str, str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of nested tables, opened only where the configuration has a section."""
    for name, value in data.items():
        path = prefix + name
        if path in sections and isinstance(value, dict):
            yield from _flatten(value, sections, f"{path}.")
        else:
            yield path, value


def _parse(text: str, key: Key | None) -> Any:
    """The value of an override: TOML, a number or truth value as Python writes it, or else the bare text."""
    text = text.strip() or text
    kinds, choices = (key.kinds, key.choices) if key else (frozenset(), ())
    if text.lower() == "none" and types.NoneType in kinds and text not in choices:
        return None
    value: Any = {"true": True, "false": False}.get(text.lower(), text)
    try:
        parsed = tomllib.loads(f"value = {text}")
        value = parsed["value"] if parsed.keys() == {"value"} else text
    except (ValueError, RecursionError):
        if re.fullmatch(r"[-+]?(\d+\.|\.\d)\d*(e[-+]?\d+)?", text.lower()):
            value = float(text)
        elif list in kinds and str not in kinds and "," in text:  # 1,24 for [1, 24]
            return _parse(f"[{text}]", key)
    takes_text = str in kinds or any(isinstance(choice, str) for choice in choices)
    kind = type(plain(value))
    fits = value in choices or kind in kinds or (kind is int and float in kinds)
    return text if takes_text and not fits else value


def _build(cls: type[S], base: Mapping[str, Any], changes: Sequence[_Value], problems: list[Problem]) -> S:
    """The configuration of `base` with these values, or one error with all mistakes."""
    known, sections = keys(cls), sections_of(cls)
    values, sources = dict(base), dict[str, int]()
    for index, (path, value, where) in enumerate(changes):
        if path in known:
            is_none = known[path].says_none and isinstance(value, str) and value.lower() == "none"
            values[path], sources[path] = None if is_none else value, index
        else:
            problems.append((index, _at(where, _misplaced(path, value, known, sections))))
    try:
        config = cls.model_validate_json(_json(values, sections), strict=True)
    except ValidationError as error:
        seen: set[str] = set()
        for detail in error.errors():
            path, problem = _wrong(detail, known, values)
            source = sources.get(path, len(changes))
            if path not in seen or path not in known:
                problems.append((source, _at(changes[source].where if path in sources else "", problem)))
            seen.add(path)
    if not problems:
        return config
    errors = [error for _, error in sorted(problems, key=lambda problem: problem[0])]
    if len(errors) == 1:
        raise errors[0] from None
    raise UserError("\n  ".join([f"The config has {len(errors)} mistakes:", *map(str, errors)]))


def _json(values: Mapping[str, Any], sections: Iterable[str]) -> str:
    """Values of dotted keys as nested JSON: its strict mode takes text for a path, a list for a tuple, no text for a
    number.
    """
    nested: dict[str, Any] = {}
    for path in [*sections, *values]:
        *parents, name = path.split(".")
        table = nested
        for parent in parents:
            table = table[parent]
        table[name] = {} if path in sections else plain(values[path])
    return json.dumps(nested)


def _at(where: str, error: UserError) -> UserError:
    return UserError(where + error.problem, error.fix)


def _misplaced(path: str, value: Any, known: Iterable[str], sections: Iterable[str]) -> UserError:
    """The error for a path that is not a key, with the nearest key, or the keys of its section."""
    parent = path
    while parent and parent not in sections:
        parent = parent.rpartition(".")[0]
    inside = ", ".join(sorted(key for key in [*known, *sections] if key.rpartition(".")[0] == parent))
    if path in sections:
        return UserError(f"{path}={show(value)} gives a value to a section.", f"Set one of its keys: {inside}.")
    near = _nearest(path, [*sections, *known] if isinstance(value, dict) else [*known, *sections])
    fix = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Choices: {inside}."
    return UserError(f"Unknown {'section' if isinstance(value, dict) else 'key'} {path!r}.", fix)


def _nearest(path: str, names: Sequence[str]) -> list[str]:
    """Names similar to an unknown path: the same key in other sections, or the most similar one, nearby first."""
    path = path.lower().replace("-", "_")
    parent, _, last = path.rpartition(".")
    if path in names:
        return [path]
    same = [name for name in names if name.rpartition(".")[2] == last]
    if same:
        return difflib.get_close_matches(path, same, n=3, cutoff=0)
    similar: dict[str, float] = {}
    for name in names:
        section, _, key = name.rpartition(".")
        ratio = difflib.SequenceMatcher(None, key, last).ratio()
        if ratio >= 0.6:
            similar[name] = ratio + (0.2 if section == parent else 0.0)
    return [max(similar, key=lambda name: similar[name])] if similar else []


def _wrong(detail: ErrorDetails, known: Mapping[str, Key], values: Mapping[str, Any]) -> tuple[str, UserError]:
    """The path that one of pydantic's errors is about, and the error in plain words."""
    place, kind = [str(part) for part in detail["loc"]], detail["type"]
    path = next((p for n in range(len(place), 0, -1) if (p := ".".join(place[:n])) in known), ".".join(place))
    own = str(detail["ctx"]["error"]) if kind in FROM_VALIDATORS else ""
    if path not in known:
        return path, UserError(f"{path}: {own}" if path else own)
    key = known[path]
    if path not in values:
        return path, UserError(f"{path} is missing.", f"Expected {key.type_text}.")
    value, name = values[path], path
    for index in [part for part in detail["loc"] if isinstance(part, int)]:
        if isinstance(value, (list, tuple)) and index < len(value):
            value, name = value[index], f"{name}[{index}]"
    got = f"{name}={show(value)}"
    if own:
        return path, UserError(f"{got}: {own}")
    if key.only_choices:
        return path, unknown_name(path, value, key.choice_texts)
    if isinstance(value, (str, PurePath)) and not is_unicode(str(value)):
        problem = "is not valid Unicode"
    elif kind.startswith(("greater", "less", "finite")):
        problem = "is out of range"
    elif "too_" in kind or kind == "missing":
        problem = f"has length {len(value)}"
    else:
        problem = f"is {_kind_text(value)}"
    return path, UserError(f"{got} {problem}.", f"Expected {key.type_text}.")


def _kind_text(value: Any) -> str:
    texts = {bool: "a truth value", int: "a whole number", float: "a decimal number", str: "text", Path: "a path"}
    texts |= {list: "a list", tuple: "a list", dict: "a table", types.NoneType: "no value"}
    return next((text for cls, text in texts.items() if isinstance(value, cls)), f"of type {type(value).__name__}")
