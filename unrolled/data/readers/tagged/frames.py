"""Frames with a label for each: vectors or small images in .npz files, vectors in .csv files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.memory.arrays import as_array, is_array
from unrolled.data.memory.held import arrays_of, held, rows_of, shown
from unrolled.data.memory.sources import HeldRows, is_missing
from unrolled.data.readers.arrays import read_arrays, read_ragged
from unrolled.data.readers.labelled import check_frames
from unrolled.data.readers.tagged.frame_tables import FrameColumns, read_frame_table
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.data.readers.tagged.tag_names import note_unnamed_tags, tags_of_numbers
from unrolled.errors import UserError
from unrolled.text.array_files import ArrayError, read_npy
from unrolled.text.files import reading, suffix_of
from unrolled.text.globs import files_of, is_several

FOUND = FrameColumns()
EXPECTED = "Expected `labels` to have one for each frame: names, or whole numbers."


@dataclass(frozen=True, eq=False)
class TaggedFrames:
    """Frames (T, …) of one sequence, a tag for each if they are known, and the place in the file."""

    frames: NDArray[np.float32]
    tags: tuple[str, ...] | None = None
    place: str = ""
    columns: tuple[str, ...] = ()  # the names of the features, where the file has them

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def key(self) -> bytes:
        """The input as bytes: equal for equal inputs."""
        return np.ascontiguousarray(self.frames).tobytes()

    @property
    def content(self) -> bytes:
        """Input and tags as bytes."""
        return b"\0".join([self.key, *(tag.encode() for tag in self.tags or ())])


Tagged = Sentence | TaggedFrames
"""A sequence with a tag for each of its words or frames."""


def holds_frames(path: str | Path) -> bool:
    """True for .npz and .csv files, for a folder or a pattern of them, and for arrays in memory."""
    if (given := held(path)) is not None:
        return arrays_of(path) is not None or is_frame_table(path) or _holds_arrays(given)
    return any(file.suffix == ".npz" or is_frame_table(file) for file in frame_files(path))


def frame_files(path: str | Path) -> list[Path]:
    """The file; of a folder or a pattern, those with frames, or else all."""
    files = files_of(path)
    if not is_several(path):
        return files
    return [one for one in files if one.suffix == ".npz"] or [one for one in files if is_frame_table(one)] or files


def is_frame_table(path: str | Path) -> bool:
    """True for a .csv file, and for a table in memory whose values are single ones."""
    given = held(path)
    if given is None:
        return suffix_of(Path(path)) == ".csv"
    if not isinstance(given, HeldRows) or not given.named:
        return False
    first = [given.first(at) for at in range(len(given.names))]
    return not any(isinstance(one, (list, tuple)) or is_array(one) for one in first)


def _holds_arrays(given: Any) -> bool:
    """True for rows of frames and their labels."""
    return isinstance(given, HeldRows) and any(
        is_array(one) and one.ndim > 1 for one in map(given.first, range(len(given.names)))
    )


def read_tagged_frames(path: str | Path, columns: FrameColumns = FOUND) -> list[TaggedFrames]:
    """The sequences of a .npz file with `frames`, `labels` and perhaps `lengths`, of a .csv file, of all such files of
    a folder or a pattern, or of data in memory.

    Without `lengths`, frames (T, D) and labels (T,) are one sequence; (N, T, …) and (N, T) are N sequences of one
    length.
    """
    result: list[TaggedFrames] = []
    for file in frame_files(path):
        if is_frame_table(file):
            result += _of_table(file, columns, tagged=True)
        elif (rows := rows_of(file)) is not None:
            result += _of_rows(rows, columns.tag_names)
        else:
            result += _of_arrays(file, columns.tag_names)
    if not any(len(one) for one in result):
        raise UserError(f"{shown(path)} holds no frame.", "Give a file with at least one sequence.")
    return result


def _of_arrays(file: Path, names: Sequence[str]) -> list[TaggedFrames]:
    """The sequences of a .npz file."""
    arrays, made = _labelled_arrays(file), list[TaggedFrames]()
    for number, (frames, labels) in enumerate(zip(arrays["frames"], arrays["labels"], strict=True), 1):
        place = f"{shown(file)}: sequence {number}"
        made.append(TaggedFrames(check_frames(frames, place), _tags(frames, labels, names, place), place))
    if made and not names and arrays["labels"][0].dtype.kind in "iu":
        note_unnamed_tags(shown(file), "labels")
    return made


def _of_rows(rows: HeldRows, names: Sequence[str]) -> list[TaggedFrames]:
    """The sequences of rows in memory: frames, and their labels."""
    rows = rows.as_roles(("frames", "labels"))
    for name in ("frames", "labels"):
        if name not in rows.names:
            raise UserError(f"{rows.title} has no column {name!r}.", f"It has: {', '.join(rows.names)}.")
    made, numbers = list[TaggedFrames](), False
    for row, (frames, labels) in enumerate(zip(rows.column("frames"), rows.column("labels"), strict=True)):
        place = rows.place(row)
        if not is_array(frames) or is_missing(labels):
            missing = "labels" if is_array(frames) else "frames"
            raise UserError(f"{place} has no {missing}.", "Expected an array of frames, and a label for each.")
        array = as_array(frames, place)
        given = as_array(labels, place) if is_array(labels) else np.asarray(labels)
        made.append(TaggedFrames(check_frames(array, place), _tags(array, given, names, place), place))
        numbers = numbers or given.dtype.kind in "iu"
    if numbers and not names:
        note_unnamed_tags(Path(rows.title), "labels")
    return made


def _of_table(path: Path, columns: FrameColumns, *, tagged: bool) -> list[TaggedFrames]:
    """The sequences of a .csv file."""
    table, made = read_frame_table(path, columns, tagged=tagged), []
    for one in table.sequences:
        place = str(shown(path)) if one.name is None else f"{shown(path)}: sequence {one.name}"
        made.append(TaggedFrames(check_frames(one.frames, place), one.tags if tagged else None, place, table.columns))
    return made


def read_untagged_frames(path: str | Path, shape: Sequence[int], columns: FrameColumns = FOUND) -> list[TaggedFrames]:
    """The sequences of a .npz, .npy or .csv file, without labels; `shape` is that of one frame."""
    path = Path(path)
    if path.suffix == ".npy":
        return [TaggedFrames(check_frames(_array(path), str(path)), place=str(path))]
    if not holds_frames(path):
        raise UserError(
            f"{shown(path)} does not hold frames.",
            "Give a .npz file with an array `frames`, a .npy file (steps, …), or a .csv file.",
        )
    made = []
    for file in frame_files(path):
        if is_frame_table(file):
            made += _of_table(file, columns, tagged=False)
            continue
        arrays = read_arrays(file, ["frames", "lengths"])
        if "frames" in arrays and "lengths" not in arrays and arrays["frames"].ndim == len(shape) + 1:
            sequences = [arrays["frames"]]
        else:
            sequences = read_ragged(file, ["frames"])["frames"]
        places = [f"{shown(file)}: sequence {number}" for number in range(1, len(sequences) + 1)]
        made += [TaggedFrames(check_frames(one, at), place=at) for one, at in zip(sequences, places, strict=True)]
    return made


def _array(path: Path) -> NDArray[Any]:
    try:
        with reading(path, "npy file"), path.open("rb") as file:
            return read_npy(file, path.stat().st_size)
    except ArrayError as error:
        raise UserError(f"{path} is not an npy file: {error}.", "Make one with numpy.save.") from None


def _labelled_arrays(path: Path) -> dict[str, list[NDArray[Any]]]:
    """The frames and labels of each sequence of a file."""
    arrays = read_arrays(path, ["frames", "labels", "lengths"])
    if {*arrays} == {"frames", "labels"} and arrays["frames"].ndim == 2 and arrays["labels"].ndim == 1:
        return {name: [array] for name, array in arrays.items()}
    return read_ragged(path, ["frames", "labels"])


def _tags(frames: NDArray[Any], labels: NDArray[Any], names: Sequence[str], place: str) -> tuple[str, ...]:
    """The labels of one sequence as texts."""
    if labels.ndim != 1:
        raise UserError(
            f"{place} has {'one label' if labels.ndim == 0 else f'labels of shape {labels.shape}'} for "
            f"{len(frames)} frames.",
            EXPECTED + (" For one label per sequence: unrolled train classify." if labels.ndim == 0 else ""),
        )
    if len(labels) != len(frames):
        raise UserError(f"{place} has {len(frames)} frames and {len(labels)} labels.", EXPECTED)
    if labels.dtype.kind in "iu":
        return tags_of_numbers(labels.tolist(), names or None, "labels", place)
    if labels.dtype.kind not in "USb":
        raise UserError(f"{place}: labels have the type {labels.dtype}.", EXPECTED)
    texts = (label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label) for label in labels.tolist())
    tags = tuple(text.strip() for text in texts)
    if "" in tags:
        raise UserError(f"{place} has no label at frame {tags.index('')}.", EXPECTED)
    return tags
