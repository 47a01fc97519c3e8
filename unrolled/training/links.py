"""The facts of `unrolled doctor` under torchrun: the processes, and how fast they add up."""

from __future__ import annotations

import platform
import time

import torch

from unrolled.training.devices import device_of_rank, threads_of_rank
from unrolled.training.meeting import NCCL, join
from unrolled.training.ranks import Ranks, check_same

MIB = 2**20
LARGE = 32 * MIB  # bytes of gradients
SUMS = 10


def about_ranks(device: torch.device, versions: dict[str, str]) -> dict[str, str]:
    """Facts about the processes that torchrun started, by name; none of one alone."""
    ranks = join(device)
    if ranks.alone:
        return {}
    check_same(ranks, {f"version of {name}": version for name, version in versions.items()})
    device = device_of_rank(device, ranks.place, alone_on_it=ranks.backend == NCCL)
    threads = threads_of_rank(device, ranks.place)
    own = torch.cuda.get_device_name(device) if threads is None else _count(threads, "thread")
    every = ranks.gather({"machine": platform.node(), "device": f"{device}, {own}"})
    machines = {one["machine"] for one in every}
    backend = "NCCL" if ranks.backend == NCCL else "gloo"
    facts = {"processes": f"{ranks.world} on {_count(len(machines), 'machine')}, {backend}"}
    facts |= {f"rank {rank}": f"{one['machine']}, {one['device']}" for rank, one in enumerate(every)}
    return {**facts, "sums": _speed(ranks, device)}


def _speed(ranks: Ranks, device: torch.device) -> str:
    """The time of a sum over all processes: of one number, and of the gradients of a large network."""
    times = {}
    for size in (4, LARGE):
        tensor = torch.zeros(size // 4, device=device)
        ranks.sum(tensor)  # the first one opens connections
        _wait(device)
        began = time.perf_counter()
        for _ in range(SUMS):
            ranks.sum(tensor)
        _wait(device)
        times[size] = (time.perf_counter() - began) / SUMS
    small, large = times[4] * 1e3, times[LARGE] * 1e3
    return f"{small:.2f} ms for one number, {large:.0f} ms for {LARGE // MIB} MiB ({LARGE / large / 1e6:.2g} GB/s)"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
