"""Data in memory to evaluate a model on, and to predict from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np

from unrolled.data.memory.held import given
from unrolled.data.memory.objects import FORMS
from unrolled.data.memory.tables import column_values, is_table, library_of
from unrolled.errors import UserError


@contextmanager
def given_to_evaluate(data: Any, *, parallel: bool) -> Iterator[Any]:
    """A block in which data has a name; of `parallel` tasks it may be two, a path or a name for each."""
    two = isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], (str, PathLike))
    if parallel and two:
        with given(data=data[0], second=data[1]) as names:
            yield names["data"], names["second"]
    elif isinstance(data, (str, PathLike)):
        yield data
    else:
        if data is None:
            raise UserError("There is no data to evaluate on: it is None.", f"Expected {FORMS}.")
        with given(data=data) as names:
            yield names["data"]


def inputs_in(inputs: Any, rows_given: Callable[[str], Any]) -> Any:
    """The inputs that a table, a column, an iterator or an array of texts holds, as a list; any other input as it is.

    `rows_given` reads the inputs of a table by its name.
    """
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "OUS" and inputs.ndim == 1:
        return inputs.tolist()
    if library_of(inputs) is not None:
        if is_table(inputs):
            with given(inputs=inputs) as names:
                return rows_given(names["inputs"])
        if (values := column_values(inputs)) is not None:
            return values
    return list(inputs) if hasattr(inputs, "__next__") else inputs
