"""From objects of the user's to rows, arrays and texts. No library is imported: an object says by its class what it is.

An object of pandas can only exist where pandas was imported, so its own methods are called and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.arrays import as_array, is_array
from unrolled.data.memory.sources import HeldArrays, HeldRows, Source, is_missing
from unrolled.data.memory.spool import spooled
from unrolled.data.memory.tables import column_source, column_values, library_of, table_source
from unrolled.errors import UserError

FORMS = "a path, a DataFrame, a list of pairs or dictionaries, texts, or arrays (docs/data.md)"
NPZ = ("frames", "inputs", "pictures", "regions", "vectors")  # arrays of numbers that make a dictionary a .npz file


def source_of(given: Any, what: str) -> Source:
    """The rows, arrays or texts that an object holds; `what` is its argument's name, for messages."""
    library = library_of(given)
    if library is not None:
        found = table_source(given, library) or column_source(given, library)
        if found is not None:
            return _checked(found, what)
    if isinstance(given, Mapping):
        return _checked(_of_mapping(given, what), what)
    if is_array(given):
        return _checked(_of_array(as_array(given, what), type(given).__name__, what), what)
    if isinstance(given, tuple):
        return _checked(_of_two(given, what), what)
    if isinstance(given, (set, frozenset)):
        raise UserError(f"{what} is {_a(given)}, which has no order.", "Make a list of it: sorted(…).")
    if isinstance(given, (bytes, Number)) or given is None or callable(given):
        fix = "Call it." if callable(given) and not isinstance(given, type) else f"Expected {FORMS}."
        raise UserError(f"{what} is {_a(given)}.", fix)
    return _checked(_of_items(given, what), what)


def _checked(source: Source, what: str) -> Source:
    if isinstance(source, HeldRows) and not source.count:
        raise UserError(f"{what} holds no example: {source.title}.", "Give data with at least one row.")
    return source


def _of_array(array: NDArray[Any], kind: str, what: str) -> Source:
    if array.dtype.kind in "OUS":
        return _of_items(array.tolist(), what)
    if array.ndim == 0:
        raise UserError(f"{what} is a single number.", f"Expected {FORMS}.")
    shape = "×".join(map(str, array.shape))
    sequences = [array] if array.ndim < 3 else list(array)
    return HeldArrays(f"{kind} of {shape} numbers", sequences=sequences)


def _of_two(given: tuple[Any, ...], what: str) -> Source:
    """(inputs, answers): two of one length."""
    if len(given) != 2 or any(isinstance(one, str) or not hasattr(one, "__len__") for one in given):
        raise UserError(
            f"{what} is a tuple of {len(given)}.",
            "A tuple is (inputs, answers), two lists or arrays of one length. Give examples as a list: [(input, "
            "answer), …].",
        )
    inputs, answers = (_values(one, what) for one in given)
    if len(inputs) != len(answers):
        raise UserError(f"{what} has {len(inputs)} inputs and {len(answers)} answers.", "Expected one for each.")
    return _pairs(list(zip(inputs, answers, strict=True)), f"tuple of {_count(len(inputs), 'pair')}")


def _values(given: Any, what: str) -> list[Any]:
    """The elements of a list, an array or a column; those of an array that are numbers or texts as Python's own."""
    if is_array(given):
        array = as_array(given, what)
        found: list[Any] = array.tolist() if array.ndim == 1 else list(array)
        return found
    values = column_values(given)
    return list(given) if values is None else values


def _of_mapping(given: Mapping[Any, Any], what: str) -> Source:
    """Columns by name, or arrays as a .npz file has them."""
    if not given:
        raise UserError(f"{what} is an empty dictionary.", f"Expected {FORMS}.")
    for name, column in given.items():
        if isinstance(column, str) or not hasattr(column, "__len__"):
            fix = "Give columns: {'text': […], 'label': […]}"
            if library_of(column) == "datasets":
                fix = f"Give one of them: {what}=…[{str(name)!r}]"
            raise UserError(f"{what} is a dictionary whose {str(name)!r} is {_a(column)}, not a column.", fix)
        if type(column).__name__ in ("Dataset", "DataFrame"):
            raise UserError(
                f"{what} is a {type(given).__name__} of {type(column).__name__}s: {', '.join(map(str, given))}.",
                f"Give one of them: {what}=…[{str(name)!r}]",
            )
    if any(name in NPZ and is_array(column) for name, column in given.items()):
        arrays = {str(name): np.asarray(_values_of_npz(column, what)) for name, column in given.items()}
        return HeldArrays(f"dictionary of {_count(len(arrays), 'array')}", arrays)
    columns = {str(name): _values(column, f"{what}[{name!r}]") for name, column in given.items()}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise UserError(f"{what} has columns of different lengths, {sizes}.", "Expected a value in each for every row.")
    count = len(next(iter(columns.values())))
    values = list(columns.values())
    return HeldRows(
        f"dictionary of {len(columns)} columns, {_count(count, 'row')}", tuple(columns), count, values.__getitem__
    )


