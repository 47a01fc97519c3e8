"""Loads kernels once for each device and launches them on torch's current stream."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch

from unrolled.errors import UserError
from unrolled.kernels.recurrence.cuda import compiler
from unrolled.kernels.recurrence.cuda.arguments import Arguments
from unrolled.kernels.recurrence.cuda.compiler import Program
from unrolled.kernels.recurrence.cuda.constants import MAX_CLUSTER_BLOCKS, THREADS
from unrolled.kernels.recurrence.cuda.plan import (
    PORTABLE_CLUSTER_BLOCKS,
    DeviceLimits,
    Kind,
    Pass,
    Plan,
    make_plan,
)


@cache
def limits(device: torch.device) -> DeviceLimits:
    """The resources of the GPU."""
    from cuda.bindings import driver

    most = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    shared = _checked(driver.cuDeviceGetAttribute(most, device.index), "size")
    properties = torch.cuda.get_device_properties(device)
    clusters = _most_clusters(int(shared), device) if properties.major == 9 else ()
    return DeviceLimits(properties.multi_processor_count, int(shared), clusters)


def _most_clusters(shared: int, device: torch.device) -> tuple[tuple[int, int], ...]:
    """The number of clusters of each size that run at once, with one block on each multiprocessor."""
    from cuda.bindings import driver

    with torch.cuda.device(device):
        kernel = _loaded(compiler.PROBE, "probe", device)
        _allow(kernel, shared, MAX_CLUSTER_BLOCKS)
        sizes = [1 << i for i in range(1, MAX_CLUSTER_BLOCKS.bit_length())]
        plans = [Plan(size, 1, 1, 1, 1, shared, 1, size, cooperative=False) for size in sizes]
        found = [driver.cuOccupancyMaxActiveClusters(kernel, _configured(plan, 0)) for plan in plans]
        return tuple((size, int(_checked(one, "measure"))) for size, one in zip(sizes, found, strict=True))


@cache
def plan(kind: Kind, direction: Pass, padded: int, batch: int, share: int, device: torch.device) -> Plan | None:
    """The launch of a kernel on one of `share` parts of a GPU, or else on all of it; None if the GPU is too small."""
    whole = limits(device)
    part = make_plan(kind, direction, padded, batch, whole.part(share))
    return part or make_plan(kind, direction, padded, batch, whole)


def run(program: Program, name: str, plan: Plan, arguments: Arguments, device: torch.device) -> None:
    """Launch a kernel on torch's current stream of the device; blocks that wait for each other run at once."""
    if torch.cuda.current_device() != device.index:
        with torch.cuda.device(device):
            return run(program, name, plan, arguments, device)
    if not hasattr(_thread, "entered"):
        _enter(device)
    start = _prepared(program, name, plan, torch._C._cuda_getCurrentRawStream(device.index), device)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
    _checked(start(ctypes.addressof(parameters), 0), "launch")
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
        stream = int(_checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "launch"))
    _sides[stream] = key
    return torch.cuda.ExternalStream(stream, device)  # type: ignore[no-untyped-call]  # torch's


_sides: dict[int, int] = {}  # keys of streams
BESIDE = 1000  # first key of the streams that `forked` uses


def ready(program: Program, name: str, plan: Plan, device: torch.device) -> Callable[[Arguments], None]:
    """A function that launches one kernel many times, with fewer checks than `run`."""
    known: dict[int, Callable[[int, int], tuple[Any, ...]]] = {}

    def start(arguments: Arguments) -> None:
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        if stream not in known or torch._C._cuda_getDevice() != device.index or not hasattr(_thread, "entered"):
            run(program, name, plan, arguments, device)
            known[stream] = _prepared(program, name, plan, stream, device)
            return
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        _checked(known[stream](ctypes.addressof(parameters), 0), "launch")

    return start


@cache
def _prepared(
    program: Program, name: str, plan: Plan, stream: int, device: torch.device
) -> Callable[[int, int], tuple[Any, ...]]:
    """The launch, except for its arguments."""
    from cuda.bindings import driver

    kernel = _loaded(program, name, device)
    _allow(kernel, plan.shared_bytes, plan.cluster)
    return partial(driver.cuLaunchKernelEx, _configured(plan, stream), kernel)


_thread = threading.local()


def _enter(device: torch.device) -> None:
    """Set the CUDA context of a thread in which torch has not used the GPU yet, as autograd's may be."""
    from cuda.bindings import driver

    if int(_checked(driver.cuCtxGetCurrent(), "launch")) == 0:
        _checked(driver.cuCtxSetCurrent(_checked(driver.cuDevicePrimaryCtxRetain(device.index), "launch")), "launch")
    _thread.entered = True


@cache
def _configured(plan: Plan, stream: int) -> Any:
    """The configuration of a launch, cached since it takes as long as some steps."""
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = plan.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = THREADS, 1, 1
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
def _loaded(program: Program, name: str, device: torch.device) -> Any:
    from cuda.bindings import driver

    major, minor = torch.cuda.get_device_capability(device)
    return _checked(driver.cuModuleGetFunction(_module(program, f"sm_{major}{minor}", device), name.encode()), "load")


@cache
def _module(program: Program, architecture: str, device: torch.device) -> Any:
    from cuda.bindings import driver

    torch.cuda.current_stream(device).synchronize()  # torch's context exists from here on
    return _checked(driver.cuModuleLoadData(compiler.machine_code(program, architecture)), "load")


_allowed: dict[tuple[int, str], int] = {}


def _allow(kernel: Any, shared: int, cluster: int) -> None:
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
    _checked(driver.cuFuncSetAttribute(kernel, attributes[what], value), "load")
    _allowed[int(kernel), what] = value


def _checked(result: tuple[Any, ...], what: str) -> Any:
    status, *values = result
    if status.value != 0:
        raise UserError(
            f"The cuda engine could not {what} a kernel: {status.name}.",
            "Use backend='torch', which runs cuDNN.",
        )
    return values[0] if values else None
