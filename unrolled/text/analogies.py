"""Analogies as a test of word vectors: a is to b as c is to d (Mikolov et al. 2013)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.text.files import opened

SIMILARITIES = 1 << 22  # held at a time: 16 MB
AT_ONCE = 256  # questions answered at a time


class Questions(NamedTuple):
    """One group of a file: its name, and four words for each question."""

    name: str
    rows: list[tuple[str, ...]]


def read_questions(path: str | Path) -> list[Questions]:
    """The groups of a file: a line `: name` begins one, every other line has four words."""
    path = Path(path)
    with opened(path, "file of analogies") as file:
        raw = file.read()
    groups: dict[str, Questions] = {}
    name = "questions"
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            fields = line.decode().split()
        except UnicodeDecodeError:
            raise UserError(f"{path}:{number} is not UTF-8.", "Convert it, for example with iconv.") from None
        if fields[:1] == [":"] or (fields and fields[0].startswith(":") and len(fields) < 4):
            name = " ".join(fields).removeprefix(":").strip()
        elif len(fields) == 4:
            groups.setdefault(name, Questions(name, [])).rows.append(tuple(fields))
        elif fields:
            raise UserError(
                f"{path}:{number}: {len(fields)} words, not 4.", "Expected a question, a b c d, or a group, `: name`."
            )
    if not groups:
        raise UserError(f"{path} has no questions.", "Expected four words on a line: Athens Greece Paris France")
    return list(groups.values())


def evaluate_analogies(
    groups: Sequence[Questions], ids: Callable[[Iterable[str]], NDArray[np.int64]], units: NDArray[np.float32]
) -> dict[str, Any]:
    """The share of questions answered right, in all and by group; `units` (N, D) are vectors of length 1."""
    rows = np.concatenate([ids(itertools.chain(*group.rows)).reshape(-1, 4) for group in groups])  # (Q, 4)
    group_of = np.repeat(np.arange(len(groups)), [len(group.rows) for group in groups])  # (Q,)
    known = (rows >= 0).all(axis=1)
    right = np.zeros(len(rows), dtype=bool)
    right[known] = analogy_answers(units, rows[known, :3]) == rows[known, 3]
    syntactic = np.array([group.name.startswith("gram") for group in groups])[group_of]

    def accuracy(of: NDArray[np.bool_]) -> float | None:
        asked = int(np.count_nonzero(of & known))
        return int(np.count_nonzero(of & right)) / asked if asked else None

    def table(of: NDArray[np.bool_]) -> dict[str, Any]:
        counts = {"correct": of & right, "asked": of & known, "skipped": of & ~known}
        return {"accuracy": accuracy(of)} | {name: int(np.count_nonzero(rows)) for name, rows in counts.items()}

    everything = np.ones(len(rows), dtype=bool)
    whole = table(everything)
    return {
        "total": accuracy(everything),
        "semantic": accuracy(~syntactic),
        "syntactic": accuracy(syntactic),
        "asked": whole["asked"],
        "skipped": whole["skipped"],
        "groups": {group.name: table(group_of == number) for number, group in enumerate(groups)},
    }


def analogy_answers(units: NDArray[np.float32], questions: NDArray[np.int64]) -> NDArray[np.int64]:
    """For questions a, b, c (Q, 3) the row nearest to b − a + c by the cosine, the three left out, (Q,).

    The cosine with a sum is, up to the sum's length, the sum of the cosines: each of the W words that occur in
    questions is multiplied with the vocabulary once. The vocabulary comes in slices: memory stays bounded.
    """
    words, place = np.unique(questions, return_inverse=True)  # (W,)
    place = place.reshape(questions.shape)
    best = np.full(len(questions), -np.inf, dtype=np.float32)
    found = np.zeros(len(questions), dtype=np.int64)
    width = max(256, SIMILARITIES // max(1, len(words)))
    for first in range(0, len(units), width):
        cosines = units[words] @ units[first : first + width].T  # (W, width)
        for start in range(0, len(questions), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            a, b, c = place[part].T
            sums = cosines[b] - cosines[a] + cosines[c]  # (q, width)
            column = questions[part] - first
            row, which = np.nonzero((column >= 0) & (column < sums.shape[1]))
            sums[row, column[row, which]] = -np.inf
            nearest = sums.argmax(axis=1)
            value = np.take_along_axis(sums, nearest[:, None], axis=1)[:, 0]
            better = value > best[part]
            best[part] = np.where(better, value, best[part])
            found[part] = np.where(better, nearest + first, found[part])
    return found
