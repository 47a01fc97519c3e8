"""Loads kernels once for each device and launches them on torch's current stream."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, Protocol

import torch

from unrolled.errors import UserError
from unrolled.kernels.cuda import compiler
from unrolled.kernels.cuda.compiler import Program

PORTABLE_CLUSTER_BLOCKS = 8  # larger clusters need permission for each kernel
LAUNCHES = 4096  # kept; some sizes depend on the longest sequence of a batch


class Launch(Protocol):
    """The size of a launch; hashable, since a configuration is made once for each."""

    def __hash__(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def threads(self) -> int: ...  # of a block
    @property
    def shared_bytes(self) -> int: ...  # of a block
    @property
    def cluster(self) -> int: ...  # blocks in one
    @property
    def cooperative(self) -> bool: ...  # all blocks run at once


class IndependentBlocks(NamedTuple):
    """A launch of blocks that do not wait for each other."""

    blocks: int
    threads: int
    shared_bytes: int
    cluster: int = 1
    cooperative: bool = False


def run(program: Program, name: str, plan: Launch, arguments: ctypes.Structure, device: torch.device) -> None:
    """Launch a kernel on torch's current stream of the device; blocks that wait for each other run at once."""
    if torch.cuda.current_device() != device.index:
        with torch.cuda.device(device):
            return run(program, name, plan, arguments, device)
    if not hasattr(_thread, "entered"):
        _enter(device)
    start = _prepared(program, name, plan, torch._C._cuda_getCurrentRawStream(device.index), device)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
    checked(start(ctypes.addressof(parameters), 0), "launch")
    return None


@contextmanager
def forked(device: torch.device, wanted: bool = True) -> Iterator[AbstractContextManager[Any]]:
    """A second stream to enter inside the block; the current stream waits for it at the end of the block.

    If not `wanted`, and in a simulation, all work stays on the current stream.
    """
    if not wanted or device.type != "cuda":
        yield nullcontext()
        return
    here = torch.cuda.current_stream(device)
    there = side_stream(device, BESIDE + _sides.get(here.cuda_stream, 0))
    there.wait_stream(here)
    yield torch.cuda.stream(there)
    here.wait_stream(there)


def capturing(device: torch.device) -> bool:
    """True if the current stream is being captured in a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@cache
def side_stream(device: torch.device, key: int) -> torch.cuda.Stream:
    """The stream of a key. Streams of torch are shared by others: its pool has 32, which it hands out in turn."""
    from cuda.bindings import driver

    with torch.cuda.device(device):
        _enter(device)
        stream = int(checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "launch"))
    _sides[stream] = key
    return torch.cuda.ExternalStream(stream, device)  # type: ignore[no-untyped-call]  # torch's


_sides: dict[int, int] = {}  # keys of streams
BESIDE = 1000  # first key of the streams that `forked` uses


def ready(program: Program, name: str, plan: Launch, device: torch.device) -> Callable[[ctypes.Structure], None]:
    """A function that launches one kernel many times, with fewer checks than `run`."""
    known: dict[int, Callable[[int, int], tuple[Any, ...]]] = {}

    def start(arguments: ctypes.Structure) -> None:
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        if stream not in known or torch._C._cuda_getDevice() != device.index or not hasattr(_thread, "entered"):
            run(program, name, plan, arguments, device)
            known[stream] = _prepared(program, name, plan, stream, device)
            return
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        checked(known[stream](ctypes.addressof(parameters), 0), "launch")

    return start


@lru_cache(LAUNCHES)
def _prepared(
    program: Program, name: str, plan: Launch, stream: int, device: torch.device
) -> Callable[[int, int], tuple[Any, ...]]:
    """The launch, except for its arguments."""
    from cuda.bindings import driver

    kernel = loaded(program, name, device)
    allow(kernel, plan.shared_bytes, plan.cluster)
    return partial(driver.cuLaunchKernelEx, configured(plan, stream), kernel)


_thread = threading.local()


def _enter(device: torch.device) -> None:
    """Set the CUDA context of a thread in which torch has not used the GPU yet, as autograd's may be."""
    from cuda.bindings import driver

    if int(checked(driver.cuCtxGetCurrent(), "launch")) == 0:
        checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device.index), "launch")), "launch")
    _thread.entered = True


@lru_cache(LAUNCHES)
def configured(plan: Launch, stream: int) -> Any:
    """The configuration of a launch, cached since it takes as long as some steps."""
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = plan.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = plan.threads, 1, 1
    config.sharedMemBytes = plan.shared_bytes
    config.hStream = stream
    attributes = []
    if plan.cluster > 1:
        cluster = driver.CUlaunchAttribute()
        cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = plan.cluster, 1, 1
        attributes.append(cluster)
    if plan.cooperative:
        together = driver.CUlaunchAttribute()
        together.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        together.value.cooperative = 1
        attributes.append(together)
    if attributes:
        config.attrs, config.numAttrs = attributes, len(attributes)
    return config


@cache
def loaded(program: Program, name: str, device: torch.device) -> Any:
    """The kernel `name` of a program on a device, compiled and loaded once."""
    from cuda.bindings import driver

    major, minor = torch.cuda.get_device_capability(device)
    return checked(driver.cuModuleGetFunction(_module(program, f"sm_{major}{minor}", device), name.encode()), "load")


@cache
def _module(program: Program, architecture: str, device: torch.device) -> Any:
    from cuda.bindings import driver

    _enter(device)
    result = driver.cuModuleLoadData(compiler.machine_code(program, architecture))
    if result[0].name in TOO_NEW:
        raise UserError(
            f"The GPU's driver does not load kernels that NVRTC {compiler.version()} compiled: {result[0].name}.",
            "Install a newer driver, or the NVRTC of the CUDA version that nvidia-smi shows, such as: "
            "pip install 'nvidia-cuda-nvrtc==13.0.*'",
        )
    return checked(result, "load")


# what an old driver says of a program for a newer CUDA
TOO_NEW = ("CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION")
_allowed: dict[tuple[int, str], int] = {}


def allow(kernel: Any, shared: int, cluster: int) -> None:
    """Permit more than 48 KiB of shared memory, and clusters of more than eight blocks, where needed."""
    if shared > _allowed.get((int(kernel), "shared"), 48 * 1024):
        _set(kernel, "shared", shared)
    if cluster > PORTABLE_CLUSTER_BLOCKS and not _allowed.get((int(kernel), "cluster")):
        _set(kernel, "cluster", 1)


def _set(kernel: Any, what: str, value: int) -> None:
    from cuda.bindings import driver

    attributes = {
        "shared": driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        "cluster": driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    }
    checked(driver.cuFuncSetAttribute(kernel, attributes[what], value), "load")
    _allowed[int(kernel), what] = value


def checked(result: tuple[Any, ...], what: str) -> Any:
    """The result of a call of the driver; raises if it failed."""
    status, *values = result
    if status.value != 0:
        raise UserError(
            f"The cuda engine could not {what} a kernel: {status.name}.",
            "Use backend='torch' for a recurrence, or backend='reference'.",
        )
    return values[0] if values else None
