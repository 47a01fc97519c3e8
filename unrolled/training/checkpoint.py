"""Checkpoints: the complete state of a run, safe against a stop at any instant.

A checkpoint is a folder with `tensors.safetensors` and `state.json`. A new one is written beside the old
one and renamed; the previous one is kept. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unrolled.config.stored import parsed
from unrolled.errors import UserError, remedy

NEW, CURRENT, PREVIOUS = "checkpoint.new", "checkpoint", "checkpoint.previous"
FORMAT = 1


def flatten(value: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """A JSON skeleton of nested tuples, lists and dictionaries; tensors go to `tensors` under their paths."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().contiguous()
        return {"tensor": path}
    if isinstance(value, tuple):
        return {"tuple": [flatten(v, tensors, f"{path}.{i}") for i, v in enumerate(value)]}
    if isinstance(value, list):
        return {"list": [flatten(v, tensors, f"{path}.{i}") for i, v in enumerate(value)]}
    if isinstance(value, dict):
        pairs = enumerate(value.items())
        return {"dict": [[k, flatten(v, tensors, f"{path}.{i}")] for i, (k, v) in pairs]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"{path}: a checkpoint cannot hold a {type(value).__name__}")


def unflatten(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `flatten`; ValueError for anything else."""
    if not isinstance(skeleton, dict) or len(skeleton) != 1:
        raise ValueError("its state.json is not the state of a run")
    ((kind, content),) = skeleton.items()
    if kind == "tensor" and isinstance(content, str) and content in tensors:
        return tensors[content]
    if kind == "tuple" and isinstance(content, list):
        return tuple(unflatten(v, tensors) for v in content)
    if kind == "list" and isinstance(content, list):
        return [unflatten(v, tensors) for v in content]
    if kind == "dict" and isinstance(content, list) and all(_is_pair(item) for item in content):
        return {k: unflatten(v, tensors) for k, v in content}
    if kind == "value" and (content is None or isinstance(content, (bool, int, float, str))):
        return content
    raise ValueError(f"its state.json holds {kind!r:.60} that cannot be read")


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], (str, int))


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint into a run folder and keep the previous one."""
    new, current, previous = (folder / name for name in (NEW, CURRENT, PREVIOUS))
    tensors: dict[str, Tensor] = {}
    skeleton = flatten(state, tensors, "state")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    text = json.dumps(skeleton)
    own = hashlib.sha256(text.encode()).hexdigest()
    try:
        # safetensors has no shared memory: tied weights are stored twice and stay equal
        save_file({name: t.clone() for name, t in tensors.items()}, new / "tensors.safetensors")
        digest = hashlib.sha256((new / "tensors.safetensors").read_bytes()).hexdigest()
        document = f'{{"format": {FORMAT}, "sha256": "{digest}", "state_sha256": "{own}", "state": {text}}}'
        (new / "state.json").write_text(document)
        for path in new.iterdir():
            sync(path)
    except (OSError, SafetensorError):  # remove the incomplete copy, which takes space on a full disk
        shutil.rmtree(new, ignore_errors=True)
        raise
    if current.exists():
        shutil.rmtree(previous, ignore_errors=True)
        current.rename(previous)
    new.rename(current)
    sync(folder)


def load(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The newest intact checkpoint of a run folder, and the defects of newer ones."""
    problems: list[str] = []
    for name in (CURRENT, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            return _read(path), problems
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            problems.append(f"{path} cannot be used: {error}")
    if problems:
        raise UserError(" ".join(problems), "There is no earlier checkpoint: train again.")
    raise UserError(f"{folder} has no checkpoint.", "Give a run folder that `unrolled train` made.")


def _read(path: Path) -> dict[str, Any]:
    document = parsed((path / "state.json").read_bytes())
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ValueError("its state.json is not the state of a run")
    if document["format"] > FORMAT:
        raise ValueError(f"its format {document['format']} is newer than this version's {FORMAT}; upgrade unrolled")
    own = document.get("state_sha256")  # older checkpoints have none
    if own is not None and own != hashlib.sha256(json.dumps(document["state"]).encode()).hexdigest():
        raise ValueError("its state.json was changed")
    raw = (path / "tensors.safetensors").read_bytes()
    if hashlib.sha256(raw).hexdigest() != document["sha256"]:
        raise ValueError("its tensors are incomplete or changed")
    state: dict[str, Any] = unflatten(document["state"], load_file(path / "tensors.safetensors"))
    if not isinstance(state, dict):
        raise ValueError("its state.json is not the state of a run")
    return state


@contextmanager
def one_message(folder: Path) -> Iterator[None]:
    """One message for a checkpoint that does not fit the run's config."""
    try:
        yield
    except UserError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        reason = f"{type(error).__name__}, {error}"
        raise UserError(
            f"The checkpoint of {folder} does not fit its config: {reason[:300]}.",
            f"One of them was changed. Train again, or start from its model: --init {folder}.",
        ) from error


def sync(path: Path) -> None:
    """Flush a file or folder to disk, to survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file completely, or leave it as it was."""
    beside = path.with_name(path.name + ".new")
    raw = content.encode() if isinstance(content, str) else content
    with disk_errors(path):
        try:
            beside.write_bytes(raw)
            sync(beside)
            beside.rename(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise


class DiskError(UserError):
    """An error of the disk with its fix; `then` is the step after the fix."""

    def __init__(self, problem: str, first: str, then: str = "") -> None:
        if then:
            fix = f"{first}, then {then}" if first else f"When that is mended, {then}"
        else:
            fix = f"{first}, or choose another place." if first else "Choose another place."
        super().__init__(problem, fix)
        self.first = first


@contextmanager
def disk_errors(path: Path, then: str = "") -> Iterator[None]:
    """Turn errors of the disk into messages that name `path`, unless an inner block already named a file."""
    try:
        yield
    except DiskError as error:
        raise (DiskError(error.problem, error.first, then) if then else error) from None
    except (OSError, SafetensorError) as error:
        problem = error if isinstance(error, OSError) else _number_of(error)
        raise DiskError(f"{path} could not be written: {problem.strerror or problem}.", remedy(problem), then) from None


def _number_of(error: SafetensorError) -> OSError:
    """The number of a system error, which safetensors reports as text."""
    found = re.search(r"os error (\d+)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error))


def random_state() -> dict[str, Tensor]:
    """The state of every random generator used in training."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state |= {f"cuda:{i}": torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())}
    return state


def restore_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    for name, value in state.items():
        if name != "cpu" and torch.cuda.is_available():
            torch.cuda.set_rng_state(value, name)
