"""Durations as people read them."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """A duration as minutes and seconds, or with hours.

    >>> clock(59.4), clock(75), clock(7384)
    ('0:59', '1:15', '2:03:04')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
