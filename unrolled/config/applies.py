"""Keys that belong to some models only: an error for one that is set and does nothing for the model at hand.

A key says beside its meaning what it belongs to, by the values of other keys or by facts about the data:

    peephole: … = Field("none", json_schema_extra=only(cell="lstm"), description=…)

A name is looked up in the key's own section, then in those around it. A name that none of them has, such as `kind`
where there is one kind of model, sets no condition; neither does "auto" before the data has decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from unrolled.config.describe import Key, Section, keys, show
from unrolled.config.reading import apply
from unrolled.errors import UserError

AUTO = "auto"


@dataclass(frozen=True)
class But:
    """Any value except these."""

    values: tuple[Any, ...]


def but(*values: Any) -> But:
    """A condition of `only`: any value except these."""
    return But(values)


def only(*alternatives: Mapping[str, Any], **conditions: Any) -> dict[str, Any]:
    """The keys that a key belongs to, for its Field: a value, one of a tuple, or `but(...)`, for each name.

    Of several alternatives one has to hold.
    """
    return {"only": [dict(one) for one in alternatives] or [conditions]}


class AskingValue(NamedTuple):
    """A value of a key that asks for another key of its section, which must not be left as it is."""

    value: Any
    name: str
    left: Any
    why: str
    fix: str


def asking(value: Any, name: str, left: Any, *, why: str, fix: str) -> dict[str, Any]:
    """For a Field: the value of its key that asks for the key `name` to be other than `left`; otherwise an error."""
    return {"asking": AskingValue(value, name, left, why, fix)}


def check_keys(
    config: Section, facts: Mapping[str, Any], *, data_read: bool = True, decided: Sequence[str] = ()
) -> None:
    """An error for keys that are set, differ from their default, and do nothing for this model.

    facts: by name, what the data made of keys that were left to it; before the data is read, "auto" may become any
    value. decided: keys and sections that a model to start from decides, whatever they say.

    >>> from pydantic import Field
    >>> class Model(Section):
    ...     cell: str = Field("lstm", description="Recurrent cell.")
    ...     peephole: bool = Field(False, json_schema_extra=only(cell="lstm"), description="Gates read the cell state.")
    >>> check_keys(Model(peephole=True), {})
    >>> check_keys(Model(cell="gru", peephole=True), {})
    Traceback (most recent call last):
    unrolled.errors.UserError: peephole=true does nothing here: it belongs to cell=lstm, and cell is gru. Leave it out.
    """
    found = _Applies.of(config, facts, data_read)
    problems = []
    for path, key in found.known.items():
        value = attrgetter(path)(config)
        if key.default is ... or value == key.default or _within(path, decided):
            continue
        reason = found.why_not(path)
        if reason is not None:
            problems.append(UserError(f"{path}={show(value)} does nothing here: {reason}.", "Leave it out."))
        elif key.asking is not None and value == key.asking.value:
            _check_asked(config, path, key.asking)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise UserError("\n  ".join([f"{len(problems)} keys do nothing here:", *map(str, problems)]))


def _check_asked(config: Section, path: str, asked: AskingValue) -> None:
    """Raises if the key that a value asks for is left as it is."""
    if attrgetter(f"{path.rpartition('.')[0]}.{asked.name}")(config) == asked.left:
        raise UserError(f"{path}={asked.value}: {asked.why}.", asked.fix)


def applies(config: Section, path: str, facts: Mapping[str, Any]) -> bool:
    """True if a key does something for this model."""
    return _Applies.of(config, facts, True).why_not(path) is None


def why_not(cls: type[Section], values: Mapping[str, Any], path: str) -> str | None:
    """The reason why a key does nothing among the values of all keys, before data is read; None if it applies."""
    return _Applies(keys(cls), values.__getitem__, {}, False).why_not(path)


def deciding(cls: type[Section], path: str) -> set[str]:
    """The keys whose values decide whether a key applies.

    >>> from pydantic import Field
    >>> class Model(Section):
    ...     cell: str = Field("lstm", description="Recurrent cell.")
    ...     peephole: bool = Field(False, json_schema_extra=only(cell="lstm"), description="Gates read the cell state.")
    >>> deciding(Model, "peephole"), deciding(Model, "cell")
    ({'cell'}, set())
    """
    known, found, waiting = keys(cls), set[str](), [path]
    while waiting:
        for scope, alternatives in known[waiting.pop()].only:
            names = {name for one in alternatives for name in one}
            places = {next((p for p in _places(scope, name) if p in known), None) for name in names}
            waiting += [p for p in places if p is not None and p not in found]
            found |= {p for p in places if p is not None}
    return found


def fitting(cls: type[Section], changes: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Those of some changes that do something: for settings that several kinds of models share.

    >>> from pydantic import Field
    >>> class Model(Section):
    ...     cell: str = Field("lstm", description="Recurrent cell.")
    ...     peephole: bool = Field(False, json_schema_extra=only(cell="lstm"), description="Gates read the cell state.")
    >>> fitting(Model, {"peephole": True, "cell": "gru"})
    {'cell': 'gru'}
    """
    found = _Applies.of(apply(cls(), changes), facts or {}, False)
    return {path: value for path, value in changes.items() if found.why_not(path) is None}


