"""The folder of an exported model: its names, and how it is recognised before anything large is imported."""

from __future__ import annotations

from pathlib import Path

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
