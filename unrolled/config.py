"""Configurations: pydantic models are the truth, TOML is their form on disk, `--set a.b=c` changes single keys.

A mistake is told in plain words with the key's path, what was got and what is expected, and all of them at once.
"""

from __future__ import annotations

import difflib
import json
import numbers
import re
import textwrap
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from unrolled.errors import UserError, unknown_name

COMMENT_WIDTH = 100
TYPE_TEXTS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
BOUNDS = {
    "ge": "{} or more",
    "gt": "above {}",
    "le": "{} or less",
    "lt": "below {}",
    "min_length": "of length {} or more",
}


class Section(BaseModel):
    """The base of every part of a configuration: fields with a default and a description.

    Values are bool, int, float, str, Path, Literal, lists and tuples of them, `| None`, or another Section.

    >>> from pydantic import Field
    >>> class Model(Section):
    ...     cell: Literal["lstm", "gru"] = Field("lstm", description="Recurrent cell.")
    ...     hidden_size: int = Field(256, ge=1, description="Units of a layer.")
    >>> Model(cell="gru")
    Model(cell='gru', hidden_size=256)
    """

    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True, protected_namespaces=())


S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Key:
    """One key of a configuration. `default` is `...` where a value has to be given."""

    path: str
    type_text: str  # what is expected, in words, with the bounds
    default: Any
    choices: tuple[Any, ...]
    bounds: str
    meaning: str
    kinds: frozenset[type] = field(default=frozenset(), repr=False)  # types of values, apart from the choices

    @property
    def only_choices(self) -> bool:
        return bool(self.choices) and self.kinds <= {types.NoneType}

    @property
    def choice_texts(self) -> list[str]:
        """The choices as a user writes them, with `none` where nothing is a choice too."""
        return [_show(c).strip("'\"") for c in [*self.choices, *([None] if types.NoneType in self.kinds else [])]]

    @property
    def says_none(self) -> bool:
        """Whether the text "none" can only mean None: TOML has no null."""
        return types.NoneType in self.kinds and str not in self.kinds and "none" not in self.choices


class _Given(NamedTuple):
    """A value from a file, a flag or an override; `where` stands before a message about it."""

    path: str
    value: Any
    where: str


Problem = tuple[int, UserError]  # the number of the given value it is about, which orders the report


def describe(cls: type[Section]) -> list[Key]:
    """All keys of a configuration class, in the order they are declared.

    >>> from pydantic import Field
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    >>> describe(Train)
    [Key(path='lr', type_text='a number above 0', default=0.0003, choices=(), bounds='above 0', meaning='Learning
    rate.')]
    """
    result = []
    for path, info, default in _fields(cls):
        if _is_section(info.annotation):
            continue
        limits = _limits(info.metadata)
        members = [member for member, _ in _members(info.annotation)]
        literals = [value for member in members if get_origin(member) is Literal for value in get_args(member)]
        kinds = frozenset(_kind(member) for member in members if get_origin(member) is not Literal)
        default = ... if default is PydanticUndefined else default
        type_text, meaning = _type_text(info.annotation, limits), info.description or ""
        key = Key(path, type_text, default, tuple(literals), limits, meaning, kinds)
        if types.NoneType in kinds and default is not None and not key.says_none:
            raise TypeError(f"{path}: optional text needs the default None, because TOML has no null.")
        result.append(key)
    return result


def keys(cls: type[Section]) -> dict[str, Key]:
    """All keys of a configuration class by their dotted path.

    >>> from pydantic import Field
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    >>> keys(Train)["lr"].meaning
    'Learning rate.'
    """
    return {key.path: key for key in describe(cls)}


