"""Titles of figures: the task, the answer, and the truth if it is known."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from unrolled.see.figures.labels import drawable
from unrolled.see.figures.steps import columns

if TYPE_CHECKING:
    from unrolled.see.trace import ModelTrace

WHOSE = {"answer": " of the answer", "label": " of the requested label", "text": " of the requested text"}


def title_of(trace: ModelTrace, wide: float, size: float) -> str:
    """Task, answer and truth on one line, or the truth on a second line if they do not fit."""
    text = f"{trace.task}: {' '.join(trace.answer.split()) or '(nothing)'}"
    room = int(72 * (wide - 0.6) / (0.58 * size))
    truth = None if trace.truth is None else " ".join(trace.truth.split())
    if truth is None:
        return drawable(cut(text, room))
    whole = f"{text} (truth: {truth})"
    if columns(whole) <= room:
        return drawable(whole)
    return drawable(f"{cut(text, room)}\n{cut(f'truth: {truth}', room)}")


def compared(trace: ModelTrace) -> str:
    """The answer and the truth on two lines; empty if the truth is unknown."""
    return "" if trace.truth is None else f"answer: {trace.answer or '(nothing)'}\ntruth: {trace.truth}"


def wrapped(text: str, wide: float, size: float) -> str:
    """A title for matplotlib, each of its lines wrapped to at most two lines of `wide` inches."""
    room = max(12, int(72 * wide / (0.6 * size)))
    lines = [textwrap.wrap(line, room, max_lines=2, placeholder=" …") for line in text.splitlines()]
    return drawable("\n".join(line for some in lines for line in some))


def whose(trace: ModelTrace) -> str:
    """The target of the loss, if a truth is known and the loss is not that of the truth."""
    return "" if trace.truth is None else WHOSE.get(trace.follows, "")


def cut(text: str, room: int) -> str:
    """The text, cut to at most `room` columns.

    >>> cut("one fine day", 8), cut("short", 8)
    ('one fin…', 'short')
    """
    while columns(text) > room:
        text = f"{text[: -max(2, columns(text) - room + 1)]}…"
    return text
