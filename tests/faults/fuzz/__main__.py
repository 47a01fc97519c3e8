"""`make fuzz N=…`: many inputs through a worker process, which is started again if one of them ends it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.faults.fuzz.harness import input_for, limit_memory, tried
from tests.faults.fuzz.targets import Target, make_targets

_TARGETS: dict[str, Target] = {}  # for storing inputs
PATIENCE = 60.0  # seconds without a word from the worker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="damaged inputs, of all targets together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1, help="other damage")
    parser.add_argument("--target", action="append", help="only those whose names begin so; may be given again")
    parser.add_argument("--faults", type=Path, default=Path("fuzz-faults"), help="folder for inputs that failed")
    parser.add_argument("--record", type=Path, help="JSON file to add the counts to")
    parser.add_argument("--replay", type=Path, help="try one stored input, and show what becomes of it")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(options)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        options.work = options.work or Path(work)
        return _replay(options) if options.replay else _drive(options)


def _chosen(options: argparse.Namespace) -> list[Target]:
    found = make_targets(options.work / "seeds")
    chosen = [t for name, t in found.items() if not options.target or name.startswith(tuple(options.target))]
    if not chosen:
        sys.exit(f"No target begins so. Targets: {', '.join(found)}")
    return chosen


def _work(options: argparse.Namespace) -> int:
    """Tries inputs from the one numbered `first` on; says before and after each what it is and what became of it."""
    import torch

    torch.set_num_threads(1)
    targets = _chosen(options)
    limit_memory()
    print(json.dumps({"targets": [target.name for target in targets]}), flush=True)
    place = options.work / "input"
    for at in range(options.first, options.inputs):
        target, number = targets[at % len(targets)], at // len(targets)
        print(json.dumps({"at": at}), flush=True)
        outcome = tried(target, number, input_for(target, options.seed, number), place)
        print(json.dumps({"at": at, **vars(outcome)}), flush=True)
    return 0


class _Tally:
    """Counts of the outcomes so far."""

    def __init__(self) -> None:
        self.first, self.names = 0, list[str]()
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.slowest: defaultdict[str, float] = defaultdict(float)
        self.kinds: Counter[str] = Counter()


def _drive(options: argparse.Namespace) -> int:
    began, tally = time.perf_counter(), _Tally()
    try:
        while tally.first < options.inputs and time.perf_counter() - began < options.seconds:
            ended = _follow(options, tally, began)
            if ended and not tally.names:
                print(f"The worker did not begin: {ended}.")
                return 1
            if ended and tally.first < options.inputs:
                name = tally.names[tally.first % len(tally.names)]
                tally.counts[name]["fault"] += 1
                _keep(options, name, tally.first // len(tally.names), ended, tally.kinds)
                tally.first += 1
    except KeyboardInterrupt:
        print("Stopped.")
    return _report(options, tally, time.perf_counter() - began)


def _follow(options: argparse.Namespace, tally: _Tally, began: float) -> str:
    """Counts what a worker says; why it ended, if that is a fault."""
    worker = _start(options, tally.first)
    said: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(worker, said), daemon=True).start()
    try:
        while time.perf_counter() - began < options.seconds:
            try:
                line = said.get(timeout=PATIENCE if tally.names else 600)
            except queue.Empty:
                return f"no answer in {PATIENCE:.0f} s"
            if line is None:
                return f"the process ended with code {worker.returncode}" if worker.wait() else ""
            told: dict[str, Any] = json.loads(line)
            if "targets" in told:
                tally.names = told["targets"]
            elif "target" not in told:
                tally.first = told["at"]
            else:
                tally.first = told["at"] + 1
                name, fault = told["target"], told["fault"]
                tally.counts[name]["fault" if fault else "refused" if told["refused"] else "answer"] += 1
                tally.slowest[name] = max(tally.slowest[name], told["seconds"])
                if fault:
                    _keep(options, name, told["number"], fault, tally.kinds)
        return ""
    finally:
        worker.kill()
        worker.wait()


def _start(options: argparse.Namespace, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.fuzz", "--worker", "--from", str(first), "--work", str(options.work)]
    command += ["--inputs", str(options.inputs), "--seed", str(options.seed)]
    for name in options.target or []:
        command += ["--target", name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _listen(worker: subprocess.Popen[str], said: queue.Queue[str | None]) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith("{"):
            said.put(line)
    said.put(None)


def _keep(options: argparse.Namespace, name: str, number: int, fault: str, kinds: Counter[str]) -> None:
    """Stores an input that failed, and prints the first of its kind."""
    *_, last = fault.strip().splitlines()
    frames = [line.strip() for line in fault.splitlines() if "unrolled/" in line and line.strip().startswith("File")]
    kind = f"{last.split(':')[0]} {frames[-1] if frames else last[:100]}"
    kinds[kind] += 1
    if kinds[kind] > 3:
        return
    options.faults.mkdir(parents=True, exist_ok=True)
    if not _TARGETS:
        _TARGETS.update(make_targets(options.work / "seeds"))
    target = _TARGETS[name]
    stored = options.faults / f"{name}-{options.seed}-{number}{target.suffix}"
    stored.write_bytes(input_for(target, options.seed, number))
    if kinds[kind] == 1:
        print(f"FAULT {kind}\n  {last[:300]}\n  again: python -m tests.faults.fuzz --replay {stored}", flush=True)


def _report(options: argparse.Namespace, found: _Tally, seconds: float) -> int:
    tally, slowest = found.counts, found.slowest
    total: Counter[str] = sum(tally.values(), Counter())
    print(f"{'target':<34} {'answers':>9} {'refused':>9} {'faults':>7} {'slowest':>8}")
    for name in sorted(tally):
        row = tally[name]
        print(f"{name:<34} {row['answer']:>9,} {row['refused']:>9,} {row['fault']:>7,} {slowest[name]:>6.2f} s")
    print(
        f"{sum(total.values()):,} inputs in {seconds:.0f} s: "
        f"{total['answer']:,} answers, {total['refused']:,} refused, {total['fault']:,} faults."
    )
    for kind, count in found.kinds.most_common():
        print(f"{count:>6} × {kind}")
    if options.record:
        rows = json.loads(options.record.read_text()) if options.record.exists() else []
        rows.append(
            {
                "date": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
                "seed": options.seed,
                "inputs": sum(total.values()),
                "seconds": round(seconds, 1),
                "answers": total["answer"],
                "refused": total["refused"],
                "faults": total["fault"],
                "slowest_seconds": round(max(slowest.values(), default=0.0), 2),
                "targets": {name: dict(tally[name]) for name in sorted(tally)},
            }
        )
        options.record.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if total["fault"] else 0


def _replay(options: argparse.Namespace) -> int:
    found = make_targets(options.work / "seeds")
    names = sorted((name for name in found if options.replay.name.startswith(f"{name}-")), key=len)
    if not names:
        sys.exit(f"{options.replay.name} does not begin with the name of a target: {', '.join(found)}")
    target = found[names[-1]]
    outcome = tried(target, 0, options.replay.read_bytes(), options.work / "input")
    print(outcome.fault or ("Refused, as it should be." if outcome.refused else "Answered."))
    print(f"{outcome.seconds:.2f} s, {outcome.grown / 2**20:.0f} MiB")
    return 1 if outcome.fault else 0


if __name__ == "__main__":
    sys.exit(main())
