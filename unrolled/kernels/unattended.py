"""Work that the host does not wait for: no value is read back from the GPU, so that a CUDA graph can record it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_UNATTENDED: ContextVar[bool] = ContextVar("unattended", default=False)


@contextmanager
def unattended() -> Iterator[None]:
    """A block in which lengths on a GPU are trusted, and engines that read values back are avoided.

    For inputs that were checked before: training uses it for its own batches.

    >>> with unattended():
    ...     is_unattended()
    True
    >>> is_unattended()
    False
    """
    token = _UNATTENDED.set(True)
    try:
        yield
    finally:
        _UNATTENDED.reset(token)


def is_unattended() -> bool:
    """True inside `unattended`."""
    return _UNATTENDED.get()
