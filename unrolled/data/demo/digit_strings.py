"""Handwritten numbers: scans of single digits from scikit-learn, joined to lines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError

DIGITS = (
    "strings of digits: scikit-learn's scans of handwriting, joined to random lines (the scans are real, the lines "
    "are not); scores are not comparable with published ones"
)
HEIGHT = 24
LINES = {"train": 1600, "valid": 300}
TRAINING_SHARE = 0.8  # of the scans; no scan is in both sets


def digit_strings(part: str) -> list[tuple[NDArray[np.uint8], str]]:
    """Lines of two to six digits, dark on white (24, W), with their transcripts; always the same ones."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError(
            "There is no data.train, and the built-in handwriting is not installed.",
            "Give a manifest, file TAB transcript: --train manifest.tsv; or: pip install 'unrolled[demo]'",
        ) from None
    scans = load_digits()
    images, digits = scans.images, scans.target
    cut = int(TRAINING_SHARE * len(images))
    rows = np.arange(cut) if part == "train" else np.arange(cut, len(images))
    random = np.random.default_rng(0 if part == "train" else 1)
    return [_line(images, digits, random.choice(rows, random.integers(2, 7)), random) for _ in range(LINES[part])]


def _line(
    images: NDArray[np.float64], digits: NDArray[np.int64], rows: NDArray[np.int64], random: np.random.Generator
) -> tuple[NDArray[np.uint8], str]:
    pieces = [np.zeros((HEIGHT, random.integers(2, 8)))]
    for row in rows:
        scan = np.kron(images[row], np.ones((2, 2))) * (255 / 16)  # (16, 16), 255 is ink
        piece = np.zeros((HEIGHT, 16 + random.integers(0, 8)))
        top = random.integers(1, HEIGHT - 16)
        piece[top : top + 16, :16] = scan
        pieces.append(piece)
    ink = np.concatenate(pieces, axis=1)
    return (255 - ink).round().astype(np.uint8), "".join(str(digits[row]) for row in rows)
