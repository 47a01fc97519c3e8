"""One target at the end of long rows: memory and time of an update with gradients through the last k2 steps.

    python benchmarks/many_to_one.py [--steps 10000] [--rows 8]

Each k2 is a process of its own: a character-level LSTM of 128 units with train.k2 makes three updates on random rows,
seed 0. Memory is the peak of the process minus that before the first update.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from measure import machine, row, show, write

UPDATES = """
import json, resource, sys, time
import torch
from unrolled.data import Batch
from unrolled.models.classifier import Classifier, ClassifierSettings
from unrolled.models.inputs import TokenInput
from unrolled.tasks.classify.config import ClassifyTraining
from unrolled.tasks.classify.task import Classify
from unrolled.tasks.contract import Training

steps, rows, k2 = (int(text) for text in sys.argv[1:])
torch.manual_seed(0)
settings = ClassifierSettings(hidden_size=128, bidirectional=False, pool="last", ngrams=0)
network = Classifier(settings, TokenInput(100, 64), 2)
lengths = torch.randint(steps // 2, steps, (rows,))
batch = Batch(torch.randint(100, (rows, steps)), torch.randint(2, (rows,)), lengths=lengths)
training = Training(ClassifyTraining(k2=k2 or None))
before, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
for _ in range(3):
    began = time.perf_counter()
    Classify().loss(network, batch, None, training).sum.backward()
    times.append(time.perf_counter() - began)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"k2": k2, "MB": (peak - before) / 1024, "seconds": min(times)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=8)
    options = parser.parse_args()
    found = []
    for k2 in (0, 1000, 100, 10):
        words = [sys.executable, "-c", UPDATES, str(options.steps), str(options.rows), str(k2)]
        found.append(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
    whole = found[0]
    rows = [
        row(
            f"k2 = {one['k2'] or 'all'}",
            f"{one['MB']:.0f} MB, {one['seconds']:.2f} s",
            note=f"{whole['MB'] / one['MB']:.1f}× less memory, {whole['seconds'] / one['seconds']:.1f}× faster",
        )
        for one in found
    ]
    show(f"{options.rows} rows of up to {options.steps:,} steps, LSTM 128", rows)
    write("many_to_one", {**machine(), "steps": options.steps, "rows": options.rows}, rows, found)


if __name__ == "__main__":
    main()
