"""What stands above a picture: the task, the answer, and the truth where it is known."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from unrolled.see.figures.labels import drawable
from unrolled.see.figures.steps import columns

if TYPE_CHECKING:
    from unrolled.see.trace import ModelTrace

WHOSE = {"answer": " of the answer", "label": " of the label asked for", "text": " of the text asked for"}


def title_of(trace: ModelTrace, wide: float, size: float) -> str:
    """Task, answer and truth on one line; the truth on a line of its own where one is too short."""
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
    """The answer and the truth, each on a line; nothing where the truth is not known."""
    return "" if trace.truth is None else f"answer: {trace.answer or '(nothing)'}\ntruth: {trace.truth}"


def wrapped(text: str, wide: float, size: float) -> str:
    """Lines of a title as matplotlib can draw them, each on at most two lines of a picture `wide` inches wide."""
    room = max(12, int(72 * wide / (0.6 * size)))
    lines = [textwrap.wrap(line, room, max_lines=2, placeholder=" …") for line in text.splitlines()]
    return drawable("\n".join(line for some in lines for line in some))


def whose(trace: ModelTrace) -> str:
    """Whose loss is shown, where a truth is known and the loss is not the truth's."""
    return "" if trace.truth is None else WHOSE.get(trace.follows, "")


def cut(text: str, room: int) -> str:
    """A text of at most so many columns.

    >>> cut("one fine day", 8), cut("short", 8)
    ('one fin…', 'short')
    """
    while columns(text) > room:
        text = f"{text[: -max(2, columns(text) - room + 1)]}…"
    return text