def read_config(
    cls: type[S], path: Path | None, overrides: Sequence[str] = (), extra: Mapping[str, Any] | None = None
) -> S:
    """The configuration of a TOML file (or the defaults), changed by `extra`, then by `overrides`, and validated.

    `extra` maps dotted keys to Python values; `overrides` are texts such as "train.lr=3e-4". All mistakes are
    reported in one UserError.

    >>> from pydantic import Field
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
    known, sections = keys(cls), _sections(cls)
    given: list[_Given] = []
    problems: list[Problem] = []
    if path is not None:
        try:
            text, data = _read_toml(path)
        except UserError as error:
            problems.append((0, error))
        else:
            lines = _line_numbers(text)
            given += [_Given(key, value, f"{path}:{lines[key]}: ") for key, value in _flatten(data, sections)]
    given += [_Given(key, value, "") for key, value in _flatten(extra or {}, sections)]
    for override in overrides:
        name, equals, value = override.partition("=")
        name = name.strip()
        if equals and name:
            given.append(_Given(name, _parse(value, known.get(name)), "--set: "))
        else:
            fix = f"Write key=value, such as {next(iter(known), 'key')}=..."
            problems.append((len(given), UserError(f"--set: {override!r} gives no key a value.", fix)))
    defaults = {key.path: key.default for key in known.values() if key.default is not ...}
    return _build(cls, defaults, given, problems)


def apply(config: S, dotted: Mapping[str, Any]) -> S:
    """A validated copy of `config` with the values of some dotted keys changed.

    >>> from pydantic import Field
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    >>> apply(Train(), {"lr": 0.1})
    Train(lr=0.1)
    >>> apply(Train(), {"lr": -1})
    Traceback (most recent call last):
    unrolled.errors.UserError: lr=-1 is out of range. Expected a number above 0.
    """
    cls = type(config)
    given = [_Given(key, value, "") for key, value in _flatten(dotted, _sections(cls))]
    return _build(cls, {path: attrgetter(path)(config) for path in keys(cls)}, given, [])


def write_toml(config: Section, *, comments: bool, header: str = "") -> str:
    """The TOML text of all keys; `comments` puts meaning, choices or range, and default above each.

    A key whose value is None is written as a comment, or as "none" where its default is something else.

    >>> from pydantic import Field
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    ...     steps: int | None = Field(None, ge=1, description="Stop after so many steps.")
    >>> print(write_toml(Train(lr=0.1), comments=True), end="")
    # Learning rate. A number above 0. Default: 0.0003.
    lr = 0.1
    <BLANKLINE>
    # Stop after so many steps. A whole number, 1 or more, or none. Default: none.
    # steps =
    """
    clean = re.sub(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", " ", header)  # TOML allows none of these
    blocks = ["\n".join(f"# {line}".rstrip() for line in clean.split("\n"))] if header else []
    known = describe(type(config))
    for section, meaning in {"": "", **_sections(type(config))}.items():
        block = [_comment(_sentence(meaning))] if comments and meaning else []
        block += [f"[{section}]"] if section else []
        for key in known:
            parent, _, name = key.path.rpartition(".")
            if parent != section:
                continue
            if comments:
                blocks.append("\n".join(block))
                block = [_comment(_explain(key))]
            value = attrgetter(key.path)(config)
            if value is None:
                block.append(f"# {name} =" if key.default is None else f'{name} = "none"')
            else:
                block.append(f"{name} = {_toml(value)}")
        blocks.append("\n".join(block))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _fields(cls: type[Section], default: object = None, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """(path, field, default) of every key and section; a section's own default decides for the keys in it."""
    for name, info in cls.model_fields.items():
        own = info.get_default(call_default_factory=True)
        value = getattr(default, name) if isinstance(default, Section) else own
        yield prefix + name, info, value
        if _is_section(info.annotation):
            yield from _fields(info.annotation, value, f"{prefix}{name}.")


def _is_section(annotation: Any) -> TypeGuard[type[Section]]:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _sections(cls: type[Section]) -> dict[str, str]:
    return {path: info.description or "" for path, info, _ in _fields(cls) if _is_section(info.annotation)}


def _members(annotation: Any, limits: str = "") -> Iterator[tuple[Any, str]]:
    """The alternatives of a type, each with its own limits: `Annotated[int, Ge(1)] | None` has two."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        yield from _members(inner, _limits(metadata) or limits)
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member, limits)
    else:
        yield annotation, limits


def _kind(member: Any) -> type:
    """The type a value of a TOML file has for this member of an annotation."""
    if get_origin(member) in (list, tuple):
        return list
    if member not in (*TYPE_TEXTS, types.NoneType):
        raise TypeError(f"{member} cannot be a key of a configuration.")
    return str if member is Path else member


def _type_text(annotation: Any, limits: str = "") -> str:
    """What a value has to be, in words: "a whole number, 1 or more, or none"."""
    texts = []
    for member, limit in _members(annotation, limits):
        inner = get_args(member)
        if member is types.NoneType:
            texts.append("none")
        elif get_origin(member) is Literal:
            texts.append(("one of " if len(inner) > 1 else "") + ", ".join(_toml(value) for value in inner))
        elif get_origin(member) in (list, tuple):
            text = f"a list {limit}".rstrip()
            same = get_origin(member) is list or inner[1:] == (...,)
            each = ", ".join(_type_text(item) for item in inner)
            texts.append(f"{text}, each {_type_text(inner[0])}" if same else f"{text} of {len(inner)}: {each}")
        else:
            joint = " " if limit[:1].isalpha() else ", "
            texts.append(f"{TYPE_TEXTS[member]}{joint if limit else ''}{limit}")
    return (", or " if any("," in text for text in texts) else " or ").join(texts)


def _limits(metadata: Iterable[Any]) -> str:
    """Bounds in words: "1 or more", "above 0", "from 0 to 1"."""
    found: dict[str, Any] = {}
    for item in metadata:
        for part in item.metadata if isinstance(item, FieldInfo) else [item]:
            found |= {name: _plain(bound) for name in BOUNDS if (bound := getattr(part, name, None)) is not None}
    if found.keys() == {"ge", "le"}:
        return f"from {found['ge']} to {found['le']}"
    if found.keys() == {"ge", "lt"}:
        return f"from {found['ge']} up to, not including, {found['lt']}"
    return " and ".join(text.format(found[name]) for name, text in BOUNDS.items() if name in found)


def _read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """A TOML file's text and content; whatever stands in the way becomes a UserError."""
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
        return text, tomllib.loads(text)
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
    """The line each key of a valid TOML text stands on, found by reading statement by statement."""
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
    takes_text = str in kinds or any(isinstance(choice, str) for choice in choices)
    kind = type(_plain(value))
    fits = value in choices or kind in kinds or (kind is int and float in kinds)
    return text if takes_text and not fits else value


