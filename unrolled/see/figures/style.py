"""Width and text size of figures; matplotlib's own warnings are suppressed."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unrolled.errors import Note, UserError

WIDTHS = {"column": 3.3, "page": 6.9}  # inches: one column of a two-column paper, and both
NARROWEST, WIDEST = 2.0, 60.0  # inches that a user can request
USUAL = 12.0  # largest default width in inches
SIZE = 10.0  # points, the text size on a screen


def read_width(given: str | float | None) -> float | None:
    """A width in inches, from a number or a name; None: the content decides.

    >>> read_width("column"), read_width("5.5"), read_width(None)
    (3.3, 5.5, None)
    """
    if given is None:
        return None
    if isinstance(given, str) and given in WIDTHS:
        return WIDTHS[given]
    named = ", ".join(f"{name} ({inches} in)" for name, inches in WIDTHS.items())
    expected = f"Expected inches from {NARROWEST:g} to {WIDEST:g}, such as 5.5, or a name: {named}."
    try:
        inches = float(given)
    except (TypeError, ValueError):
        raise UserError(f"width={given!r} is not a width.", expected) from None
    if not (math.isfinite(inches) and NARROWEST <= inches <= WIDEST):
        raise UserError(f"width={given!r} is out of range.", expected)
    return inches


def width_of(steps: int, width: float | None) -> float:
    """The requested width, or one that fits the number of steps."""
    return width or min(USUAL, 2.5 + 0.16 * max(steps, 30))


def text_size(width: float | None) -> float:
    """Text size in points for a figure width: about 7 in a column, 8 on a page, 10 on a screen.

    >>> [round(text_size(width), 1) for width in (3.3, 6.9, None)]
    [7.3, 8.2, 10.0]
    """
    return SIZE if width is None else min(max(6.5 + 0.25 * width, 7.0), SIZE)


@contextmanager
def style(size: float) -> Iterator[None]:
    """Draw and save figures with this text size and Type 42 fonts, which publishers require."""
    with quiet():
        import matplotlib

        with matplotlib.rc_context(_settings(size)):
            yield


def _settings(size: float) -> Any:
    return {
        "font.size": size,
        "axes.titlesize": "medium",
        "figure.titlesize": "medium",
        "axes.labelsize": "medium",
        "xtick.labelsize": "small",
        "ytick.labelsize": "small",
        "legend.fontsize": "small",
        "axes.linewidth": 0.06 * size,
        "xtick.major.width": 0.06 * size,
        "ytick.major.width": 0.06 * size,
        "xtick.major.size": 0.3 * size,
        "ytick.major.size": 0.3 * size,
        "xtick.minor.size": 0.2 * size,
        "ytick.minor.size": 0.2 * size,
        "axes.titlepad": 0.4 * size,
        "axes.labelpad": 0.3 * size,
        "lines.linewidth": 0.13 * size,
        "lines.markersize": 0.3 * size,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.fonttype": "none",
        "text.usetex": False,
        "savefig.bbox": None,  # tight boxes would change the requested width
    }


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and log lines of matplotlib and its font tools, but not our own notes."""
    loggers = [logging.getLogger(name) for name in ("matplotlib", "fontTools")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for one in caught:
            if issubclass(one.category, Note):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
