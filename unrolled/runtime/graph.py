"""Graphs in onnxruntime: opened at their first use, after their digest was checked."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.runtime.manifest import AGAIN, STATE, GraphEntry, Manifest

Arrays = Mapping[str, NDArray[Any]]
State = tuple[NDArray[Any], ...]
INSTALL = "Install it: pip install 'unrolled[runtime]'"
QUIET = 3  # errors alone


class Graph:
    """One graph of an exported model."""

    def __init__(self, folder: Path, name: str, entry: GraphEntry) -> None:
        self.name, self.entry, self.path = name, entry, folder / entry.file
        if not self.path.is_file():
            raise UserError(f"{self.path}, the graph {name!r} of the model, is missing.", AGAIN)

    @property
    def outputs(self) -> list[str]:
        return [one.name for one in self.entry.outputs]

    @functools.cached_property
    def session(self) -> Any:
        """The graph in onnxruntime."""
        runtime = onnxruntime()
        content = self.path.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.entry.sha256:
            raise UserError(
                f"{self.path} is not the file that was exported: its SHA-256 is another one.",
                f"Use another copy of the folder. {AGAIN}",
            )
        options = runtime.SessionOptions()
        options.log_severity_level = QUIET
        if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():  # onnxruntime itself does not read it
            options.intra_op_num_threads = int(threads)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads sleep
        try:
            return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a class for each reason
            problem = f"onnxruntime {runtime.__version__} cannot run {self.path}: {str(error).splitlines()[0]}"
            raise UserError(problem, "Update onnxruntime: pip install -U onnxruntime") from None

    def __call__(self, arrays: Arrays, state: State = ()) -> tuple[dict[str, NDArray[Any]], State]:
        """The outputs by name, and the state after them; arrays that the graph does not take are left out."""
        feeds: dict[str, NDArray[Any]] = {}
        for part, array in zip(self.entry.state, state, strict=True):
            feeds[part.name] = array
        for one in self.entry.inputs:
            if one.name in feeds:
                continue
            if one.name not in arrays:
                raise UserError(f"The graph {self.name!r} asks for {one.name!r}, which this task does not have.", AGAIN)
            feeds[one.name] = np.ascontiguousarray(arrays[one.name], dtype=one.dtype)
        found = dict(zip(self.outputs, self.session.run(self.outputs, feeds), strict=True))
        return found, tuple(found[name] for name in self.outputs if name.startswith(f"new_{STATE}"))

    def initial(self, rows: int) -> State:
        """Zeros for so many rows, with nothing along free sizes: the state before the first step."""
        shapes = [(one, [0 if isinstance(size, str) else size for size in one.shape[1:]]) for one in self.entry.state]
        return tuple(np.zeros([rows, *shape], dtype=one.dtype) for one, shape in shapes)


class Graphs:
    """The graphs of an exported model by name."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.known = {name: Graph(folder, name, entry) for name, entry in manifest.graphs.items()}

    def __contains__(self, name: str) -> bool:
        return name in self.known

    def __getitem__(self, name: str) -> Graph:
        if name not in self.known:
            raise UserError(
                f"The exported model has no graph {name!r}: it has {', '.join(self.known) or 'none'}.", AGAIN
            )
        return self.known[name]

    def get(self, name: str) -> Graph | None:
        return self.known.get(name)

    def check(self, names: Sequence[str]) -> None:
        """An error if one of these is missing."""
        for name in names:
            self[name]


def onnxruntime() -> Any:
    """The module onnxruntime; where it is missing, an error says what to install."""
    try:
        import onnxruntime as found
    except ImportError:
        raise UserError("Running an exported model needs onnxruntime, which is not installed.", INSTALL) from None
    return found
