"""Analogies as a test of word vectors: a is to b as c is to d (Mikolov et al. 2013)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.text.files import opened

AT_ONCE = 1 << 24  # similarities that are held at a time: 64 MB


class Questions(NamedTuple):
    """One group of a file: its name, and four words for each question."""

    name: str
    rows: list[tuple[str, ...]]


def read_questions(path: str | Path) -> list[Questions]:
    """The groups of a file: a line `: name` begins one, every other line has four words."""
    path = Path(path)
    with opened(path, "file of analogies") as file:
        raw = file.read()
    groups: list[Questions] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            fields = line.decode().split()
        except UnicodeDecodeError:
            raise UserError(f"{path}:{number} is not UTF-8.", "Convert it, for example with iconv.") from None
        if fields[:1] == [":"] or (fields and fields[0].startswith(":") and len(fields) < 4):
            groups.append(Questions(" ".join(fields).removeprefix(":").strip(), []))
        elif len(fields) == 4:
            if not groups:
                groups.append(Questions("questions", []))
            groups[-1].rows.append(tuple(fields))
        elif fields:
            raise UserError(
                f"{path}:{number}: {len(fields)} words, not 4.", "Expected a question, a b c d, or a group, `: name`."
            )
    if not any(group.rows for group in groups):
        raise UserError(f"{path} has no questions.", "Expected four words on a line: Athens Greece Paris France")
    return groups


def evaluate(
    groups: Sequence[Questions], ids: Callable[[Iterable[str]], NDArray[np.int64]], units: NDArray[np.float32]
) -> dict[str, Any]:
    """The share of questions answered right, in all and by group; `units` (N, D) are the vectors, scaled to length 1."""
    tables: dict[str, dict[str, Any]] = {}
    right = {"semantic": 0, "syntactic": 0}
    asked = {"semantic": 0, "syntactic": 0}
    for group in groups:
        rows = np.stack([ids(row) for row in group.rows]) if group.rows else np.empty((0, 4), dtype=np.int64)
        known = rows[(rows >= 0).all(axis=1)]  # (Q, 4)
        correct = int(np.count_nonzero(answers(units, known[:, :3]) == known[:, 3]))
        kind = "syntactic" if group.name.startswith("gram") else "semantic"
        right[kind] += correct
        asked[kind] += len(known)
        tables[group.name] = {
            "accuracy": share(correct, len(known)),
            "correct": correct,
            "asked": len(known),
            "skipped": len(rows) - len(known),
        }
    return {
        "total": share(sum(right.values()), sum(asked.values())),
        **{kind: share(right[kind], asked[kind]) for kind in right},
        "asked": sum(asked.values()),
        "skipped": sum(table["skipped"] for table in tables.values()),
        "groups": tables,
    }


def share(correct: int, asked: int) -> float | None:
    return correct / asked if asked else None


def answers(units: NDArray[np.float32], questions: NDArray[np.int64]) -> NDArray[np.int64]:
    """For questions a, b, c (Q, 3) the row nearest to b − a + c by the cosine, the three left out, (Q,)."""
    found = np.empty(len(questions), dtype=np.int64)
    step = max(1, AT_ONCE // len(units))
    for first in range(0, len(questions), step):
        part = questions[first : first + step]
        a, b, c = (units[part[:, column]] for column in range(3))
        cosines = (b - a + c) @ units.T  # (q, N); the sums' lengths change no order
        np.put_along_axis(cosines, part, -np.inf, axis=1)
        found[first : first + step] = cosines.argmax(axis=1)
    return found
