"""Two workers of `unrolled run` on two cores against one, and the memory of processes that share their weights.

    python benchmarks/corpus.py --classify MODEL TEXTS --translate MODEL TEXTS [--lines 20000] [--rounds 3]

MODEL is a run folder and TEXTS a file with an input on each line; of them `--lines` are answered. `one` is a run with
one worker and one thread, `threads` with one worker and a thread for each core, `two` with two workers of one thread
each; they take turns, each a process of its own. The answers of all must be the same bytes. Times are those of the
whole command, its start included, and per 1,000 answers the difference of a long and a short run, so that the start
cancels. On a machine that others use, wall time says little: CPU seconds of all processes are beside it, and the load.

Memory is read from /proc/PID/smaps_rollup while two workers answer: resident, and its share by the number of processes
that map it (PSS), with weights mapped from the file and, for comparison, copied by each process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import machine

WAYS = {"one": (1, 1), "threads": (1, 0), "two": (2, 1)}  # workers, threads (0: all cores)
COPIED = """
import sys
import unrolled.model_file as home
home._map_weights = lambda network, path: None
from unrolled.corpus.worker import main
main()
"""


def answer(model: str, texts: Path, out: Path, way: str, options: list[str]) -> dict[str, float]:
    """Wall and CPU seconds of a command and all its processes."""
    workers, threads = WAYS[way]
    environment = dict(os.environ)
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-m", "unrolled", "run", model, str(texts), "--out", str(out), "--force"]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--workers", str(workers), *options], env=environment, stderr=subprocess.DEVNULL
    )
    _, code, used = os.wait4(process.pid, 0)  # with the processes that it waited for
    seconds = time.perf_counter() - begin
    if code:
        raise SystemExit(f"{command} failed")
    return {"wall": seconds, "cpu": used.ru_utime + used.ru_stime}


def part_of(texts: Path, lines: int, folder: Path) -> Path:
    """A file of so many lines, repeated as needed."""
    path = folder / f"{lines}.txt"
    found = [line for line in texts.read_text().splitlines() if line.strip()]
    path.write_text("".join(f"{line}\n" for line in itertools.islice(itertools.cycle(found), lines)))
    return path


def compared(model: str, texts: Path, lines: int, rounds: int, options: list[str]) -> dict[str, Any]:
    """The best times of each way, whole and without the start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        long, short = part_of(texts, lines, folder), part_of(texts, max(1, lines // 10), folder)
        best: dict[str, dict[str, dict[str, float]]] = {way: {} for way in WAYS}
        contents = set()
        loads = []
        for _ in range(rounds):
            for way in WAYS:
                for size, path in (("long", long), ("short", short)):
                    out = folder / "answers.jsonl"
                    found = answer(model, path, out, way, options)
                    loads.append(os.getloadavg()[0])
                    if size == "long":
                        contents.add(out.read_bytes())
                    known = best[way].setdefault(size, found)
                    best[way][size] = {key: min(known[key], found[key]) for key in found}
        if len(contents) != 1:
            raise SystemExit("the answers differ: nothing is reported")
    done = lines - max(1, lines // 10)
    each = {
        way: {key: 1000 * (times["long"][key] - times["short"][key]) / done for key in ("wall", "cpu")}
        for way, times in best.items()
    }
    return {
        "model": Path(model).name,
        "lines": lines,
        "options": options,
        "seconds": best,
        "per 1,000 answers": each,
        "wall of one over two, whole command": best["one"]["long"]["wall"] / best["two"]["long"]["wall"],
        "wall of one over two, start left out": each["one"]["wall"] / each["two"]["wall"],
        "wall of threads over two, start left out": each["threads"]["wall"] / each["two"]["wall"],
        "CPU of two over one, start left out": each["two"]["cpu"] / each["one"]["cpu"],
        "twice CPU of one over two: the bound of two idle cores": 2 * each["one"]["cpu"] / each["two"]["cpu"],
        "load average": [min(loads), max(loads)],
    }


def memory(process: int) -> dict[str, int]:
    """Kilobytes of a process."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    names = ("Rss", "Pss", "Shared_Clean", "Private_Clean", "Private_Dirty")
    found = {name: re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE) for name in names}
    return {name: int(match[1]) for name, match in found.items() if match}


def sharing(model: str, texts: Path, workers: int, *, mapped: bool) -> dict[str, Any]:
    """The memory of workers that have answered something, each a process."""
    from unrolled.corpus import wire
    from unrolled.corpus.work import CorpusPart, CorpusWork
    from unrolled.tasks.runner import Input

    command = ["-m", "unrolled.corpus.worker"] if mapped else ["-c", COPIED]
    running = [
        subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(workers)
    ]
    inputs = [Input(line) for line in texts.read_text().splitlines()[:64]]
    try:
        for process in running:
            assert process.stdin is not None
            wire.send(process.stdin, (CorpusWork(model, "text"), 1))
        for process in running:
            assert process.stdin is not None
            assert process.stdout is not None
            wire.receive(process.stdout)
            wire.send(process.stdin, CorpusPart(0, inputs))
        for process in running:
            assert process.stdout is not None
            wire.receive(process.stdout)
        found = [memory(process.pid) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    mean = {name: round(sum(one[name] for one in found) / 1024 / workers) for name in found[0]}
    return {"workers": workers, "weights": "mapped" if mapped else "copied", "MB of a worker": mean}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classify", nargs=2, metavar=("MODEL", "TEXTS"))
    parser.add_argument("--translate", nargs=2, metavar=("MODEL", "TEXTS"))
    parser.add_argument("--memory", nargs=2, metavar=("MODEL", "TEXTS"), help="a large model, for what is shared")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--sources", type=int, default=2_000, help="lines to translate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "corpus.json")
    asked = parser.parse_args()
    found = json.loads(asked.json.read_text()) if asked.json.exists() else {}
    found["machine"], found["command"] = machine(), " ".join(Path(word).name if "/" in word else word for word in sys.argv)
    for task, given, lines, options in (
        ("classify", asked.classify, asked.lines, []),
        ("translate", asked.translate, asked.sources, ["--max-tokens", "30"]),
    ):
        if given:
            found[task] = compared(given[0], Path(given[1]), lines, asked.rounds, options)
            print(json.dumps(found[task], indent=1))
    if asked.memory:
        model, texts = asked.memory[0], Path(asked.memory[1])
        found["memory"] = [sharing(model, texts, count, mapped=mapped) for count in (1, 2) for mapped in (True, False)]
        print(json.dumps(found["memory"], indent=1))
    asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
