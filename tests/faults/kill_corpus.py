"""Kills `unrolled run --out` with SIGKILL, gives the same call again until it ends, and compares the answers.

    python -m tests.faults.kill_corpus --kills 200 --workers 1 --out benchmarks/results/kill_corpus.json

As in `kill.py`, half of the kills come at a random instant, and half at a random operation on the files of the answers.
With several workers all come at a random instant, and half of them to a worker: the run then ends with its message.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import unrolled
from tests.faults.kill import in_a_process, watched
from unrolled.corpus import crew, job, part_file

MODELS = Path(__file__).parent.parent / "compat" / "2026-11"
WORDS = ["fine", "dull", "one", "two", "seven", "Ada", "met", "3", "5"]
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {  # model, ending of the answers, options
    "classify": ("classify", ".csv", {}),
    "translate": ("translate-luong", ".jsonl", {}),
    "translate-drawn": ("translate-luong", ".txt", {"temperature": 0.9, "seed": 7, "n_best": 2}),
    "generate": ("generate-lstm", ".jsonl", {"seed": 3, "max_tokens": 8}),
    "tag": ("tag-crf", ".csv", {}),
}
MOST_KILLS = 8  # of one run


@dataclass
class Tally:
    """Counts of the runs of one case."""

    runs: int = 0
    kills: int = 0
    workers_killed: int = 0
    differ: int = 0
    faults: list[str] = field(default_factory=list)


class Campaign:
    """One case: an undisturbed run, and runs that are killed."""

    def __init__(self, name: str, work: Path, chance: random.Random, workers: int) -> None:
        self.work, self.chance, self.workers = work / name, chance, workers
        self.tally = Tally()
        model, self.ending, self.options = CASES[name]
        self.model = unrolled.load(MODELS / f"{model}.safetensors") if workers == 1 else MODELS / f"{model}.safetensors"
        self.work.mkdir()
        self.texts = self.work / "texts.txt"
        lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 8))) for _ in range(60 * workers)]
        self.texts.write_text("".join(f"{line}\n" for line in lines))
        whole, count, log = self.work / f"whole{self.ending}", self.work / "count.json", self.work / "log.txt"
        began = time.monotonic()
        if in_a_process(watched(whole, self.step(whole), count=count), log=log):
            raise RuntimeError(log.read_text())
        self.seconds, self.operations = time.monotonic() - began, json.loads(count.read_text())["operations"]
        self.expected = whole.read_bytes()

    def step(self, out: Path) -> Callable[[], object]:
        return lambda: unrolled.run(self.model, self.texts, out=out, workers=self.workers, quiet=True, **self.options)

    def killed_run(self, kills: int) -> None:
        out, log = self.work / f"killed{self.ending}", self.work / "log.txt"
        for _ in range(kills):
            work, delay = self.step(out), None
            if self.workers > 1:
                work = self.with_a_killer(work)
            elif self.chance.random() < 0.5:
                delay = self.chance.uniform(0, self.seconds)
            else:
                work = watched(out, work, last=self.chance.randint(1, self.operations))
            code = in_a_process(work, delay, log)
            if code == 0:
                break
            said = log.read_text()
            if code == -signal.SIGKILL:
                self.tally.kills += 1
            elif "was killed by SIGKILL" in said and "Give the same command to go on." in said:
                self.tally.workers_killed += 1
            else:
                self.tally.faults.append(said[-2000:])
        if not out.exists() and in_a_process(self.step(out), None, log):
            self.tally.faults.append(log.read_text()[-2000:])
        self.tally.runs += 1
        part = out.with_name(f"{out.name}.part")
        if out.exists() and part.exists():  # killed while the folder was removed: the same command removes it
            in_a_process(self.step(out), None, log)
        if not out.exists() or out.read_bytes() != self.expected or part.exists():
            self.tally.differ += 1
            self.tally.faults.append(f"differs after {kills} kills")
        out.unlink(missing_ok=True)
        shutil.rmtree(part, ignore_errors=True)

    def with_a_killer(self, work: Callable[[], object]) -> Callable[[], object]:
        """The work in a process that kills itself, or one of its workers, at a random instant after these began."""
        delay, itself, choice = self.chance.uniform(0, self.seconds), self.chance.random() < 0.5, self.chance.random()

        def begun() -> object:
            pids: list[int] = []

            def started(*given: Any, **options: Any) -> Any:
                process = subprocess.Popen(*given, **options)
                pids.append(process.pid)
                return process

            vars(crew)["Popen"] = started

            def kill() -> None:
                time.sleep(delay)
                victim = os.getpid() if itself or not pids else pids[int(choice * len(pids))]
                os.kill(victim, signal.SIGKILL)

            threading.Thread(target=kill, daemon=True).start()
            return work()

        return begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs in all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cases", default=",".join(CASES), help="which, with commas between")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    job.PART, part_file.SECONDS = 8, 0.0
    chance, began = random.Random(options.seed), time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="unrolled-kill-corpus-"))
    campaigns = {name: Campaign(name, work, chance, options.workers) for name in options.cases.split(",")}
    while (done := sum(one.tally.kills + one.tally.workers_killed for one in campaigns.values())) < options.kills:
        least = min(campaigns.values(), key=lambda one: one.tally.runs)
        least.killed_run(min(chance.randint(1, MOST_KILLS), options.kills - done))
        if options.out:
            _write(options, {name: vars(one.tally) for name, one in campaigns.items()}, time.monotonic() - began)
    faults = [fault for one in campaigns.values() for fault in one.tally.faults]
    runs = sum(one.tally.runs for one in campaigns.values())
    print(f"seed {options.seed}: {done} kills of {runs} runs, {len(faults)} faults", *faults[:3], sep="\n")
    shutil.rmtree(work)
    return 1 if faults else 0


def _write(options: argparse.Namespace, cases: dict[str, dict[str, Any]], seconds: float) -> None:
    """Put the numbers for this count of workers into the file, beside those for others."""
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    sums = {key: sum(one[key] for one in cases.values()) for key in ("kills", "workers_killed", "runs", "differ")}
    known["what"] = "SIGKILLs of `unrolled run --out`; runs whose answers then differ from an undisturbed run's"
    known["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    about = {"seed": options.seed, "seconds": round(seconds), **sums, "cases": cases}
    known[f"{options.workers} worker{'s' * (options.workers > 1)}"] = about
    options.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