def _values_of_npz(column: Any, what: str) -> Any:
    return as_array(column, what) if is_array(column) else column


def _of_items(given: Any, what: str) -> Source:
    """The examples of a list or an iterator, all of one kind."""
    kind = type(given).__name__
    first, items = _begun(given, what)
    if isinstance(first, str):
        return spooled(_alike(items, str, "a text", what), kind)
    examples = list(items)
    title = f"{kind} of {_count(len(examples), 'example')}"
    if isinstance(first, Mapping):
        return _of_records(examples, kind, what)
    if is_array(first):
        arrays = [as_array(one, what) for one in _alike(examples, None, "an array", what)]
        return HeldArrays(f"{kind} of {_count(len(arrays), 'array')}", sequences=arrays)
    if isinstance(first, Number) and not isinstance(first, bool):
        numbers = np.array(list(_alike(examples, Number, "a number", what)), dtype=np.float64)
        return HeldArrays(f"{kind} of {len(numbers):,} numbers", sequences=[numbers])
    if isinstance(first, (list, tuple)):
        if first and all(isinstance(one, Number) and not isinstance(one, bool) for one in first):
            return _of_array(_numbers(examples, title, what), kind, what)
        return _pairs(
            list(_alike(examples, (list, tuple), "a pair", what)), f"{kind} of {_count(len(examples), 'pair')}"
        )
    raise UserError(f"{what} is a {kind} whose first element is {_a(first)}.", f"Expected {FORMS}.")


def _begun(given: Any, what: str) -> tuple[Any, Iterable[Any]]:
    """The first element, and all of them."""
    if not isinstance(given, Iterable):
        if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):  # a data set of torch is a sequence
            raise UserError(f"{what} is {_a(given)}.", f"Expected {FORMS}.")
        given = map(given.__getitem__, range(len(given)))
    items = iter(given)
    once = items is given
    for first in items:
        return first, chain([first], items)
    if once:
        raise UserError(
            f"{what} is a {type(given).__name__} without elements: it is at its end.",
            "It may have been read before. Make a new one, or a list: list(…).",
        )
    raise UserError(f"{what} is an empty {type(given).__name__}.", f"Expected {FORMS}.")


def _alike(items: Iterable[Any], kind: Any, name: str, what: str) -> Iterator[Any]:
    """The elements; an error for one of another kind than the first."""
    fits: Callable[[Any], bool] = is_array if kind is None else lambda one: isinstance(one, kind)
    for row, one in enumerate(items):
        if not fits(one):
            missing = is_missing(one)
            raise UserError(
                f"{what}, row {row} is {'missing' if missing else _a(one)}, and the first is {name}.",
                "Leave it out." if missing else "Give elements of one kind.",
            )
        yield one


def _of_records(examples: Sequence[Any], kind: str, what: str) -> HeldRows:
    records = [
        {str(key): value for key, value in one.items()} for one in _alike(examples, Mapping, "a dictionary", what)
    ]
    names = tuple(dict.fromkeys(name for record in records for name in record))

    def get(at: int) -> list[Any]:
        return [record.get(names[at]) for record in records]

    title = f"{kind} of {_count(len(records), 'dictionary', 'dictionaries')}"
    return HeldRows(title, names, len(records), get, records_of=records)


def _pairs(examples: Sequence[Sequence[Any]], title: str) -> HeldRows:
    width = len(examples[0])
    for row, one in enumerate(examples):
        if len(one) != width or width < 2:
            expected = f"Expected {max(width, 2)} in each: (input, answer)."
            raise UserError(f"{title}, row {row} has {_count(len(one), 'value')}.", expected)
    rows = ([_value(one, f"{title}, row {row}") for one in values] for row, values in enumerate(examples))
    columns = [list(column) for column in zip(*rows, strict=True)]
    return HeldRows(title, tuple(map(str, range(1, width + 1))), len(examples), columns.__getitem__, named=False)


def _value(one: Any, place: str) -> Any:
    """A value of a row; a tensor as an array."""
    return as_array(one, place) if is_array(one) else one


def _numbers(examples: Sequence[Any], title: str, what: str) -> NDArray[Any]:
    widths = {len(one) if isinstance(one, (list, tuple)) else 0 for one in examples}
    if len(widths) > 1:
        raise UserError(
            f"{what}: {title} has rows of {', '.join(map(str, sorted(widths)))} numbers.", "Expected one width."
        )
    return np.array(examples, dtype=np.float64)


def _a(one: Any) -> str:
    """The class of an object, with an article."""
    if one is None:
        return "None"
    name = type(one).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _count(number: int, one: str, more: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"
