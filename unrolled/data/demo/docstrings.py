"""Labelled sentences from Python itself: lines of docstrings, and the module of each."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

DOCSTRINGS = "first lines of docstrings in Python's standard library, labelled with their module"
MODULES = [
    "_pydecimal",
    "_pyio",
    "asyncio",
    "email",
    "http",
    "importlib",
    "inspect",
    "logging",
    "mailbox",
    "multiprocessing",
    "pathlib",
    "pydoc",
    "tarfile",
    "tkinter",
    "turtle",
    "typing",
    "unittest",
    "urllib",
    "xml",
]


def embedded_labels() -> list[tuple[str, str]]:
    """(module, first line of a docstring), each line once; lines that several modules share are left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    modules: dict[str, set[str]] = {}  # of each line
    for module in MODULES:
        for path in [root / f"{module}.py", *sorted((root / module).rglob("*.py"))]:
            if path.is_file() and "test" not in path.parts:
                for line in _docstrings(path):
                    modules.setdefault(line, set()).add(module)
    return [(next(iter(owners)), line) for line, owners in modules.items() if len(owners) == 1]


def _docstrings(path: Path) -> list[str]:
    """First lines of at least three words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    firsts = (" ".join(text.strip().split("\n")[0].split()) for text in texts if text and text.strip())
    return [line for line in firsts if len(line.split()) >= 3]