class _Applies:
    """The conditions of a config's keys, and the values that they ask for."""

    def __init__(
        self, known: Mapping[str, Key], value_of: Callable[[str], Any], facts: Mapping[str, Any], data_read: bool
    ) -> None:
        self.known, self.value_of, self.facts, self.data_read = known, value_of, facts, data_read

    @classmethod
    def of(cls, config: Section, facts: Mapping[str, Any], data_read: bool) -> _Applies:
        return cls(keys(type(config)), lambda path: attrgetter(path)(config), facts, data_read)

    def why_not(self, path: str) -> str | None:
        """The keys that a key belongs to, and their values, in words; None if it applies."""
        unmet = self._unmet(path)
        return None if unmet is None else f"it belongs to {unmet[0]}, and {unmet[1]}"

    def _unmet(self, path: str) -> tuple[str, str] | None:
        for scope, alternatives in self.known[path].only:
            reasons = [self._failing(scope, one) for one in alternatives]
            failed = [reason for reason in reasons if reason is not None]
            if len(failed) == len(reasons):
                belongs, instead = (dict.fromkeys(texts) for texts in zip(*failed, strict=True))
                return ", or to ".join(belongs), " and ".join(instead)
        return None

    def _failing(self, scope: str, conditions: Mapping[str, Any]) -> tuple[str, str] | None:
        """The first condition that does not hold, and the value that is there; None if all hold."""
        for name, wanted in conditions.items():
            path = next((p for p in _places(scope, name) if p in self.facts or p in self.known), None)
            if path is None:
                continue
            value = self.facts[path] if path in self.facts else self.value_of(path)
            if value == AUTO and not self.data_read:
                continue
            if not _matches(value, wanted):
                return f"{path}{_shown(wanted, self._choices(path))}", f"{path} is {_text(value)}"
            above = self._unmet(path) if path in self.known and value not in (None, False, 0) else None
            if above is not None:  # a key that does nothing decides nothing, unless it is off
                return above
        return None

    def _choices(self, path: str) -> tuple[Any, ...]:
        return self.known[path].choices if path in self.known else ()


def _within(path: str, decided: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in decided)


def _places(scope: str, name: str) -> Iterator[str]:
    """The paths that a name may mean: in its own section, then in those around it."""
    while scope:
        yield f"{scope}.{name}"
        scope = scope.rpartition(".")[0]
    yield name


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, But):
        return value not in wanted.values
    return value in (wanted if isinstance(wanted, tuple) else (wanted,))


def _shown(wanted: Any, choices: tuple[Any, ...]) -> str:
    """The condition in words; of several values, those that this task has."""
    values = wanted.values if isinstance(wanted, But) else wanted if isinstance(wanted, tuple) else (wanted,)
    known = [value for value in values if value in choices] or values
    return f"{' other than ' if isinstance(wanted, But) else '='}{' or '.join(map(_text, known))}"


def _text(value: Any) -> str:
    return show(value).strip("'\"")
