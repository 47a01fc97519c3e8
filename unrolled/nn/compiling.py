"""torch.compile traces our layers; its compiler refuses torch.nn's recurrent classes and their subclasses."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

BUILDER = "torch._dynamo.variables.builder"  # the module of the compiler that looks at the objects of a program


def let_compiler_trace(kind: type) -> None:
    """Let torch.compile trace the modules of a class, now or when its compiler is imported.

    The compiler has one switch for all recurrent classes, `torch._dynamo.config.allow_rnn`. It is on only while the
    compiler looks at a module of this class: torch.nn's own layers behave as before.
    """
    builder = sys.modules.get(BUILDER)
    if builder is not None:
        _switch(builder, kind)
    else:  # importing the compiler takes a second, and few programs need it
        sys.meta_path.insert(0, _AfterImport(kind))


def _switch(builder: ModuleType, kind: type) -> None:
    import torch._dynamo.config as config

    variables: Any = getattr(builder, "VariableBuilder", None)
    if not hasattr(variables, "wrap_module") or not hasattr(config, "allow_rnn"):
        return  # another torch: the graph breaks at our layers, as at torch.nn's
    original = variables.wrap_module

    def wrap_module(self: Any, value: Any) -> Any:
        if not isinstance(value, kind):
            return original(self, value)
        with config.patch(allow_rnn=True):
            return original(self, value)

    variables.wrap_module = wrap_module


class _AfterImport:
    """A finder of modules that waits for the compiler's, and finds nothing itself."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != BUILDER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run: Any = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _switch(module, self.kind)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec
