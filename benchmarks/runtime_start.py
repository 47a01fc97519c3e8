"""Cold start of `unrolled run`: an exported model, without torch, against its model file.

    python benchmarks/runtime_start.py [--rounds 7]

Small stored models of tests/compat, one for each of five tasks: the time is that of starting, not of computing. Both
commands take turns; the figures are the best wall-clock time, its processor time, and the largest resident memory.
Before timing, both must print the same answer.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

from measure import machine, row, show, write

from unrolled import api

STORED = Path(__file__).parent.parent / "tests" / "compat" / "2026-11"
INPUTS = {
    "classify": ["--text", "one fine two three"],
    "tag-crf": ["--text", "Ada met Grace Hopper in New York ."],
    "generate-lstm": ["--prompt", "3 and", "--seed", "1", "--max-tokens", "40"],
    "translate-luong": ["--text", "3 5 7"],
    "recognize": [str(STORED / "sound.wav")],
}
MOST_SECONDS, MOST_MEMORY = 0.6, 200  # s, MB

# A small process starts the command: the memory of a process counts that of the one it was forked from.
LAUNCHER = """
import os, sys, time
begun = time.perf_counter()
nothing = os.open(os.devnull, os.O_WRONLY)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nothing, 1)])
_, status, usage = os.wait4(child, 0)
assert status == 0, status
print(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


class Start(NamedTuple):
    """One run of a command: wall-clock and processor seconds, and megabytes."""

    seconds: float
    processor: float
    memory: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    rows, details = [], []
    with tempfile.TemporaryDirectory() as place:
        for kind, inputs in INPUTS.items():
            file, folder = STORED / f"{kind}.safetensors", Path(place, kind)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, about its recording
                api.export_onnx(api.load(file), folder, check=False)
            commands = {"exported": ["run", str(folder), *inputs], "model file": ["run", str(file), *inputs]}
            answers = {_answer(command) for command in commands.values()}
            assert len(answers) == 1, answers
            best = best_starts(commands, rounds)
            ours, theirs = best["exported"], best["model file"]
            rows += [
                row(f"{kind}: start", f"{ours.seconds:.2f} s", f"{MOST_SECONDS} s", "", _beside(theirs.seconds, "s")),
                row(f"{kind}: processor time", f"{ours.processor:.2f} s", "", "", _beside(theirs.processor, "s")),
                row(f"{kind}: memory", f"{ours.memory:.0f} MB", f"{MOST_MEMORY} MB", "", _beside(theirs.memory, "MB")),
            ]
            details.append({"kind": kind, **{name: one._asdict() for name, one in best.items()}})
    facts = machine()
    print(facts)
    show("unrolled run of an exported model", rows)
    write("runtime_start", facts, rows, details)


def _beside(figure: float, unit: str) -> str:
    return f"model file: {figure:.2f} {unit}" if unit == "s" else f"model file: {figure:.0f} {unit}"


def _answer(command: list[str]) -> str:
    done = subprocess.run([sys.executable, "-m", "unrolled", *command], capture_output=True, text=True, check=True)
    return done.stdout


def best_starts(commands: dict[str, list[str]], rounds: int) -> dict[str, Start]:
    """The best of each figure over all rounds."""
    best = dict.fromkeys(commands, Start(math.inf, math.inf, math.inf))
    for _ in range(rounds):
        for name, command in commands.items():
            best[name] = Start(*map(min, zip(best[name], _start(command), strict=True)))
    return best


def _start(command: list[str]) -> Start:
    launched = [sys.executable, "-S", "-c", LAUNCHER, sys.executable, "-m", "unrolled", *command]
    done = subprocess.run(launched, capture_output=True, text=True, check=True)
    return Start(*map(float, done.stdout.split()))


if __name__ == "__main__":
    main()
