"""Data moves one way: a module imports only from what stands above its own folder in the design's order."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

HOLDERS = (ast.stmt, ast.excepthandler, ast.match_case)  # imports, classes and functions are in no other node
PACKAGE = Path(__file__).parent.parent / "unrolled"

# From the first, which imports nothing of ours, to the last, which may import everything.
ORDER = [
    "lazy",
    "errors",
    "durations",
    "own_code",
    "exported",
    "config",
    "text",
    "data",
    "cells",
    "kernels",
    "nn",
    "search",
    "models",
    "metrics",
    "training",
    "see",
    "model_file",
    "hub",
    "model",
    "tasks",
    "runtime",
    "export",
    "jobs",
    "sweeps",
    "corpus",
    "serve",
    "api",
    "sklearn",
    "ray",
    "recipe_data",
    "recipes",
    "cli",
    "__main__",
]


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """A file's statements, classes and functions at any depth, its module first."""
    found: list[ast.AST] = [ast.parse(path.read_text())]
    for node in found:  # which grows
        found += [child for child in ast.iter_child_nodes(node) if isinstance(child, HOLDERS)]
    return found


def imports_of(path: Path) -> list[str]:
    """The parts of the package that a file imports: `unrolled.nn.init` is part `nn`."""
    names: list[str] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import at line {node.lineno}; write it out"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names] if module == "unrolled" else [module]
    parts = [name.split(".")[1] for name in names if name.startswith("unrolled.")]
    return [part for part in parts if not part.startswith("__")]


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def violations(path: Path, part: str) -> list[str]:
    return [other for other in imports_of(path) if ORDER.index(other) > ORDER.index(part)]


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_keep_the_order(path: Path) -> None:
    assert part_of(path) in ORDER, f"{path} has no place in the order"
    assert violations(path, part_of(path)) == []


def test_the_check_sees_a_wrong_import(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from unrolled import nn\nimport unrolled.cli.app\nfrom unrolled.errors import UserError\n")
    assert violations(wrong, "cells") == ["nn", "cli"]
    assert violations(wrong, "cli") == []


def test_no_class_name_means_two_things() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        if part_of(path) == "sklearn":  # its estimators are of another library
            continue
        module = nodes_of(path)[0]
        assert isinstance(module, ast.Module)
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert twice == {}


ROOT = PACKAGE.parent
FOLDERS = ("unrolled", "tests", "benchmarks", "recipes", "packaging")
PYTHON = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
QUESTIONS = {"what", "how", "where", "which", "whether", "when", "who", "whose", "why"}
MOST_LINES, MOST_IN_A_FUNCTION, MOST_ARGUMENTS = 450, 60, 12
LAYERS = {"unrolled/nn/attention_decoder.py", "unrolled/nn/recurrent.py"}  # constructors as torch.nn's: a keyword each


def test_files_functions_and_argument_lists_are_short() -> None:
    long: list[str] = []
    for path in PYTHON:
        text, name = path.read_text(), str(path.relative_to(ROOT))
        if len(text.splitlines()) > MOST_LINES:
            long.append(name)
        for node in nodes_of(path):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            given = node.args
            arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
            many = len(arguments) > MOST_ARGUMENTS and not (name in LAYERS and node.name == "__init__")
            if many or (node.end_lineno or 0) - node.lineno >= MOST_IN_A_FUNCTION:
                long.append(f"{name}: {node.name}")
    assert long == []


def test_no_docstring_begins_with_a_question_word() -> None:
    """A docstring says what the thing is or does."""
    asked = []
    for path in PYTHON:
        for node in nodes_of(path):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                first = (ast.get_docstring(node) or "-").split()[0].rstrip(",.:").lower()
                if first in QUESTIONS:
                    asked.append(f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}")
    assert asked == []
