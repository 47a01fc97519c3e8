"""The model file: metadata, checked before a network is built from it, and weights.

A .safetensors file with one entry `unrolled` in its metadata, JSON: format, task, config, assets, scores, versions,
data and sha256, digests of everything that decides the model's answers. Older files without sha256 are read without
this check.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from unrolled.config.describe import show
from unrolled.config.stored import parsed
from unrolled.errors import UserError
from unrolled.nn.state_files import PICKLED

FORMAT = 1
CHANGED = "The file was changed after it was written: use another copy of it."
LARGEST = 1 << 24  # largest integer in the model section, unless the file has more weights
ROOM = 1 << 24  # numbers that building a network may need besides a multiple of its weights
LONGEST = 1000  # characters of a message about the file's content
CALLS = 20_000  # tensors that building may create besides a multiple of the file's
Name = Annotated[str, Field(max_length=1000)]


class Digests(BaseModel):
    """SHA-256 of the weights, and of the metadata that decides the answers, in hexadecimal."""

    model_config = ConfigDict(strict=True)

    tensors: str
    about: str


class About(BaseModel):
    """The metadata of a model file. Unknown keys are ignored."""

    model_config = ConfigDict(strict=True)

    format: int = Field(ge=1)
    task: Name
    config: dict[str, JsonValue]
    assets: JsonValue
    scores: dict[Name, float]
    versions: dict[Name, Name]
    data: dict[Name, Name] | None = None  # `source`, its name, and `sha256` of the examples; early files lack it
    sha256: Digests | None = None

    @property
    def written_by(self) -> str:
        return self.versions.get("unrolled", "unknown")


def signed(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The metadata of a new file, with its digests."""
    about = {**about, "sha256": {"tensors": digest_of(tensors), "about": _digest_of_about(about)}}
    return json.dumps(about)


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """One digest of tensors: their names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _digest_of_about(about: Mapping[str, Any]) -> str:
    decisive = {key: about[key] for key in ("format", "task", "config", "assets")}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def is_model_file(path: Path) -> bool:
    """False for weights that another program wrote: a file of torch, or one without our metadata."""
    if path.suffix != ".safetensors":
        return path.suffix not in PICKLED
    with _whole(path), safe_open(path, "pt") as file:
        return "unrolled" in (file.metadata() or {})


def read_about(path: Path) -> About:
    """Read and check the metadata of a model file."""
    with _whole(path), safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get("unrolled")
    if text is None:
        raise UserError(
            f"{path} is a safetensors file, but not one of unrolled's.", "Give a model that unrolled wrote."
        )
    try:
        raw = parsed(text)
        number = raw.get("format") if isinstance(raw, dict) else None
        if isinstance(number, int) and number > FORMAT:  # the rest may be unknown to this version
            raise _too_new(path, raw)
        about = About.model_validate(raw)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg'].lower()}" for e in error.errors()[:3])
        raise UserError(f"{path} has unreadable metadata: {wrong}.", CHANGED) from None
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} has unreadable metadata: {error}.", CHANGED) from None
    if about.sha256 is not None and _digest_of_about(raw) != about.sha256.about:
        raise UserError(f"{path} is damaged: its config and vocabularies are not those it was written with.", CHANGED)
    return about


def _too_new(path: Path, raw: Mapping[str, Any]) -> UserError:
    versions = raw.get("versions")
    writer = versions.get("unrolled") if isinstance(versions, dict) else None
    return UserError(
        f"{path} has format {raw['format']}; this version of unrolled reads up to {FORMAT}.",
        f"Upgrade unrolled: the file was written by {show(writer) if not isinstance(writer, str) else writer[:60]}.",
    )


@contextmanager
def building(path: Path, config: Any) -> Iterator[None]:
    """Guard the building of a network from a file: its sizes must fit the file's weights.

    Memory is limited to a multiple of the file's weights, however large the sizes in the config are. Any other error
    is reported as damage of the file.
    """
    shapes = _shapes(path)
    elements = sum(math.prod(shape) for shape in shapes)
    for key, value in _whole_numbers(config.model_dump().get("model", {})):
        if abs(value) > max(LARGEST, elements):
            raise UserError(
                f"{path} is damaged: model.{key} is {value}, and the file holds {elements:,} weights.", CHANGED
            )
    try:
        with _Bounded(path, 8 * elements + ROOM, 200 * len(shapes) + CALLS):
            yield
    except UserError as error:
        problem = error.problem if str(path) in error.problem else f"{path} is damaged: {error.problem}"
        raise UserError(problem[:LONGEST], error.fix) from None
    except Exception as error:
        raise UserError(
            f"{path} is damaged: no network can be built from its config and vocabularies: "
            f"{type(error).__name__}, {show(str(error))}.",
            CHANGED,
        ) from error


def _whole_numbers(section: Any, path: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(section, dict):
        for key, value in section.items():
            yield from _whole_numbers(value, f"{path}.{key}" if path else str(key))
    elif isinstance(section, (list, tuple)):
        for value in section:
            yield from _whole_numbers(value, path)
    elif isinstance(section, int):
        yield path, section


class _Bounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts new tensors and their numbers, and raises before a limit is exceeded."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here. True would make torch import its compiler: three seconds for every model file."""
        return False

    def __init__(self, path: Path, numbers: int, calls: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path, self.numbers, self.calls = path, numbers, calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls -= 1
        self.numbers -= _size(args[0]) if args else 0
        if self.numbers < 0 or self.calls < 0:
            raise UserError(
                f"{self.path} is damaged: its config describes a network far larger than its weights.", CHANGED
            )
        return func(*args, **(kwargs or {}))


def _size(first: Any) -> int:
    """The numbers that a call allocates if its first argument is a shape, as in torch.zeros, or a count."""
    if isinstance(first, int):
        return max(0, first)
    if isinstance(first, (list, tuple)) and all(isinstance(size, int) for size in first):
        return max(0, math.prod(first))
    return 0


def load_weights(network: nn.Module, path: Path, about: About, *, mapped: bool = False) -> None:
    """Load the weights of a model file into a network.

    `mapped`: they stay in a memory map of the file. Processes that map it share the memory; they must not change it.
    """
    if about.sha256 is not None:
        with _whole(path), safe_open(path, "pt") as file:
            same = digest_of(_Lazy(file)) == about.sha256.tensors
        if not same:
            raise UserError(f"{path} is damaged: its weights are not those it was written with.", CHANGED)
    try:
        with _whole(path):
            load_model(network, path)
            if mapped:
                _map_weights(network, path)
    except RuntimeError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path} does not fit its own config: {str(error)[:LONGEST]}.",
            "The file was changed after it was written.",
        ) from None


def _map_weights(network: nn.Module, path: Path) -> None:
    """Replace the copies of the weights by the memory map of their file."""
    places = {**dict(network.named_parameters(remove_duplicate=False)), **dict(network.named_buffers())}
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118, not a dictionary
            places[name].data = file.get_tensor(name)


class _Lazy(Mapping[str, Tensor]):
    """The tensors of an open file, read lazily."""

    def __init__(self, file: Any) -> None:
        self.file, self.names = file, list(file.keys())

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self.file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _shapes(path: Path) -> list[list[int]]:
    with _whole(path), safe_open(path, "pt") as file:
        return [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118, not a dictionary


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} is not a complete model file: {str(error)[:LONGEST]}.",
            "Give a .safetensors file that unrolled wrote.",
        ) from None
