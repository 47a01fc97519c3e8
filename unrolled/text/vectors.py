"""Word vectors from files or models, with nearest neighbours and analogies."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unrolled.errors import UserError
from unrolled.text.analogies import evaluate_analogies, read_questions
from unrolled.text.vector_files import Chosen, Floats, read_vectors
from unrolled.text.vector_writing import write_npz, write_text

COMPARED = 20_000  # words compared with an unknown one
Neighbours = list[tuple[str, float]]
"""Words and their cosines, the nearest first."""


class Vectors:
    """Words and a vector for each: `words` of length N, `matrix` (N, D) in float32.

    A word that is missing as written is looked up in lower case.

    >>> vectors = Vectors(["king", "queen", "man", "woman", "pear"],
    ...                   [[2, 2, 0], [2, -2, 0], [0, 2, 0], [0, -2, 0], [0, 0, 1]])
    >>> vectors["King"]
    array([2., 2., 0.], dtype=float32)
    >>> vectors.nearest("king", 1)
    [('man', 0.707...)]
    >>> vectors.analogy("king - man + woman", 1)
    [('queen', 0.9...)]
    """

    def __init__(self, words: Iterable[str], matrix: ArrayLike) -> None:
        self.words = list(words)
        self.matrix: Floats = np.ascontiguousarray(matrix, dtype=np.float32)
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words) or not self.matrix.size:
            raise UserError(
                f"{len(self.words)} words came with a matrix of shape {self.matrix.shape}.",
                "Expected a row for each word, (N, D), and at least one.",
            )
        self._rows = {word: row for row, word in enumerate(self.words)}
        if len(self._rows) < len(self.words):
            twice = next(word for row, word in enumerate(self.words) if self._rows[word] != row)
            raise UserError(f"The words hold {twice!r} twice.", "Expected every word once.")
        if not np.isfinite(self.matrix).all():
            row = int((~np.isfinite(self.matrix).all(axis=1)).argmax())
            raise UserError(f"The vector of {self.words[row]!r} holds NaN or infinity.", "Expected finite numbers.")

    @classmethod
    def read(cls, path: str | Path, most: int | None = None, keep: Iterable[str] | None = None) -> Vectors:
        """Vectors from a file: word2vec's or GloVe's text, word2vec's binary (.bin), each also as .gz, or .npz.

        An .npz file holds `vectors` (N, D) and `words` (N,), or has a `words.txt` beside it, a word on a line. `most`
        reads the first rows only, which are the most frequent words in most files; `keep` reads only these words,
        and with `most` these too, whatever their place.
        """
        path, chosen = Path(path), Chosen(most, keep)
        words, matrix = read_vectors(path, chosen)
        if not words:
            raise UserError(f"{path} has no vector for any of the {len(chosen.keep or ())} selected words.")
        return cls(words, matrix)

    def write(self, path: str | Path) -> None:
        """Write a new file: .npz, or else word2vec's text; both restore the same bits."""
        path = Path(path)
        write = write_npz if path.suffix == ".npz" else write_text
        write(path, self.words, self.matrix)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def size(self) -> int:
        """D, the width of a vector."""
        width: int = self.matrix.shape[1]
        return width

    def __repr__(self) -> str:
        return f"Vectors({len(self)} words, {self.size} numbers each)"

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._row(word) >= 0

    def ids(self, words: Iterable[str]) -> NDArray[np.int64]:
        """The rows of words (T,); −1 where there is none.

        >>> Vectors(["the", "cat"], [[1.0], [2.0]]).ids(["The", "dog", "cat"])
        array([ 0, -1,  1])
        """
        return np.fromiter((self._row(word) for word in words), dtype=np.int64)

    def _row(self, word: str) -> int:
        row = self._rows.get(word)
        return row if row is not None else self._rows.get(word.lower(), -1)

    def __getitem__(self, word: str) -> Floats:
        vector: Floats = self.matrix[self.row(word)]
        return vector

    def row(self, word: str) -> int:
        """The row of a word; an error if it has none."""
        row = self._row(word)
        if row < 0:
            near = self._alike(word)
            raise UserError(
                f"There is no vector for {word!r} among {len(self):,} words.",
                f"Did you mean {near!r}?" if near else "",
            )
        return row

    def _alike(self, word: str) -> str | None:
        """The nearest spelling, among words of similar length only, to be fast."""
        folded = word.casefold().strip()
        if not folded:
            return None
        ends = (folded[0], folded[-1])
        near: dict[str, str] = {}
        for other in self.words:
            if len(near) == COMPARED:
                break
            if abs(len(other) - len(folded)) <= 2 and (form := other.casefold().strip()):
                if form == folded:
                    return other
                if form[0] == ends[0] or form[-1] == ends[1]:
                    near.setdefault(form, other)
        found = difflib.get_close_matches(folded, near, n=1)
        return near[found[0]] if found else None

    @cached_property
    def _norms(self) -> Floats:
        """The lengths of the vectors (N,); 1 for a vector of zeros, whose cosine with everything is 0."""
        norms: Floats = np.sqrt(np.einsum("nd,nd->n", self.matrix, self.matrix))
        norms[norms == 0] = 1
        return norms

    def unit(self, rows: Any) -> Floats:
        """The vectors of some rows, scaled to length 1."""
        units: Floats = self.matrix[rows] / self._norms[rows][..., None]
        return units

    def nearest(self, query: str | ArrayLike, count: int = 10, without: Iterable[str] = ()) -> Neighbours:
        """The words nearest to a word, itself left out, or to a vector (D,), by the cosine."""
        if isinstance(query, str):
            row = self.row(query)
            return self._nearest(self.matrix[row], count, [row, *self.ids(without)])
        vector = np.asarray(query, dtype=np.float32)
        if vector.shape != (self.size,) or not np.isfinite(vector).all():
            raise UserError(f"The query has shape {vector.shape}.", f"Expected {self.size} finite numbers, or a word.")
        return self._nearest(vector, count, self.ids(without))

    def analogy(self, terms: str | Sequence[str], count: int = 10) -> Neighbours:
        """The words nearest to a sum of words, such as "king - man + woman"; those words themselves are left out.

        Signs stand alone, between blanks. Every word counts with its vector scaled to length 1, as in Mikolov 2013.
        """
        signed = [(sign, self.row(word)) for sign, word in read_terms(terms)]
        total = sum(sign * self.unit(row) for sign, row in signed)
        return self._nearest(np.asarray(total, dtype=np.float32), count, [row for _, row in signed])

    def _nearest(self, vector: Floats, count: int, without: Iterable[int]) -> Neighbours:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UserError(f"count={count!r} is not a number of words.", "Expected a whole number from 1 on.")
        length = float(np.linalg.norm(vector))
        if not length:
            raise UserError("The query is a vector of zeros: it has no direction.", "Ask for another word or sum.")
        cosines = self.matrix @ (vector / np.float32(length)) / self._norms  # (N,)
        left_out = {row for row in without if row >= 0}
        cosines[list(left_out)] = -np.inf
        count = min(count, len(self) - len(left_out))
        best = np.argpartition(-cosines, count - 1)[:count] if 0 < count < len(self) else np.arange(len(self))
        ordered = best[np.argsort(-cosines[best], kind="stable")][:count]
        return [(self.words[row], float(cosines[row])) for row in ordered]

    def analogies(self, path: str | Path) -> dict[str, Any]:
        """Accuracy on a file of analogies: `: group` lines, then questions `a b c d`, for a : b = c : d.

        An answer is right where d is nearest to b − a + c, the three themselves left out, every vector scaled to
        length 1. Questions with a word that has no vector are skipped, and counted. The result: `total`, `semantic` and
        `syntactic` (the groups whose names begin with "gram"), each the share of right answers or None without
        questions, `asked`, `skipped`, and the same for each of `groups`.
        """
        return evaluate_analogies(read_questions(path), self.ids, self.unit(slice(None)))


def read_terms(terms: str | Sequence[str]) -> list[tuple[int, str]]:
    """Words and their signs, +1 or −1.

    >>> read_terms("king - man + woman")
    [(1, 'king'), (-1, 'man'), (1, 'woman')]
    """
    parts = terms.split() if isinstance(terms, str) else list(terms)
    if len(parts) == 1:  # a lone sign is a word
        return [(1, parts[0])]
    signs = {"+": 1, "-": -1, "−": -1}
    signed: list[tuple[int, str]] = []
    sign: int | None = 1
    for place, part in enumerate(parts):
        if sign is None:
            if part not in signs:
                raise UserError(f"There is no sign between {signed[-1][1]!r} and {part!r}.", _SUM)
            sign = signs[part]
        elif part in signs:
            if place:
                raise UserError(f"{part!r} is in the place of a word.", _SUM)
            sign = signs[part]
        else:
            signed.append((sign, part))
            sign = None
    if sign is not None:
        raise UserError("The sum ends with a sign." if parts else "There are no words.", _SUM)
    return signed


_SUM = "Expected words with + or - between them: king - man + woman"
