"""The resources of a GPU, and the plan of a launch; kernels are launched by `unrolled.kernels.cuda.launch`."""

from __future__ import annotations

from functools import cache

import torch

from unrolled.kernels.cuda.launch import allow, capturing, checked, configured, forked, loaded, ready, run, side_stream
from unrolled.kernels.recurrence.cuda import compiler
from unrolled.kernels.recurrence.cuda.constants import MAX_CLUSTER_BLOCKS
from unrolled.kernels.recurrence.cuda.plan import DeviceLimits, Kind, Pass, Plan, make_plan

__all__ = ["capturing", "forked", "limits", "plan", "ready", "run", "side_stream"]


@cache
def limits(device: torch.device) -> DeviceLimits:
    """The resources of the GPU."""
    from cuda.bindings import driver

    most = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    shared = checked(driver.cuDeviceGetAttribute(most, device.index), "size")
    properties = torch.cuda.get_device_properties(device)
    clusters = _most_clusters(int(shared), device) if properties.major == 9 else ()
    return DeviceLimits(properties.multi_processor_count, int(shared), clusters)


def _most_clusters(shared: int, device: torch.device) -> tuple[tuple[int, int], ...]:
    """The number of clusters of each size that run at once, with one block on each multiprocessor."""
    from cuda.bindings import driver

    with torch.cuda.device(device):
        kernel = loaded(compiler.PROBE, "probe", device)
        allow(kernel, shared, MAX_CLUSTER_BLOCKS)
        sizes = [1 << i for i in range(1, MAX_CLUSTER_BLOCKS.bit_length())]
        plans = [Plan(size, 1, 1, 1, 1, shared, 1, size, cooperative=False) for size in sizes]
        found = [driver.cuOccupancyMaxActiveClusters(kernel, configured(plan, 0)) for plan in plans]
        return tuple((size, int(checked(one, "measure"))) for size, one in zip(sizes, found, strict=True))


@cache
def plan(kind: Kind, direction: Pass, padded: int, batch: int, share: int, device: torch.device) -> Plan | None:
    """The launch of a kernel on one of `share` parts of a GPU, or else on all of it; None if the GPU is too small."""
    whole = limits(device)
    part = make_plan(kind, direction, padded, batch, whole.part(share))
    return part or make_plan(kind, direction, padded, batch, whole)
