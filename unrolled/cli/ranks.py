"""The process that speaks, of those that torchrun started; found without torch."""

from __future__ import annotations

import os


def is_alone() -> bool:
    return os.environ.get("WORLD_SIZE", "1") == "1"


def is_first() -> bool:
    """True of the first process, and of one alone."""
    return is_alone() or os.environ.get("RANK", "0") == "0"
