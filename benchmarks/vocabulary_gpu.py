"""The output layer and the embedding of large vocabularies on an NVIDIA GPU, against plain torch: time and memory.

Training steps under autocast to bfloat16, in a CUDA graph on both sides; every result is checked before it is timed.

    PYTHONPATH=. python benchmarks/vocabulary_gpu.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import plain_networks as plain
import torch
import torch.nn.functional as F
from measure import machine, row, show, write
from torch import Tensor, nn

from unrolled.kernels.vocabulary.scores import linear_cross_entropy
from unrolled.nn.embedding import Embedding

details: list[dict[str, Any]] = []
Compute = Callable[[], tuple[Tensor, ...]]


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU here.")
    facts = machine() | {"gpu": torch.cuda.get_device_name()}
    print(facts)
    rows = []
    for vocabulary, tokens, size in ((59, 3_200, 256), (8_003, 4_096, 512), (50_000, 4_096, 512)):
        rows += output_layer(vocabulary, tokens, size)
    for vocabulary, tokens, size in ((59, 3_200, 64), (10_000, 700, 650), (8_003, 4_096, 256)):
        rows += embedding(vocabulary, tokens, size)
    show("Vocabularies on a GPU: plain torch's time over ours", rows)
    write("vocabulary_gpu", facts, rows, details)


def output_layer(vocabulary: int, tokens: int, size: int) -> list[dict[str, Any]]:
    """Scores, loss and all gradients."""
    torch.manual_seed(0)
    layer = nn.Linear(size, vocabulary, device="cuda")
    x = torch.randn(tokens, size, device="cuda", requires_grad=True)
    targets = torch.randint(vocabulary, (tokens,), device="cuda")
    inputs = [x, layer.weight, layer.bias]

    def ours() -> tuple[Tensor, ...]:
        with torch.autocast("cuda", torch.bfloat16):
            loss = linear_cross_entropy(x, layer.weight, layer.bias, targets)
        return loss, *torch.autograd.grad(loss, inputs)

    def theirs() -> tuple[Tensor, ...]:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(layer(x), targets, reduction="sum")
        return loss, *torch.autograd.grad(loss, inputs)

    what = f"output layer of {vocabulary:,}, {tokens:,} tokens, {size} units"
    return compared(what, {"ours": ours, "theirs": theirs}, 2e-2)


def embedding(vocabulary: int, tokens: int, size: int) -> list[dict[str, Any]]:
    """Forward and backward pass."""
    torch.manual_seed(0)
    layer, ids = Embedding(vocabulary, size, device="cuda"), torch.randint(vocabulary, (tokens,), device="cuda")
    given = torch.randn(tokens, size, device="cuda")

    def ours() -> tuple[Tensor, ...]:
        return torch.autograd.grad(layer(ids), layer.weight, given)

    def theirs() -> tuple[Tensor, ...]:
        return torch.autograd.grad(F.embedding(ids, layer.weight), layer.weight, given)

    return compared(
        f"embedding of {vocabulary:,}, {tokens:,} tokens, {size} units", {"ours": ours, "theirs": theirs}, 1e-5
    )


def compared(what: str, runs: dict[str, Compute], tolerance: float) -> list[dict[str, Any]]:
    for found, expected in zip(runs["ours"](), runs["theirs"](), strict=True):
        error = float((found.double() - expected.double()).norm() / expected.double().norm())
        if not error < tolerance:
            raise SystemExit(f"{what}: the results differ by {error:.1e}.")
    memory = {name: peak_megabytes(run) for name, run in runs.items()}
    times = {name: microseconds(plain.in_graph(run)) for name, run in runs.items()}
    details.append({"what": what, "microseconds": times, "megabytes": memory})
    print(details[-1], flush=True)
    note = f"{times['ours']:.0f} µs; {memory['ours']:.0f} MB against {memory['theirs']:.0f}"
    return [row(what, times["theirs"] / times["ours"], "", "", note)]


def peak_megabytes(run: Compute) -> float:
    """The most memory that a run takes beside its inputs."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def microseconds(run: Callable[[], object], times: int = 200) -> float:
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times * 1e6


if __name__ == "__main__":
    main()
