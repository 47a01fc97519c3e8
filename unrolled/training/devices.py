"""The device that training and prediction compute on, and its memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

import torch

from unrolled.errors import UserError
from unrolled.training.place import RankPlace


def pick_device(name: str, key: str = "train.device") -> torch.device:
    """The device of that name; `auto` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        hint = "Did you mean 'cuda'? " if name.startswith("gpu") else ""
        raise UserError(f"Unknown {key} {name!r}.", f"{hint}Choices: auto, cpu, cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{key}={name}, but torch finds no GPU here.", f"Use {key}=cpu.")
    return device


def device_of_rank(device: torch.device, place: RankPlace, *, alone_on_it: bool) -> torch.device:
    """The device of one of several processes: on a machine with GPUs each has its own, unless they may share one."""
    if device.type != "cuda" or place.world == 1:
        return device
    count = torch.cuda.device_count()
    if place.local_world > count and alone_on_it:
        raise UserError(
            f"{place.local_world} processes on this machine, and {count} {'GPU' if count == 1 else 'GPUs'}: "
            "NCCL wants one for each.",
            f"Use --nproc-per-node {count}, or train.backend=gloo, with which they share one more slowly.",
        )
    device = torch.device("cuda", place.local_rank % count)
    torch.cuda.set_device(device)
    return device


def threads_of_rank(device: torch.device, place: RankPlace) -> int | None:
    """The threads of one of several processes on CPUs: its part of the machine; None: torch's choice."""
    if place.world == 1 or device.type != "cpu":
        return None
    return max(1, len(os.sched_getaffinity(0)) // place.local_world)


def peak_memory(device: torch.device) -> int:
    """Bytes in use at the peak: of the GPU, or of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_out_of_memory(error: Exception) -> bool:
    """Recognize a failed allocation. torch's CPU allocator has no error class of its own."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)


def largest_fitting_batch(size: int, attempt: Callable[[int], object]) -> int:
    """The largest half, quarter, … of a batch size for which `attempt(size)` does not run out of memory."""
    size //= 2
    while size > 1:
        try:
            attempt(size)
            return size
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            size //= 2
    return 1
