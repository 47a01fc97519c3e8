"""The CTC loss on an NVIDIA GPU, forward and backward, against torch's own kernels and cuDNN's.

Losses and gradients must agree with torch's in float64 before anything is timed. Times are of the GPU's clock, with the
Python calls in between (eager); ours are also those of a CUDA graph. torch's loss reads lengths on the host.

    PYTHONPATH=. python benchmarks/ctc_gpu.py [--seconds 0.5] [--only 0,2]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from measure import check, geometric_mean, machine, row, show, write
from torch import Tensor

from unrolled.nn import ctc_loss

TOLERANCE = 1e-5  # tests/tolerances.py
SHAPES = (  # B, T, V, labels of a target
    (32, 500, 32, 80),  # letters, in an utterance of ten seconds
    (1, 500, 32, 80),
    (128, 500, 32, 80),
    (16, 1000, 64, 200),
    (32, 250, 5000, 40),  # pieces of words
    (8, 3000, 32, 500),
    (4, 3000, 500, 1000),
)

Run = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each shape; more is steadier")
    parser.add_argument("--only", default="", help="numbers of shapes, from 0")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU here.")
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # torch's
    facts = machine() | {"gpu": torch.cuda.get_device_name(), "cudnn": cudnn}
    print(facts)
    chosen = [SHAPES[int(i)] for i in given.only.split(",")] if given.only else list(SHAPES)
    details = [compare(shape, given.seconds) for shape in chosen]
    rows = [line for detail in details for line in _rows(detail)]
    ratios = [detail["seconds"]["torch"] / detail["seconds"]["ours"] for detail in details]
    rows.append(row("geometric mean, eager, against torch", geometric_mean(ratios), "3×", "8×"))
    show("CTC loss, forward and backward, ratios to torch's and cuDNN's on the same GPU", rows)
    write("ctc_gpu" if not given.only else "ctc_gpu_part", facts, rows, details)


def _rows(detail: dict[str, Any]) -> list[dict[str, Any]]:
    times, name = detail["seconds"], "B {batch}, T {frames}, V {labels}, L {length}".format(**detail)
    note = f"{1e6 * times['ours']:.0f} µs, in a graph {1e6 * times['ours, in a graph']:.0f}"
    rows = [
        row(f"{name}, {what}", times[peer] / times[ours], "3×", "8×", note)
        for peer in ("torch", "cuDNN")
        if peer in times
        for what, ours in ((f"{peer}, eager", "ours"), (f"{peer}, ours in a graph", "ours, in a graph"))
    ]
    return rows


def compare(shape: tuple[int, int, int, int], seconds: float) -> dict[str, Any]:
    """Check a shape and time it: seconds of each way, of which all take turns."""
    batch, frames, labels, length = shape
    torch.manual_seed(0)
    scores = torch.randn(batch, frames, labels, device="cuda")
    targets = torch.randint(1, labels, (batch, length), device="cuda")
    input_lengths, target_lengths = torch.full((batch,), frames), torch.full((batch,), length)
    there = input_lengths.cuda(), target_lengths.cuda()
    lengths: tuple[Any, Any] = ([frames] * batch, [length] * batch)  # cuDNN's conditions are checked for lists
    flat = targets.flatten().to("cpu", torch.int32)

    def ours(log_probs: Tensor) -> Tensor:
        return ctc_loss(log_probs, targets, *there, reduction="sum", backend="cuda")

    def native(log_probs: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            given = (targets, input_lengths, target_lengths)
            return F.ctc_loss(log_probs.transpose(0, 1), *given, reduction="sum")

    def cudnns(log_probs: Tensor) -> Tensor:
        return F.ctc_loss(log_probs.transpose(0, 1), flat, *lengths, reduction="sum")

    ways = {"ours": ours, "torch": native}
    log_probs = scores.log_softmax(-1)
    if torch._use_cudnn_ctc_loss(log_probs.transpose(0, 1), flat, *lengths, 0):
        ways["cuDNN"] = cudnns
    loss, gradient = derivative(ours, scores)
    exact_loss, exact_gradient = derivative(native, scores.double())
    check(f"{shape}: loss", loss, exact_loss, TOLERANCE)
    check(f"{shape}: gradient", gradient, exact_gradient, TOLERANCE)
    errors = {name: _error(derivative(way, scores)[1], exact_gradient) for name, way in ways.items()}
    del exact_gradient, gradient
    leaf = log_probs.detach().requires_grad_()
    runs: dict[str, Run] = {
        name: lambda way=way: torch.autograd.grad(way(leaf), leaf)  # type: ignore[misc]
        for name, way in ways.items()
    }
    runs["ours, in a graph"] = graphed(runs["ours"])
    times = timed(runs, seconds)
    detail = {"batch": batch, "frames": frames, "labels": labels, "length": length}
    print(f"{detail}: " + ", ".join(f"{name} {1e6 * time:.0f} µs" for name, time in times.items()), flush=True)
    return detail | {"seconds": times, "us_per_frame": 1e6 * times["ours, in a graph"] / frames, "errors": errors}


def derivative(way: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient with respect to the scores before log_softmax."""
    leaf = scores.detach().requires_grad_()
    loss = way(leaf.log_softmax(-1))
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def _error(got: Tensor, exact: Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm())


def graphed(run: Run) -> Run:
    """The run captured in a CUDA graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def timed(runs: dict[str, Run], seconds: float, least: int = 15) -> dict[str, float]:
    """Median seconds of each, taking turns, from the GPU's own clock."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
        run()
    torch.cuda.synchronize()
    spent = 0.0
    while spent < seconds or len(next(iter(times.values()))) < least:
        for name, run in runs.items():
            start, end = _event(), _event()
            start.record()
            run()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3)
            spent += times[name][-1]
    return {name: statistics.median(found) for name, found in times.items()}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's


if __name__ == "__main__":
    main()
