"""Digests by which a stopped run knows its model and its files again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unrolled import __version__
from unrolled.corpus.work import CorpusWork, Office
from unrolled.errors import UserError
from unrolled.exported import is_exported
from unrolled.tasks.runner import Request
from unrolled.text.files import reading

BLOCK = 1 << 22


def digest_of_file(path: str | Path) -> str:
    """The SHA-256 of a file; of a folder that of its files, with their names and sizes alone."""
    path, digest = Path(path), hashlib.sha256()
    if path.is_dir():
        for one in sorted(one for one in path.rglob("*") if one.is_file()):
            digest.update(f"{one.relative_to(path)}\0{_state(one)}\0".encode(errors="surrogateescape"))
        return digest.hexdigest()
    with reading(path, "file"), path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _state(path: Path) -> str:
    """The size and time of a file, where reading all of many would take long."""
    now = path.stat()
    return f"{now.st_size} {now.st_mtime_ns}"


def identity_of(work: CorpusWork, request: Request, office: Office) -> dict[str, Any]:
    """Everything that decides the bytes of the answers, by the name that a message gives it.

    Where an input file is itself one input, such as a recording, its size and time stand for its content.
    """
    changes = dict(work.changes) if isinstance(work.changes, Mapping) else list(work.changes or ())
    return {
        "model": _digest_of_model(work.model, office.model),
        "input": [_content(name, unread=office.runner.reads_files) for name in request.files],
        "task": _content(work.own.rpartition(":")[0]) if work.own else None,
        "options": json.loads(json.dumps({"options": _with_files(work), "set": changes, "keep": list(request.keep)})),
        "format": work.format,
        "device": work.device,
        "version": {name: _version(name) for name in ("torch", "onnxruntime", "numpy")} | {"unrolled": __version__},
    }


def _content(name: str, *, unread: bool = False) -> str:
    """The digest of a file; of one to leave unread its name, size and time."""
    if not Path(name).exists():
        return "missing"
    return f"{name} {_state(Path(name))}" if unread and Path(name).is_file() else digest_of_file(name)


def _digest_of_model(path: str, model: Any) -> str:
    if not path:
        return str(model.fingerprint())
    if is_exported(path):
        files = sorted(one for one in Path(path).rglob("*") if one.is_file())
        return hashlib.sha256("".join(map(digest_of_file, files)).encode()).hexdigest()
    from unrolled.model import find_file  # it needs torch

    return digest_of_file(find_file(path))


def _with_files(work: CorpusWork) -> dict[str, Any]:
    """The options; a path with the digest of its file."""
    found: dict[str, Any] = {}
    for name, value in work.options.items():
        try:
            json.dumps(value)
        except TypeError:
            raise UserError(
                f"{name} is {type(value).__name__}, which other processes and a later run cannot have.",
                f"Give the path of a file, or answer with model.predict(…, {name}=…).",
            ) from None
        is_file = isinstance(value, str) and Path(value).exists()
        found[name] = [value, digest_of_file(value)] if is_file else value
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