def _plain(value: Any) -> Any:
    """A value as JSON has it: 1e4 is the whole number 10000, a path is text; what cannot be a value is {}."""
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int)):  # NumPy's numbers too
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return _plain(str(value))
    if isinstance(value, str) and not _is_unicode(value):
        return {}
    return value if value is None or isinstance(value, (bool, int, float, str)) else {}


def _is_unicode(text: str) -> bool:
    """Whether a text can be written to a file: names of files that are not UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _build(cls: type[S], base: Mapping[str, Any], given: Sequence[_Given], problems: list[Problem]) -> S:
    """The configuration of `base` changed by what was given, or one error with all that is wrong."""
    known, sections = keys(cls), _sections(cls)
    values, sources = dict(base), dict[str, int]()
    for index, (path, value, where) in enumerate(given):
        if path in known:
            is_none = known[path].says_none and isinstance(value, str) and value.lower() == "none"
            values[path], sources[path] = None if is_none else value, index
        else:
            problems.append((index, _at(where, _misplaced(path, value, known, sections))))
    nested: dict[str, Any] = {}
    for path in [*sections, *values]:
        *parents, name = path.split(".")
        table = nested
        for parent in parents:
            table = table[parent]
        table[name] = {} if path in sections else _plain(values[path])
    try:
        # JSON, because its strict mode takes text for a path and a list for a tuple, but no text for a number.
        config = cls.model_validate_json(json.dumps(nested), strict=True)
    except ValidationError as error:
        seen: set[str] = set()
        for detail in error.errors():
            path, problem = _wrong(detail, known, values)
            source = sources.get(path, len(given))
            if path not in seen or path not in known:
                problems.append((source, _at(given[source].where if path in sources else "", problem)))
            seen.add(path)
    if not problems:
        return config
    errors = [error for _, error in sorted(problems, key=lambda problem: problem[0])]
    if len(errors) == 1:
        raise errors[0] from None
    raise UserError("\n  ".join([f"The config has {len(errors)} mistakes:", *map(str, errors)]))


def _at(where: str, error: UserError) -> UserError:
    return UserError(where + error.problem, error.fix)


def _misplaced(path: str, value: Any, known: Iterable[str], sections: Iterable[str]) -> UserError:
    """The error for a path that is no key, with the nearest key, or the keys that would be there."""
    parent = path
    while parent and parent not in sections:
        parent = parent.rpartition(".")[0]
    inside = ", ".join(sorted(key for key in [*known, *sections] if key.rpartition(".")[0] == parent))
    if path in sections:
        return UserError(f"{path}={_show(value)} gives a value to a section.", f"Set one of its keys: {inside}.")
    near = _nearest(path, [*sections, *known] if isinstance(value, dict) else [*known, *sections])
    fix = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Choices: {inside}."
    return UserError(f"Unknown {'section' if isinstance(value, dict) else 'key'} {path!r}.", fix)


def _nearest(path: str, names: Sequence[str]) -> list[str]:
    """The names a mistaken path may mean: the same key in other sections, or the most similar one, best beside it."""
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
    own = str(detail["ctx"]["error"]) if kind in ("value_error", "assertion_error") else ""  # from a validator
    if path not in known:
        return path, UserError(f"{path}: {own}" if path else own)
    key = known[path]
    if path not in values:
        return path, UserError(f"{path} is missing.", f"Expected {key.type_text}.")
    value, name = values[path], path
    for index in [part for part in detail["loc"] if isinstance(part, int)]:
        if isinstance(value, (list, tuple)) and index < len(value):
            value, name = value[index], f"{name}[{index}]"
    got = f"{name}={_show(value)}"
    if own:
        return path, UserError(f"{got}: {own}")
    if key.only_choices:
        return path, unknown_name(path, value, key.choice_texts)
    if isinstance(value, (str, PurePath)) and not _is_unicode(str(value)):
        problem = "is not valid Unicode"
    elif kind.startswith(("greater", "less")):
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


def _show(value: Any) -> str:
    """A value in a message: as it was written, cut where it is long."""
    text = str(value).lower() if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, PurePath)):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    raise TypeError(f"TOML cannot hold {value!r}.")


def _explain(key: Key) -> str:
    """A key's comment: its meaning, what it can be, its default."""
    text = f"choices: {', '.join(key.choice_texts)}" if key.only_choices else key.type_text
    can_be = text[:1].upper() + text[1:]
    default = "none" if key.default is None else "" if key.default is ... else _toml(key.default)
    parts = [_sentence(key.meaning), _sentence(can_be), f"Default: {default}." if default else "Required."]
    return " ".join(part for part in parts if part)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else f"{text}."


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, COMMENT_WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)
