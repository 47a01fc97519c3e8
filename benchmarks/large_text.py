"""A text larger than memory: speed of tokenising, and the memory of training on it.

    python benchmarks/large_text.py [--megabytes 2048] [--level char] [--steps 20] [--folder FOLDER]

A file of --megabytes is made from the built-in text, with numbers in it so that it does not repeat. A new process
trains on it for some updates. Its peak RssAnon, the memory that belongs to no file, is read every 20 ms from /proc. The
table shows it minus that of an idle process that has imported torch. Must: below 1.5 GB; tokenising 20 MB/s at
character level.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import machine, row, show, write

from unrolled.data import embedded_text
from unrolled.data.batching.token_cache import TokenCache
from unrolled.text import train_tokenizer

IDLE = "import torch, sys; print('ready', flush=True); sys.stdin.read()"
TRAIN = """
import sys
from unrolled import api
path, cache, out, level, steps = sys.argv[1:]
keys = {"data.cache": cache, "data.level": level, "data.valid_fraction": 0.001, "data.max_size": 8000,
        "train.max_steps": int(steps), "train.epochs": 1}
api.train("generate", train=path, out=out, set=keys, quiet=True)
"""


def make(path: Path, megabytes: int) -> None:
    """Write the built-in text repeatedly, each copy with its number."""
    text, written, number = embedded_text(), 0, 0
    with path.open("w") as file:
        while written < megabytes << 20:
            copy = text.replace("\n\n", f"\n{number}\n\n")
            written += file.write(copy)
            number += 1


def anonymous(process: int) -> int:
    """RssAnon of a process in bytes; 0 after it has ended."""
    try:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def idle() -> int:
    """RssAnon of a process that has imported torch."""
    command = [sys.executable, "-c", IDLE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return anonymous(process.pid)


def peak_while_training(path: Path, cache: Path, out: Path, level: str, steps: int) -> int:
    process = subprocess.Popen([sys.executable, "-c", TRAIN, *map(str, (path, cache, out, level, steps))])
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous(process.pid))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit("training failed: nothing is reported")
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--level", default="char")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        path, cache = work / "text.txt", TokenCache(work / "first")
        make(path, options.megabytes)
        times = {}
        began = time.perf_counter()
        text, _ = cache.text(path)
        times["scanned"] = time.perf_counter() - began
        tokenizer = train_tokenizer(options.level, text.segments(), max_size=8000)
        times["vocabulary"] = time.perf_counter() - began - times["scanned"]
        ids = cache.ids(text, tokenizer)
        times["ids"] = time.perf_counter() - began - times["scanned"] - times["vocabulary"]
        with path.open() as file:  # a wrong cache must not be timed
            head = file.read(1 << 20)
        if not (ids[: len(head) // 2] == tokenizer.ids(head)[: len(head) // 2]).all():
            raise SystemExit("the ids are not those of the text: nothing is reported")
        above = peak_while_training(path, work / "cache", work / "run", options.level, options.steps) - idle()
    finally:
        shutil.rmtree(work)
    total = sum(times.values())
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in times.items())
    rows = [
        row("from a file to ids, MB/s", f"{options.megabytes / total:.0f}", "20", "", parts),
        row("memory of training above an idle process, GB", f"{above / 1e9:.2f}", "1.5", "", "RssAnon, peak"),
    ]
    show(f"{options.megabytes} MB of text, {options.level} level", rows)
    name = f"large_text-{options.megabytes}-{options.level}"
    write(name, machine(), rows, [{"times": times, "above": above, "tokens": len(ids)}])
    print(json.dumps({"seconds": round(total, 1)}))


if __name__ == "__main__":
    main()
