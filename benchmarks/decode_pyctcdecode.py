"""pyctcdecode in a process of its own, with its defaults: reads a job, then decodes all of it for each line it gets.

The job names an .npz file of log-probabilities, the labels, and optionally words and an ARPA file.
"""

from __future__ import annotations

import json
import logging
import sys
import time

import numpy as np
from pyctcdecode import build_ctcdecoder

logging.disable(logging.CRITICAL)
job = json.loads(sys.stdin.readline())
labels = ["", *job["labels"][1:]]  # its name for the blank
decoder = build_ctcdecoder(labels, job.get("arpa"), job.get("words"))
with np.load(job["frames"]) as file:
    frames = [file[name] for name in file.files]
print(json.dumps({"texts": [decoder.decode(one) for one in frames]}), flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    for one in frames:
        decoder.decode(one)
    print(json.dumps({"seconds": (time.perf_counter() - start) / len(frames)}), flush=True)
