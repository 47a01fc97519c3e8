"""Word and sentence vectors for the page: neighbours, sums, and a map in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.see.figures.labels import plain
from unrolled.see.views.trace import rounded
from unrolled.text import Vectors

SHOWN = 15
MOST_WORDS = 600  # on a map


def why_no_words(model: Model) -> str | None:
    """Reason a model has no word vectors, or None."""
    try:
        model.word_vectors()
    except UserError as error:
        return str(error)
    return None


def nearest(vectors: Vectors, words: str) -> dict[str, Any]:
    """The words nearest to a word, or to a sum such as king - man + woman."""
    terms = [words] if words in vectors else words.split()
    if not terms:
        raise UserError("No word was given.", "Give one, or a sum: king - man + woman.")
    found = vectors.nearest(terms[0], SHOWN) if len(terms) == 1 else vectors.analogy(terms, SHOWN)
    return {"nearest": [[plain(word), rounded(cosine)] for word, cosine in found]}


def word_map(vectors: Vectors) -> dict[str, Any]:
    """A map of the first words, which are the most frequent in most vocabularies."""
    return vector_map(vectors.matrix[:MOST_WORDS], [plain(word) for word in vectors.words[:MOST_WORDS]], [])


def vector_map(matrix: NDArray[Any], names: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """Vectors on a plane, with their names and labels."""
    x, y = ([rounded(float(value)) for value in column] for column in plane(matrix).T)
    return {"x": x, "y": y, "names": list(names), "labels": list(labels)}


def plane(matrix: NDArray[Any]) -> NDArray[np.float64]:
    """Vectors (N, D) projected on their first two principal components (N, 2), with fixed signs.

    >>> plane(np.array([[0.0, 0, 0], [2, 0, 0], [4, 1, 0]])).round(2).tolist()
    [[-2.02, 0.17], [-0.08, -0.32], [2.1, 0.15]]
    """
    if not np.isfinite(matrix).all():
        raise UserError("Some vectors contain NaN or infinity and cannot be mapped.")
    centred = np.asarray(matrix, dtype=np.float64) - np.mean(matrix, axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = np.concatenate([axes, np.zeros((max(0, 2 - len(axes)), centred.shape[1]))])[:2]
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    points: NDArray[np.float64] = centred @ (axes * np.where(signs == 0, 1, signs)[:, None]).T
    return points
