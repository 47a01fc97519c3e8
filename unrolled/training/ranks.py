"""Several processes that train one network, as torchrun starts them: their sums, their messages, and their errors.

Tensors are added up by gloo on CPUs and by NCCL on GPUs. Everything else is JSON and safetensors: no pickle.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from unrolled.data.batching.sharing import Share
from unrolled.errors import UserError
from unrolled.training.checkpoint import flatten, unflatten

T = TypeVar("T")
TIMEOUT = 300.0  # seconds
GLOO, NCCL = "gloo", "cpu:gloo,cuda:nccl"


class RankLost(UserError):
    """The connection to another process broke, or it did not answer in time."""


@dataclass(frozen=True)
class Place:
    """The place of this process among all, as the environment says."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1  # on this machine
    restarts: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Place:
        """The place that torchrun's variables give; alone without them.

        >>> Place.of({"RANK": "1", "WORLD_SIZE": "2"})
        Place(rank=1, world=2, local_rank=0, local_world=1, restarts=0)
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
        usual = (0, 1, 0, 1, 0)
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return cls()
        try:
            return cls(*(int(environment.get(name, other)) for name, other in zip(names, usual, strict=True)))
        except ValueError:
            given = {name: environment[name] for name in names if name in environment}
            raise UserError(f"These variables are not numbers: {given}.", "Let torchrun set them.") from None


class Ranks:
    """The processes of a run, seen from one of them. One process alone is a world of one, which waits for nobody."""

    def __init__(self, place: Place | None = None, store: Any = None, backend: str = "") -> None:
        self.place, self.store, self.backend = place or Place(), store, backend
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
        """What each process gives, in their order: nested tuples, lists and dictionaries of tensors and JSON."""
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
        """What the first process makes, for all of them; the others wait for it."""
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
            reason = str(error).strip().splitlines()[0][:200]
            raise RankLost(
                f"Process {self.rank} of {self.world} lost the others: {reason}.",
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
_HERE: list[Ranks] = []


def join(device: str = "cpu", backend: str = "auto", timeout: float = TIMEOUT) -> Ranks:
    """The processes that torchrun started with this one; a world of one without torchrun. They meet once."""
    if _HERE:
        return _HERE[0]
    place = Place.of(os.environ)
    if place.world == 1:
        return ALONE
    chosen = _backend(backend, device)
    limit = timedelta(seconds=timeout)
    try:
        store, rank, world = next(rendezvous("env://", timeout=limit))
        store.set_timeout(limit)
        dist.init_process_group(chosen, store=PrefixStore("ranks", store), rank=rank, world_size=world, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise _no_meeting(error, place) from None
    _HERE.append(Ranks(place, store, chosen))
    atexit.register(dist.destroy_process_group)  # its threads must end before the program does
    return _HERE[0]


def _backend(backend: str, device: str) -> str:
    if backend == "nccl" and device == "cpu":
        raise UserError("train.backend=nccl adds up on GPUs, and this run computes on CPUs.", "Use train.backend=gloo.")
    return NCCL if backend == "nccl" or (backend == "auto" and device != "cpu") else GLOO


def _no_meeting(error: Exception, place: Place) -> UserError:
    reason = str(error).strip().splitlines()[0][:200]
    address = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    if "EADDRINUSE" in str(error) or "in use" in str(error):
        return UserError(f"{address} is in use: {reason}.", "Choose another port: torchrun --master-port.")
    return UserError(
        f"Process {place.rank} of {place.world} did not meet the others at {address}: {reason}.",
        "Check that all were started, that the address is reached from every machine, and see train.timeout.",
    )
