"""The process that speaks, of those that torchrun started, and what torchrun hears; without torch."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


def is_alone() -> bool:
    return os.environ.get("WORLD_SIZE", "1") == "1"


def is_first() -> bool:
    """True of the first process, and of one alone."""
    return is_alone() or os.environ.get("RANK", "0") == "0"


def may_speak() -> bool:
    """True of one process alone, which tells the user about an error: the first that has one."""
    if is_alone():
        return True
    from unrolled.training import meeting  # it needs torch

    return meeting.may_speak()


def tell_torchrun(message: str) -> None:
    """Write the error where torchrun looks for it, so that its own last lines name it too."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file:
        found = {"message": message, "extraInfo": {"timestamp": str(int(time.time()))}}
        Path(file).write_text(json.dumps({"message": found}), encoding="utf-8")
