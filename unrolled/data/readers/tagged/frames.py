"""Frames with a label for each: vectors or small images in .npz files, vectors in .csv files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.arrays import read_arrays, read_ragged
from unrolled.data.readers.labelled import check_frames
from unrolled.data.readers.tagged.frame_tables import FrameColumns, read_frame_table
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.data.readers.tagged.tag_names import note_unnamed_tags, tags_of_numbers
from unrolled.errors import UserError
from unrolled.text.array_files import ArrayError, read_npy
from unrolled.text.files import reading, suffix_of

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
    """True for a .npz file, a folder of them, and a .csv file."""
    path = Path(path)
    return path.suffix == ".npz" or path.is_dir() or is_frame_table(path)


def is_frame_table(path: str | Path) -> bool:
    """True for a .csv file."""
    return suffix_of(Path(path)) == ".csv"


def read_tagged_frames(path: str | Path, columns: FrameColumns = FOUND) -> list[TaggedFrames]:
    """The sequences of a .npz file with `frames`, `labels` and perhaps `lengths`, of all such files of a folder, or of
    a .csv file.

    Without `lengths`, frames (T, D) and labels (T,) are one sequence; (N, T, …) and (N, T) are N sequences of one
    length.
    """
    if is_frame_table(path):
        return _of_table(Path(path), columns, tagged=True)
    names = columns.tag_names
    found: list[TaggedFrames] = []
    for file in _files(Path(path)):
        arrays = _labelled_arrays(file)
        for number, (frames, labels) in enumerate(zip(arrays["frames"], arrays["labels"], strict=True), 1):
            place = f"{file}: sequence {number}"
            found.append(TaggedFrames(check_frames(frames, place), _tags(frames, labels, names, place), place))
        if found and not names and arrays["labels"][0].dtype.kind in "iu":
            note_unnamed_tags(file, "labels")
    if not any(len(one) for one in found):
        raise UserError(f"{path} holds no frame.", "Give a file with at least one sequence.")
    return found


def _of_table(path: Path, columns: FrameColumns, *, tagged: bool) -> list[TaggedFrames]:
    """The sequences of a .csv file."""
    table = read_frame_table(path, columns, tagged=tagged)
    found = []
    for one in table.sequences:
        place = str(path) if one.name is None else f"{path}: sequence {one.name}"
        found.append(TaggedFrames(check_frames(one.frames, place), one.tags if tagged else None, place, table.columns))
    return found


def read_untagged_frames(path: str | Path, shape: Sequence[int], columns: FrameColumns = FOUND) -> list[TaggedFrames]:
    """The sequences of a .npz, .npy or .csv file, without labels; `shape` is that of one frame."""
    path = Path(path)
    if is_frame_table(path):
        return _of_table(path, columns, tagged=False)
    if path.suffix == ".npy":
        return [TaggedFrames(check_frames(_array(path), str(path)), place=str(path))]
    if not holds_frames(path):
        raise UserError(
            f"{path} does not hold frames.",
            "Give a .npz file with an array `frames`, a .npy file (steps, …), or a .csv file.",
        )
    found = []
    for file in _files(path):
        arrays = read_arrays(file, ["frames", "lengths"])
        if "frames" in arrays and "lengths" not in arrays and arrays["frames"].ndim == len(shape) + 1:
            sequences = [arrays["frames"]]
        else:
            sequences = read_ragged(file, ["frames"])["frames"]
        places = [f"{file}: sequence {number}" for number in range(1, len(sequences) + 1)]
        found += [TaggedFrames(check_frames(one, at), place=at) for one, at in zip(sequences, places, strict=True)]
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.npz"))
    if not files:
        raise UserError(f"The folder {path} holds no .npz file.", "Give one with `frames` and `labels`.")
    return files


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
