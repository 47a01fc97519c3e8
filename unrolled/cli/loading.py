"""The model that a command names: a model file, a run folder, or the folder of an exported model."""

from __future__ import annotations

from typing import Any

from unrolled.errors import UserError


def load_either(path: str, own: Any, device: str) -> Any:
    """The model of a file or run folder; of an exported model's folder, without torch."""
    from unrolled.exported import check_there, is_exported
    from unrolled.hub import is_address

    if not is_exported(path):
        if not is_address(path):
            check_there(path)  # before torch is asked for
        from unrolled import api

        return api.load(path, task=own, device=device)
    if own is not None or device != "cpu":
        flag = "--task" if own is not None else f"--device {device}"
        raise UserError(f"{flag} is not for an exported model: it runs on the CPU, with its own task.", "Leave it out.")
    from unrolled import runtime

    return runtime.load(path)
