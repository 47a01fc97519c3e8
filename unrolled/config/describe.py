"""Sections and keys of a configuration, and their description in words."""

from __future__ import annotations

import json
import numbers
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

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

    model_config = ConfigDict(
        extra="forbid", validate_default=True, frozen=True, protected_namespaces=(), allow_inf_nan=False
    )


S = TypeVar("S", bound=Section)
Condition = tuple[str, list[dict[str, Any]]]
"""A section, and alternatives of what a key belongs to, in names as that section sees them (`unrolled.config.applies`).
"""


@dataclass(frozen=True)
class Key:
    """One key of a configuration. `default` is `...` where a value is required."""

    path: str
    type_text: str  # what is expected, in words, with the bounds
    default: Any
    choices: tuple[Any, ...]
    bounds: str
    meaning: str
    kinds: frozenset[type] = field(default=frozenset(), repr=False)  # types of values, apart from the choices
    only: tuple[Condition, ...] = field(default=(), repr=False)  # of the key and of the sections around it
    asking: Any = field(default=None, repr=False)  # an `AskingValue`: a value that asks for another key

    @property
    def only_choices(self) -> bool:
        return bool(self.choices) and self.kinds <= {types.NoneType}

    @property
    def choice_texts(self) -> list[str]:
        """The choices as a user writes them, with `none` where the key is optional."""
        return [show(c).strip("'\"") for c in [*self.choices, *([None] if types.NoneType in self.kinds else [])]]

    @property
    def says_none(self) -> bool:
        """True if the text "none" can only mean None: TOML has no null."""
        return types.NoneType in self.kinds and str not in self.kinds and "none" not in self.choices


def describe(cls: type[Section]) -> list[Key]:
    """All keys of a configuration class, in the order they are declared.

    >>> from pydantic import Field
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    >>> describe(Train)
    [Key(path='lr', type_text='a number above 0', default=0.0003, choices=(), bounds='above 0', meaning='Learning
    rate.')]
    """
    return list(_described(cls))


@lru_cache(maxsize=64)  # a run asks a dozen times
def _described(cls: type[Section]) -> tuple[Key, ...]:
    result: list[Key] = []
    around: dict[str, tuple[Condition, ...]] = {"": ()}
    for path, info, default in _fields(cls):
        section = path.rpartition(".")[0]
        extra = info.json_schema_extra
        own = (section, extra["only"]) if isinstance(extra, dict) and "only" in extra else None
        conditions: Any = (*around[section], *([own] if own else []))
        if is_section(info.annotation):
            around[path] = conditions
            continue
        limits = _limits(info.metadata)
        members = [member for member, _ in _members(info.annotation)]
        literals = [value for member in members if get_origin(member) is Literal for value in get_args(member)]
        kinds = frozenset(_kind(member) for member in members if get_origin(member) is not Literal)
        default = ... if default is PydanticUndefined else default
        type_text, meaning = _type_text(info.annotation, limits), info.description or ""
        asked = extra.get("asking") if isinstance(extra, dict) else None
        key = Key(path, type_text, default, tuple(literals), limits, meaning, kinds, conditions, asked)
        if types.NoneType in kinds and default is not None and not key.says_none:
            raise TypeError(f"{path}: optional text needs the default None, because TOML has no null.")
        result.append(key)
    return tuple(result)


def keys(cls: type[Section]) -> dict[str, Key]:
    """All keys of a configuration class by their dotted path.

    >>> from pydantic import Field
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    >>> keys(Train)["lr"].meaning
    'Learning rate.'
    """
    return {key.path: key for key in describe(cls)}


def _fields(cls: type[Section], default: object = None, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """(path, field, default) of every key and section; a section's own default decides for the keys in it."""
    for name, info in cls.model_fields.items():
        own = info.get_default(call_default_factory=True)
        value = getattr(default, name) if isinstance(default, Section) else own
        yield prefix + name, info, value
        if is_section(info.annotation):
            yield from _fields(info.annotation, value, f"{prefix}{name}.")


def is_section(annotation: Any) -> TypeGuard[type[Section]]:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def sections_of(cls: type[Section]) -> dict[str, str]:
    """The meaning of each section, by its dotted path."""
    return dict(_sections(cls))


@lru_cache(maxsize=64)
def _sections(cls: type[Section]) -> tuple[tuple[str, str], ...]:
    return tuple((path, info.description or "") for path, info, _ in _fields(cls) if is_section(info.annotation))


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
    """The expected value in words: "a whole number, 1 or more, or none"."""
    texts = []
    for member, limit in _members(annotation, limits):
        inner = get_args(member)
        if member is types.NoneType:
            texts.append("none")
        elif get_origin(member) is Literal:
            texts.append(("one of " if len(inner) > 1 else "") + ", ".join(toml_value(value) for value in inner))
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
            found |= {name: plain(bound) for name in BOUNDS if (bound := getattr(part, name, None)) is not None}
    if found.keys() == {"ge", "le"}:
        return f"from {found['ge']} to {found['le']}"
    if found.keys() == {"ge", "lt"}:
        return f"from {found['ge']} up to, not including, {found['lt']}"
    return " and ".join(text.format(found[name]) for name, text in BOUNDS.items() if name in found)


def plain(value: Any) -> Any:
    """A value as JSON has it: 1e4 is the whole number 10000, a path is text; {} stands for an impossible value."""
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int)):  # NumPy's numbers too
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return plain(str(value))
    if isinstance(value, str) and not is_unicode(value):
        return {}
    return value if value is None or isinstance(value, (bool, int, float, str)) else {}


def is_unicode(text: str) -> bool:
    """True if a text can be written to a file: file names that are not UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def show(value: Any) -> str:
    """A value in a message: as it was written, cut where it is long."""
    text = str(value).lower() if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, PurePath)):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    raise TypeError(f"TOML cannot hold {value!r}.")
