"""A Keras 3 file, .keras: its layers and weights. Nothing in it is executed: code in it is refused."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unrolled.config.stored import parsed, stored_entry
from unrolled.errors import UserError
from unrolled.text.files import reading

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
LARGEST_CONFIG = 1 << 26  # bytes
INFLATED = 100  # times that a compressed entry may be larger than the file
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, KeyError, ValueError, NotImplementedError, RuntimeError, EOFError)
SAVE_AGAIN = "Save it again: model.save('model.keras') in Keras 3."

# The layers that can be read, and the names of their groups in the file of weights.
GROUPS = {
    "InputLayer": "input_layer",
    "Embedding": "embedding",
    "SimpleRNN": "simple_rnn",
    "LSTM": "lstm",
    "GRU": "gru",
    "Bidirectional": "bidirectional",
    "Dense": "dense",
    "TimeDistributed": "time_distributed",
    "Dropout": "dropout",
    "Activation": "activation",
}


@dataclass(frozen=True)
class KerasLayer:
    """A layer of a file: its class, its name, its settings, and the group of its weights."""

    file: KerasFile
    kind: str
    name: str
    config: Any
    group: str

    def setting(self, name: str, kind: Any, default: Any = ...) -> Any:
        """A setting; one of another type is an error, and one that is missing too, unless there is a default."""
        if default is not ... and isinstance(self.config, dict) and self.config.get(name) is None:
            return default
        with self.file.damage():
            return stored_entry(self.config, name, kind, f"layer {self.name!r}")

    def inner(self, name: str, group: str) -> KerasLayer:
        """The layer inside a wrapper."""
        with self.file.damage():
            stored = stored_entry(self.config, name, dict[str, Any], f"layer {self.name!r}")
            kind = stored_entry(stored, "class_name", str, f"layer {self.name!r}")
            config = stored_entry(stored, "config", dict[str, Any], f"layer {self.name!r}")
        return KerasLayer(self.file, kind, self.name, config, f"{self.group}/{group}")

    def weight(self, number: int, shape: Sequence[int], *, cell: bool = False) -> Tensor:
        """A weight, which must have this shape."""
        return self.file.weight(f"{self.group}/{'cell/' if cell else ''}vars/{number}", shape)

    def refused(self, why: str, fix: str = "Build the network by hand, and load its layers one by one.") -> UserError:
        return UserError(f"{self.file.path}: layer {self.name!r} {why}.", fix)


class KerasFile:
    """The content of a .keras file, opened by `open_keras`."""

    def __init__(self, path: Path, model: Any, weights: Any, size: int) -> None:
        self.path, self.model, self.weights, self.size = path, model, weights, size

    @contextmanager
    def damage(self) -> Iterator[None]:
        """Name the file in errors about its content."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{self.path} is damaged: {error.problem}", SAVE_AGAIN) from None

    @property
    def chain(self) -> list[KerasLayer]:
        """The layers of a Sequential model, or of a functional one without branches, in their order."""
        with self.damage():
            kind = stored_entry(self.model, "class_name", str, "model")
            config = stored_entry(self.model, "config", dict[str, Any], "model")
            if kind not in ("Sequential", "Functional"):
                raise UserError(f"it is a model of class {kind}.")
            stored = stored_entry(config, "layers", list[dict[str, Any]], "model")
            layers = []
            for one in stored:
                name = stored_entry(stored_entry(one, "config", dict[str, Any], "layer"), "name", str, "layer")
                layers.append((stored_entry(one, "class_name", str, "layer"), name, one))
        if kind == "Functional":
            self._check_chain([(name, one) for _, name, one in layers])
        seen: Counter[str] = Counter()
        found = []
        for kind, name, one in layers:
            layer = KerasLayer(self, kind, name, one["config"], "")
            if kind not in GROUPS:
                raise layer.refused(
                    f"is a {kind}, which is not read", f"These are: {', '.join(name for name in GROUPS)}."
                )
            number = f"_{seen[kind]}" if seen[kind] else ""
            seen[kind] += 1
            group = f"layers/{GROUPS[kind]}{number}"
            self._check_name(group, name)
            found.append(KerasLayer(self, kind, name, one["config"], group))
        return found

    def _check_chain(self, layers: Sequence[tuple[str, Any]]) -> None:
        """Every layer of a functional model must read the one before, and nothing else."""
        for (before, _), (name, one) in pairwise(layers):
            calls = one.get("inbound_nodes")
            sources = list(_histories([call.get("args") for call in calls])) if isinstance(calls, list) else []
            if sources != [before]:
                raise UserError(
                    f"{self.path}: layer {name!r} reads {', '.join(map(repr, sources)) or 'nothing'}, not only the "
                    f"layer before it, {before!r}.",
                    "Only chains of layers can be read: split the model, or build it by hand.",
                )

    def _check_name(self, group: str, name: str) -> None:
        """The weights of a group must be those of the layer of this name, where the file says so."""
        node = self._node(f"{group}/vars")
        told = name if node is None else str(node.attrs.get("name", name))
        if told != name:
            raise UserError(
                f"{self.path} is damaged: the weights in {group} are of layer {told!r}, not of {name!r}.", SAVE_AGAIN
            )

    def rows(self, place: str) -> int:
        """The first dimension of an array."""
        shape = self._dataset(place).shape
        if not shape or shape[0] < 1:
            raise UserError(f"{self.path} is damaged: the weights at {place} are empty.", SAVE_AGAIN)
        return int(shape[0])

    def weight(self, place: str, shape: Sequence[int]) -> Tensor:
        """The array at a place in the file of weights, in this shape."""
        found = self._dataset(place)
        if tuple(found.shape) != tuple(shape) or found.nbytes > self.size:
            raise UserError(
                f"{self.path} is damaged: the weights at {place} have shape {tuple(found.shape)}, "
                f"expected {tuple(shape)}.",
                SAVE_AGAIN,
            )
        return torch.from_numpy(found[()].astype("float32"))

    def _node(self, place: str) -> Any:
        """The group or array at a place, or None. Links to other places or to other files are not followed."""
        import h5py

        node = self.weights
        for part in place.split("/"):
            link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
            if not isinstance(link, h5py.HardLink):
                return None
            node = node[part]
        return node

    def _dataset(self, place: str) -> Any:
        """The array at a place."""
        import h5py

        node = self._node(place)
        if node is None:
            raise UserError(f"{self.path} is damaged: it has no weights at {place}.", SAVE_AGAIN)
        if not isinstance(node, h5py.Dataset) or node.external or node.is_virtual or node.dtype.kind != "f":
            raise UserError(f"{self.path} is damaged: {place} is not an array of numbers.", SAVE_AGAIN)
        return node


