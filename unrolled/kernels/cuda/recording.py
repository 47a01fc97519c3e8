"""Recording CUDA graphs: work that the host starts once, and the GPU then repeats from its current inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """A block whose work is recorded on the current stream; nothing runs. Graphs with one `pool` share their memory."""
    collecting = gc.isenabled()
    gc.disable()  # memory of other graphs must not be freed while one is recorded
    try:
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()
    finally:
        if collecting:
            gc.enable()


@torch.no_grad()
def recorded(
    run: Callable[[], Result], device: torch.device, pool: Any = None, *, loaded: bool = False
) -> tuple[Result, torch.cuda.CUDAGraph]:
    """The result of `run`, and a graph that computes it again, in place, from its current inputs.

    `run` first runs twice, which compiles and loads its kernels, unless they are `loaded`.
    """
    with torch.cuda.device(device):
        here = torch.cuda.current_stream(device)
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(0 if loaded else 2):
                run()
            torch.cuda.synchronize(device)
            graph = torch.cuda.CUDAGraph()
            with recording(graph, pool):
                result = run()
        here.wait_stream(side)
    return result, graph
