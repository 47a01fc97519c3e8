"""From labels to text: letters are joined, labels of several letters have spaces between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from unrolled.search.ctc.decoded import Decoded, Word

_SPECIAL = re.compile(r"<.+>|\[.+\]")  # such as <pad>, <s>, [UNK]


def are_symbols(labels: Sequence[str], blank: int | None = None) -> bool:
    """True if labels are symbols of several letters, such as phones. The blank and names in brackets do not count.

    >>> are_symbols(["-", "D", "AO", "G"], 0), are_symbols(["<pad>", "|", "a", "b"], 0)
    (True, False)
    """
    return any(
        len(label) > 1 and column != blank and not _SPECIAL.fullmatch(label) for column, label in enumerate(labels)
    )


def label_text(labels: Iterable[str], symbols: bool) -> str:
    """The text of some labels.

    >>> label_text(["D", "AO", "G"], symbols=True), label_text("dog", symbols=False)
    ('D AO G', 'dog')
    """
    return (" " if symbols else "").join(labels)


def words_between(found: Decoded, labels: Sequence[str], separator: int | None, symbols: bool) -> list[Word]:
    """The words that separators leave between them. Symbols without a separator are a word each."""
    parts: list[list[int]] = [[]]
    for place, label in enumerate(found.labels):
        if label == separator:
            parts.append([])
        elif symbols and separator is None:
            parts.append([place])
        else:
            parts[-1].append(place)
    return [
        Word(
            label_text((labels[found.labels[place]] for place in part), symbols),
            found.spans[part[0]][0],
            found.spans[part[-1]][1],
            None,
        )
        for part in parts
        if part
    ]
