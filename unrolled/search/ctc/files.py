"""Posteriors, labels, lexicons and models from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.text import read_lines
from unrolled.errors import UserError
from unrolled.search.ctc.blanks import NO_BLANK, blank_column, chosen_blank
from unrolled.search.ctc.decoder import Decoder
from unrolled.search.lexicon import Lexicon
from unrolled.search.ngram import NGram
from unrolled.text.array_files import ArrayError, read_npy, read_npz
from unrolled.text.files import utf8_lines

LENGTHS = "lengths"
MAGIC = b"\x93"  # the first byte of an .npy file
SEPARATORS = (" ", "|")  # default labels between words


def read_posteriors(path: str | Path) -> dict[str, NDArray[Any]]:
    """The utterances of an .npz file by name: an array (T, V) each, or one array (B, T, V) beside `lengths` (B,).

    An .npy file is one utterance (T, V), named as the file.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_npy = file.read(1) == MAGIC
            file.seek(0)
            alone = read_npy(file, path.stat().st_size) if is_npy else None
        arrays = {} if alone is not None else read_npz(path)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.", "Give an .npz file of posteriors.") from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}.", "Give an .npz file of posteriors.") from None
    except ArrayError:
        raise UserError(f"{path} is not a .npz or .npy file of numbers.", "Write it with numpy.savez.") from None
    if alone is not None:
        return {path.stem: _matrix(path, path.stem, alone)}
    lengths = arrays.pop(LENGTHS, None)
    if not arrays:
        raise UserError(f"{path} has no arrays of posteriors.", "Write them with numpy.savez.")
    if lengths is None:
        return {name: _matrix(path, name, array) for name, array in arrays.items()}
    padded, *others = arrays.values()
    if others or padded.ndim != 3 or lengths.shape != padded.shape[:1]:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise UserError(
            f"{path} has lengths {lengths.shape} beside {shapes}.",
            "With lengths (B,) there is one array (B, T, V); without, one array (T, V) for each utterance.",
        )
    if ((lengths < 0) | (lengths > padded.shape[1])).any():
        raise UserError(f"{path}: lengths has {lengths.tolist()}, but there are {padded.shape[1]} frames.")
    return {str(i): row[: int(length)] for i, (row, length) in enumerate(zip(padded, lengths, strict=True))}


def _matrix(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 2 or array.dtype.kind != "f":
        raise UserError(
            f"{path}: the array {name!r} is {array.dtype} of shape {array.shape}, expected numbers (frames, labels).",
            "Several utterances in one padded array need an array of lengths.",
        )
    return array


def read_labels(path: str | Path) -> list[str]:
    """A label in each line; a line of one blank is the label " "."""
    path = Path(path)
    lines = utf8_lines(path, "Give a file with a label in each line.")
    labels = [line.strip() or line[:1] for line in lines]
    if "" in labels:
        raise UserError(f"{path}:{labels.index('') + 1}: the line is empty.", "Name a label in each line.")
    return labels


def read_references(path: str | Path, names: Sequence[str]) -> list[str]:
    """The text of each named utterance: a line of name TAB text for each, in any order, or its text alone."""
    lines = [line for line in read_lines(path) if line.strip()]
    pairs = dict(line.split("\t", 1) for line in lines if "\t" in line)
    if len(pairs) == len(lines):
        missing = next((name for name in names if name not in pairs), None)
        if missing is not None:
            raise UserError(f"{path} has no text of {missing!r}.", "Give a line of name, tab and text for each.")
        return [" ".join(pairs[name].split()) for name in names]
    if len(lines) != len(names):
        raise UserError(f"{path} has {len(lines)} texts, and there are {len(names)} utterances.", "Give one for each.")
    return [" ".join(line.split()) for line in lines]


def decoder_from_files(
    labels: str | Path | Sequence[str],
    lexicon: str | Path | None = None,
    lm: str | Path | None = None,
    *,
    posteriors: Iterable[NDArray[np.float32]] | None = None,
    blank: str | None = None,
    separator: str | None = "auto",
    skip_unspellable: bool = False,
    share_ends: bool = False,
    **options: Any,
) -> Decoder:
    """The decoder of these files; labels may be read already.

    A separator "auto" is a label " " or "|" that no word is spelt with.

    The blank is a label or its column, or "none" where there is none; if it is not said, it is found by its name, or is
    the first label, with which the `posteriors` must agree.
    """
    names = read_labels(labels) if isinstance(labels, (str, Path)) else list(labels)
    column: int | str = NO_BLANK
    if blank != NO_BLANK or NO_BLANK in names:
        column = chosen_blank(names, posteriors, always_say=True) if blank is None else blank_column(names, blank)
    words = None
    if lexicon is not None:
        words = Lexicon.read(lexicon, names, skip_unspellable=skip_unspellable, share_ends=share_ends)
    if separator == "auto":
        free = (name for name in SEPARATORS if words and name in names and not words.uses(names.index(name)))
        separator = next(free, None)
    model = None if lm is None else NGram.load(lm)
    return Decoder(names, words, model, blank=column, separator=separator, **options)
