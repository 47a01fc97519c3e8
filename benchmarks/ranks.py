"""Two processes that train one network on two cores, beside torch's DistributedDataParallel.

    python benchmarks/ranks.py [--rounds 5] [--steps 40] [--json benchmarks/results/ranks.json]

The same language model (LSTM 2×256, batch 64, windows of 100, AdamW, clipping) trains on the built-in text: by
`unrolled.train`, and plainly with torch.nn; each in one process with one thread, in one with two, and in two with one
thread each, as torchrun starts them. They take turns. The time is the best of the rounds' median updates; the
efficiency of two processes is the time of one with one thread over twice theirs. On a machine that others use, that
time also holds their work. CPU time does not: the work of an update is the CPU time of all its processes, and that of
one process over that of two is the share of their work that is not spent on each other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from measure import load, machine
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training_loop import SETTINGS, Plain

import unrolled
from unrolled.training import StepInfo
from unrolled.training.watching import Callback, WatchedRun

BATCH, WINDOW, WARM = 64, 100, 5
LAYOUTS = {"one thread": (1, 1), "two threads": (1, 2), "two processes": (2, 1)}  # processes, threads of each


Times = tuple[float, float]


def now() -> Times:
    """The clock, and the CPU time of this process."""
    return time.perf_counter(), time.process_time()


class Clock(Callback):
    """The times at which updates end, by the clock and of this process."""

    def __init__(self) -> None:
        self.times = list[Times]()

    def update(self, run: WatchedRun, info: StepInfo) -> None:
        self.times.append(now())


def ours(steps: int) -> list[Times]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        changes = {"train.max_steps": steps, "train.threads": torch.get_num_threads(), "train.device": "cpu"}
        out = Path(folder) / "run"
        unrolled.train("generate", out=out, set={**SETTINGS, **changes}, callbacks=[clock], quiet=True)
    return clock.times


def plain(steps: int) -> list[Times]:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    network: nn.Module = Plain(100)
    if world > 1:
        dist.init_process_group("gloo")
        network = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(network.parameters())
    ids = torch.randint(100, (BATCH // world, WINDOW + 1))
    state, times = None, []
    for _ in range(steps):
        scores, state = network(ids[:, :-1], state)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        state = tuple(part.detach() for part in state)
        times.append(now())
    if world > 1:
        dist.destroy_process_group()
    return times


WAYS: dict[str, Callable[[int], list[Times]]] = {"ours": ours, "torch": plain}


def child(way: str, steps: int) -> None:
    """One process of a run; the first prints the median time of an update, and its median CPU time."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    times = WAYS[way](steps + WARM)
    if os.environ.get("RANK", "0") == "0":
        spans = [
            [end[which] - begin[which] for begin, end in zip(times[WARM - 1 :], times[WARM:], strict=False)]
            for which in (0, 1)
        ]
        print("\nms", *(1e3 * statistics.median(one) for one in spans))


def timed(way: str, processes: int, threads: int, steps: int) -> tuple[float, float]:
    """Milliseconds of an update: by the clock, and the CPU time of all processes, which share the work evenly."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    done = subprocess.run(
        [sys.executable, *start, __file__, "--child", way, "--steps", str(steps)],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    line = next(line for line in done.stdout.splitlines() if line.startswith("ms "))
    wall, cpu = map(float, line.split()[1:])
    return wall, processes * cpu


def rounded(table: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {way: {name: round(ms, 1) for name, ms in times.items()} for way, times in table.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="timed updates in a run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.steps)
        return
    best: dict[str, dict[str, float]] = {way: {} for way in WAYS}
    work: dict[str, dict[str, float]] = {way: {} for way in WAYS}
    loads = [load()]
    for _ in range(options.rounds):
        for name, (processes, threads) in LAYOUTS.items():
            for way in WAYS:
                wall, cpu = timed(way, processes, threads, options.steps)
                best[way][name] = min(wall, best[way].get(name, wall))
                work[way][name] = min(cpu, work[way].get(name, cpu))
        loads.append(load())
    result: dict[str, Any] = {
        "command": f"python benchmarks/ranks.py --rounds {options.rounds} --steps {options.steps}",
        "machine": machine(),
        "load": loads,
        "ms an update": rounded(best),
        "CPU ms an update": rounded(work),
        "efficiency of two processes": {
            way: round(times["one thread"] / times["two processes"] / 2, 3) for way, times in best.items()
        },
        "work of one process / work of two": {
            way: round(times["one thread"] / times["two processes"], 3) for way, times in work.items()
        },
        "speed beside torch": {name: round(best["torch"][name] / best["ours"][name], 2) for name in LAYOUTS},
        "work of torch / work": {name: round(work["torch"][name] / work["ours"][name], 2) for name in LAYOUTS},
    }
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
