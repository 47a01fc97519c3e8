"""Training n-gram models: the options, and which engine does it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrolled.errors import UserError
from unrolled.kernels.native_module import NATIVE
from unrolled.search.ngram import arpa
from unrolled.search.ngram.estimate import discounts_of, estimate
from unrolled.search.ngram.plain import PlainNGram, words_of
from unrolled.search.ngram.shards import Counts, add_file, is_counts, shown
from unrolled.search.ngram.texts import Text, read_lines

MOST_ORDER = 20


USUAL_ORDER = 3


def asked(text: Text | Counts, order: int | None) -> tuple[Text | Counts, int]:
    """The text, or the files of counts that it names, and the order of the model."""
    files = Counts(text) if is_counts(text) else text  # type: ignore[arg-type]
    if not isinstance(files, Counts):
        return files, check_order(USUAL_ORDER if order is None else order)
    if order not in (None, files.order):
        raise UserError(f"order={order}, and {shown(files)} has counts of {files.order}-grams.", "Leave the order out.")
    return files, files.order


def check_means(memory: int | str, scratch: str | Path | None, workers: int) -> Means:
    return Means(check_memory(memory), check_scratch(scratch), check_workers(workers))


def train_plain(text: Text | Counts, order: int, prune: Sequence[int], means: Means) -> PlainNGram:
    """All counts in dictionaries."""
    if isinstance(text, Counts) or means.workers > 1:
        what = "Files of counts are" if isinstance(text, Counts) else f"workers={means.workers} is"
        raise UserError(f"{what} for the C++ engine, and this one is the reference.", "Use backend='native'.")
    sentences = [words for line in arpa.lines_of(read_lines(text)) if (words := words_of(line))]
    _check_any(text, len(sentences))
    return estimate(sentences, order, prune)


@dataclass(frozen=True)
class Means:
    """Memory, files and threads of a training."""

    memory: int  # bytes
    folder: Path  # of scratch files
    workers: int = 1  # threads


def counted(text: Text | Counts, order: int, prune: Sequence[int], means: Means) -> Any:
    """A KneserNey that has counted a text, or has added up files of counts."""
    trainer = NATIVE.KneserNey(order, list(prune), means.memory, str(means.folder), means.workers)
    try:
        if isinstance(text, Counts):
            for path in text.paths:
                add_file(trainer, path)
        else:
            for piece in read_lines(text):
                trainer.feed(piece)
    except RuntimeError as error:
        raise _from_core(error, text) from None
    return trainer


def train_native(text: Text | Counts, order: int, prune: Sequence[int], means: Means) -> Any:
    """A KneserNey with its estimates made, to be taken as a model or as the pieces of a file."""
    trainer = counted(text, order, prune, means)
    try:
        counts = trainer.adjust()
        _check_any(text, trainer.sentences)
        trainer.estimate([list(amounts) for amounts in discounts_of(counts, trainer.longest)])
    except RuntimeError as error:
        raise _from_core(error, text) from None
    return trainer


def _from_core(error: RuntimeError, text: Text | Counts) -> RuntimeError:
    """An error of the C++ core: of a line of the text, or of its scratch files."""
    if str(error).startswith("scratch\n"):
        _, problem, fix = str(error).split("\n")
        return UserError(problem, fix)
    return arpa.at_line(error, shown(text))


def _check_any(text: Text | Counts, sentences: int) -> None:
    if sentences == 0:
        raise UserError(f"There are no words in {shown(text)}.", "Give a text with a sentence on each line.")


def check_order(order: int) -> int:
    if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= MOST_ORDER:
        raise UserError(f"order={order!r} is not a whole number from 1 to {MOST_ORDER}.", "3 is usual.")
    return order


def check_prune(prune: Sequence[int], order: int) -> list[int]:
    """A threshold for each order; the last one given goes on."""
    given = list(prune) or [0]
    if not all(isinstance(t, int) and not isinstance(t, bool) and 0 <= t < 2**31 for t in given):
        raise UserError(f"prune={given} are not counts.", "Give whole numbers from 0 up, such as 0, 0, 1.")
    if given[0] != 0:
        raise UserError(f"prune={given} would leave words out.", "Begin with 0: all words are kept.")
    if given != sorted(given):
        raise UserError(
            f"prune={given} falls: an n-gram would be kept without what it ends in.", "Give numbers that never fall."
        )
    if len(given) > order:
        raise UserError(f"prune={given} has {len(given)} numbers for {order} orders.", "Give one for each at the most.")
    return given + [given[-1]] * (order - len(given))


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LEAST_MEMORY = 2**16


def check_memory(memory: int | str) -> int:
    """A number of bytes; texts may end in K, M, G or T.

    >>> check_memory("500M")
    524288000
    """
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", str(memory).strip().upper())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size < LEAST_MEMORY:
        raise UserError(f"memory={memory!r} is not a size from 64K up.", "Use one such as 500M or 2G.")
    return size


def check_workers(workers: int) -> int:
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise UserError(f"workers={workers!r} is not a number of threads.", "Use 1 or more.")
    return workers


def check_scratch(folder: str | Path | None) -> Path:
    """The folder for scratch files; none: the system's."""
    path = Path(tempfile.gettempdir() if folder is None else folder)
    if not path.is_dir():
        raise UserError(f"scratch={str(path)!r} is not a folder.", "Give one with room for the text's n-grams.")
    return path