def _histories(value: Any) -> Iterator[str]:
    """The names of the layers whose outputs a call of a layer takes."""
    if isinstance(value, list):
        for one in value:
            yield from _histories(one)
    elif isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        history = value.get("config", {}).get("keras_history")
        yield str(history[0]) if isinstance(history, list) and history else "?"


@contextmanager
def open_keras(path: str | Path) -> Iterator[KerasFile]:
    """An open .keras file; reading its weights needs h5py."""
    try:
        import h5py
    except ImportError:
        raise UserError("Keras' files need h5py.", "Install it: pip install 'unrolled[keras]'") from None
    path = Path(path)
    with reading(path, ".keras file"):
        raw_size = path.stat().st_size
        try:
            with zipfile.ZipFile(path) as archive:
                model = parsed(_entry(archive, CONFIG, LARGEST_CONFIG))
                weights = _entry(archive, WEIGHTS, max(LARGEST_CONFIG, INFLATED * raw_size))
        except ZIP_ERRORS as error:
            raise UserError(f"{path} is not a whole .keras file: {str(error)[:200]}.", SAVE_AGAIN) from None
    try:
        opened = h5py.File(io.BytesIO(weights), "r")
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{path} is damaged: its weights cannot be read: {str(error)[:200]}.", SAVE_AGAIN) from None
    with opened:
        try:
            yield KerasFile(path, model, opened, len(weights))
        except (OSError, KeyError, RuntimeError) as error:  # of h5py
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path} is damaged: its weights cannot be read: {str(error)[:200]}.", SAVE_AGAIN) from None


def _entry(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    size = archive.getinfo(name).file_size
    if size > most:
        raise ValueError(f"{name} says that it has {size:,} bytes")
    return archive.read(name)
