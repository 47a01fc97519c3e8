"""Classes of the user's, from Python files that the user names. Nothing stored in a model file is ever imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from unrolled.errors import UserError, unknown_name

PREFIX = "unrolled_own_"  # of the modules made from files of the user's


def own_class(text: str, base: type[Any], noun: str, home: str) -> type[Any]:
    """The class of "my_file.py:MyClass", which inherits from `base`; the file is run.

    `noun` names such a class in errors, and `home` is where `base` is imported from.
    """
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        example = f"my_{noun}.py:My{noun.title()}"
        raise UserError(f"{text!r} does not name a {noun} of your own.", f"Expected FILE.py:CLASS: {example}")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{path} does not exist.", f"Give the Python file of your {noun}.")
    module = _run(path)

    def fits(value: object) -> bool:
        return isinstance(value, type) and issubclass(value, base)

    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if fits(value) and value.__module__ == module.__name__]
        raise unknown_name(f"{noun} of {path}", name, known)
    found: type[Any] = getattr(module, name)
    if not fits(found):
        raise UserError(
            f"{name} of {path} is not a {noun}.", f"Make it a class that inherits from {home}.{base.__name__}."
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise UserError(f"The {noun} {name} of {path} lacks {', '.join(missing)}.", "Write these methods.")
    return found


def text_of(found: type[Any]) -> str | None:
    """The text that `own_class` found a class with, for another process; None for any other class."""
    module = found.__module__
    return f"{sys.modules[module].__file__}:{found.__name__}" if module.startswith(PREFIX) else None


def _run(path: Path) -> Any:
    name = f"{PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
