"""Score GloVe's vectors on the 19,544 analogy questions of Mikolov et al.

    python recipes/analogies.py --data FOLDER

FOLDER holds `glove/glove.6B.100d.subset.npz` with its `words.txt`, 48,628 words of GloVe 6B (100 numbers each), and
`analogy/questions-words.txt`. For a file of your own: unrolled words vectors.txt --analogies questions-words.txt
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
from common import mistakes_told

from unrolled import __version__
from unrolled.recipe_data import RESULTS, store_hashes
from unrolled.text import Vectors

DATA = ("glove/glove.6B.100d.subset.npz", "glove/words.txt", "analogy/questions-words.txt")
EXPECTED = {"total": 63.8, "semantic": 65.8, "syntactic": 62.1}  # per cent, with a tolerance of 0.1


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"), help="default: $UNROLLED_DATA")
    options.add_argument("--out", type=Path, default=RESULTS / "analogies.json")
    given = options.parse_args()
    if given.data is None:
        options.error("--data is missing, and UNROLLED_DATA is not set")
    began = time.perf_counter()
    vectors = Vectors.read(given.data / "glove" / "glove.6B.100d.subset.npz")
    read = time.perf_counter()
    scores = vectors.analogies(given.data / "analogy" / "questions-words.txt")
    ended = time.perf_counter()
    for name, group in scores["groups"].items():
        print(f"{name:<28} {group['accuracy']:7.2%}  of {group['asked']:,}")
    for name, expected in EXPECTED.items():
        print(f"{name:<28} {scores[name]:7.2%}  expected {expected} ± 0.1")
    result = {
        "command": "python recipes/analogies.py --data FOLDER",
        "machine": {"cpu": cpu(), "cores": os.cpu_count()},
        "versions": {"unrolled": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "seconds": {"reading": round(read - began, 2), "questions": round(ended - read, 2)},
        "expected": EXPECTED,
        "scores": scores,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    store_hashes(Path(__file__), given.data, given.out.parent)
    if any(abs(100 * scores[name] - expected) > 0.1 for name, expected in EXPECTED.items()):
        sys.exit("The scores are not the expected ones.")


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    with mistakes_told():
        main()
