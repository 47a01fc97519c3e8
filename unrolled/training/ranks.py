"""Several processes that train one network, as torchrun starts them: their sums, their messages, and their errors.

Tensors are added up by gloo on CPUs and by NCCL on GPUs. Everything else is JSON and safetensors: no pickle.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from unrolled.data.batching.sharing import Share
from unrolled.errors import UserError
from unrolled.training.checkpoint import flatten, unflatten
from unrolled.training.place import RankPlace

T = TypeVar("T")


class RankLost(UserError):
    """The connection to another process broke, or it did not answer in time."""


class Ranks:
    """The processes of a run, seen from one of them. One process alone is a world of one, which waits for nobody."""

    def __init__(self, place: RankPlace | None = None, backend: str = "") -> None:
        self.place, self.backend = place or RankPlace(), backend
        self.rank, self.world = self.place.rank, self.place.world

    @property
    def alone(self) -> bool:
        return self.world == 1

    @property
    def is_first(self) -> bool:
        """True of the process that writes files and speaks."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        return Share(self.rank, self.world)

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        if not self.alone:
            with self.waiting():
                dist.all_reduce(tensor)
        return tensor

    def begin_sum(self, tensor: Tensor) -> Any:
        """Begin to add up a tensor in place; `wait()` of what is returned ends it."""
        with self.waiting():
            return dist.all_reduce(tensor, async_op=True)

    def copy_from_first(self, tensors: list[Tensor]) -> None:
        """Overwrite tensors with those of the first process."""
        if not self.alone:
            with self.waiting():
                for tensor in tensors:
                    dist.broadcast(tensor, 0)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order: nested tuples, lists and dictionaries of tensors and JSON."""
        if self.alone:
            return [value]
        raw = torch.frombuffer(bytearray(packed_state(value)), dtype=torch.uint8)
        with self.waiting():
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
            dist.all_gather(sizes, torch.tensor([len(raw)]))
            most = max(int(size) for size in sizes)
            parts = [torch.zeros(most, dtype=torch.uint8) for _ in range(self.world)]
            dist.all_gather(parts, torch.nn.functional.pad(raw, (0, most - len(raw))))
        return [unpacked_state(bytes(part[: int(n)].numpy())) for part, n in zip(parts, sizes, strict=True)]

    def from_first(self, make: Callable[[], T]) -> T:
        """Let the first process make a value for all of them; the others wait for it."""
        if self.alone:
            return make()
        raw = torch.frombuffer(bytearray(packed_state(make()) if self.is_first else b"-"), dtype=torch.uint8)
        with self.waiting():
            size = torch.tensor([len(raw)])
            dist.broadcast(size, 0)
            raw = raw if self.is_first else torch.zeros(int(size), dtype=torch.uint8)
            dist.broadcast(raw, 0)
        found: T = unpacked_state(bytes(raw.numpy()))
        return found

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.sum(torch.zeros(1))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block that waits for the others: an error of the connection becomes a message."""
        try:
            yield
        except UserError:
            raise
        except RuntimeError as error:  # gloo's errors have no class of their own
            reason = re.sub(r"^\[[^\]]*\]\s*", "", str(error).strip()).splitlines()[0].split(". This is")[0][:160]
            raise RankLost(
                f"Process {self.rank} of {self.world} lost another: {reason}.",
                "Look for the first error of another process above. The run continues from its last checkpoint with "
                "--resume, or by itself where torchrun has --max-restarts.",
            ) from error

    def map(self, number: int, work: Callable[[int], T]) -> Iterator[tuple[int, T]]:
        """(index, work(index)) for each index in order; every process works on its own, and all get the results."""
        if self.alone:
            yield from ((index, work(index)) for index in range(number))
            return
        own = [_tensors(work(index)) for index in range(self.rank, number, self.world)]
        found = self.gather(own)
        for index in range(number):
            yield index, _arrays(found[index % self.world][index // self.world])

    def add_up(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of an array over all processes."""
        found: NDArray[np.float64] = self.sum(torch.from_numpy(np.array(array))).numpy()
        return found


def packed_state(value: Any) -> bytes:
    """Nested tuples, lists and dictionaries of tensors and JSON as bytes."""
    found: dict[str, Tensor] = {}
    skeleton = json.dumps(flatten(value, found)).encode()
    raw = save({name: tensor.cpu().clone() for name, tensor in found.items()})
    return len(skeleton).to_bytes(8, "little") + skeleton + raw


def unpacked_state(raw: bytes) -> Any:
    """The inverse of `packed_state`.

    >>> unpacked_state(packed_state({"a": (1, [torch.tensor([2.0]), None])}))
    {'a': (1, [tensor([2.]), None])}
    """
    size = int.from_bytes(raw[:8], "little")
    return unflatten(json.loads(raw[8 : 8 + size]), load(raw[8 + size :]))


def _changed(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A nested value with the leaves of a kind changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_changed(one, kind, change) for one in value)
    if isinstance(value, dict):
        return {key: _changed(one, kind, change) for key, one in value.items()}
    return value


def _tensors(value: Any) -> Any:
    return _changed(value, np.ndarray, lambda array: torch.from_numpy(np.ascontiguousarray(array)))


def _arrays(value: Any) -> Any:
    return _changed(value, Tensor, lambda tensor: tensor.numpy())


ALONE = Ranks()


def check_same(ranks: Ranks, facts: dict[str, str]) -> None:
    """An error if the processes do not have the same facts, by name."""
    if ranks.alone:
        return
    every = ranks.gather({"facts": facts, "machine": platform.node()})
    for rank, one in enumerate(every):
        apart = [name for name, value in every[0]["facts"].items() if one["facts"].get(name) != value]
        if apart:
            raise UserError(
                f"Process {rank} (on {one['machine']}) and process 0 (on {every[0]['machine']}) do not have the same "
                f"{' and '.join(apart)}.",
                "Copy the same files to every machine, and install the same versions.",
            )
