"""Inputs and labels of a classifier: files, checks, and labels of a model to start from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unrolled.config import title_of
from unrolled.data.readers.label_checks import look_swapped
from unrolled.data.readers.labelled import Labelled, check_frames, read_labelled
from unrolled.errors import UserError, note
from unrolled.tasks.shared.reader import Reader

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.classify.config import ClassifyData


def read_examples(settings: ClassifyData, path: str | Path, known: Sequence[str] = ()) -> list[Labelled]:
    """The examples of a file; `known` are the labels of a model that reads it."""
    examples = read_labelled(
        path,
        text_column=settings.text_column,
        label_column=settings.label_column,
        separator=settings.label_separator if settings.multi_label else None,
        numbers=settings.kind == "number",
    )
    if settings.kind == "label" and (why := look_swapped(examples, known)):
        said = settings.text_column or settings.label_column
        columns = [settings.text_column or "2", settings.label_column or "1"]
        keys = " ".join(f"--set data.{k}_column={c}" for k, c in zip(("label", "text"), columns, strict=True))
        if not said or known:
            raise UserError(f"The columns of {path} look swapped: {why}.", f"If they are: {keys}")
        note(f"The columns of {title_of(path)} look swapped: {why}.")
    return examples


def with_old(old: Sequence[str], new: Sequence[str], which: str) -> tuple[str, ...]:
    """The labels of a model that is trained further: those it had, in their order, and the new ones."""
    gone = [label for label in old if label not in set(new)]
    if gone:
        shown = f"{', '.join(gone[:5])}{', …' if len(gone) > 5 else ''}"
        if which == "drop":
            note(f"{len(gone)} labels of the model to start from are dropped: {shown}.")
        else:
            note(
                f"{len(gone)} labels of the model to start from are not in the new examples, and can still be "
                f"answered: {shown}. To leave them out: --set data.old_labels=drop"
            )
    dropped = set(gone) if which == "drop" else set[str]()
    return (*(label for label in old if label not in dropped), *(label for label in new if label not in set(old)))


def key_of(one: Any) -> bytes:
    return one.encode() if isinstance(one, str) else np.ascontiguousarray(one).tobytes()


def checked_inputs(model: Model, inputs: Any) -> list[Any]:
    reader: Reader = model.assets.reader
    if not isinstance(inputs, (list, tuple)):
        raise UserError(f"The input is {type(inputs).__name__}.", f"Expected {reader.expects}, or a list of them.")
    if reader.frames:
        given = [one.cpu().numpy() if hasattr(one, "cpu") else np.asarray(one) for one in inputs]
        checked = [check_frames(one, f"Input {number}") for number, one in enumerate(given, 1)]
        check_shape(reader, checked, [f"Input {number}" for number in range(1, len(checked) + 1)])
        return checked
    for number, one in enumerate(inputs, 1):
        if not isinstance(one, str):
            raise UserError(f"Input {number} is {type(one).__name__}.", f"Expected {reader.expects}.")
    return list(inputs)


def check_shape(reader: Reader, inputs: Sequence[Any], places: Sequence[str]) -> None:
    for one, place in zip(inputs, places, strict=True):
        if isinstance(one, str) == bool(reader.frames):
            raise UserError(
                f"{place} is {'text' if isinstance(one, str) else 'frames'}.", f"Expected {reader.expects}."
            )
        if reader.frames and one.shape[1:] != reader.frames:
            raise UserError(
                f"{place} has frames of shape {one.shape[1:]}.", f"Expected {reader.frames}, as in training."
            )
