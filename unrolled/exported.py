"""The path of a model before anything large is imported: whether it is there, and an exported model."""

from __future__ import annotations

from pathlib import Path

from unrolled.errors import UserError

FORMAT = "unrolled-onnx"
VERSION = 1
MANIFEST = "manifest.json"
BEGINNING = 4096  # bytes of a manifest in which its format stands


def is_exported(path: str | Path) -> bool:
    """True for a folder whose manifest is that of an exported model, whole or damaged."""
    manifest = Path(path) / MANIFEST
    if not manifest.is_file():
        return False
    with manifest.open("rb") as file:
        return FORMAT.encode() in file.read(BEGINNING)


def check_there(path: str | Path) -> None:
    """An error for the path of a model where nothing is."""
    if not Path(path).exists():
        raise UserError(f"{path} does not exist.", "Give a run folder made by `unrolled train`, or a model file.")
