"""Steps a second of many streams, each fed alone and all together: OMP_NUM_THREADS=1 python -m benchmarks.streams

Processor time of one thread; small untrained LSTMs of 256 units.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.compat.make import write_more
from tests.fitting import fitting
from tests.see.models import HEARD, SHORT, facts_of, write_files
from unrolled import api
from unrolled.model import Model

STREAMS = (1, 16, 64)
WIDE = {"train.max_steps": 1, "model.hidden_size": 256, "model.bidirectional": False}
SOUND = {**HEARD, **WIDE, "model.channels": [32], "data.bands": 40}


def models(data: Path) -> list[tuple[str, Model, dict[str, Any], Any, int]]:
    """Name, model, options of its streams, a piece, and the steps of that."""
    write_files(data)
    write_more(data)
    keys = fitting("tag", {**SHORT, **WIDE}, inputs="frames")
    tagger = api.train("tag", train=data / "steps.npz", out=data / "tagger", set=keys, quiet=True)
    keys = fitting("recognize", SOUND, **facts_of("sounds"))
    hears = api.train("recognize", train=data / "sounds" / "train.tsv", out=data / "hears", set=keys, quiet=True)
    reader = hears.assets.reader
    sound = np.random.default_rng(0).normal(0, 0.1, 16 * reader.mel.hop).astype(np.float32)
    return [("tag", tagger, {}, np.ones((8, 2)), 8), ("recognize", hears, {"rate": reader.rate}, sound, 16)]


def seconds(run: Callable[[], object]) -> float:
    """Processor time of a run, the best of four rounds."""
    run()
    best = float("inf")
    for _ in range(4):
        begun, runs = time.process_time(), 0
        while time.process_time() - begun < 0.25:
            run()
            runs += 1
        best = min(best, (time.process_time() - begun) / runs)
    return best


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name, model, options, piece, steps in models(Path(folder) / "data"):
            for count in STREAMS:
                streams = [model.stream(**options) for _ in range(count)]
                pieces = [(stream, piece) for stream in streams]
                alone = count * steps / seconds(lambda: [stream.feed(piece) for stream, piece in pieces])  # noqa: B023
                together = count * steps / seconds(lambda: model.feed_many(pieces))  # noqa: B023
                print(f"{name}, {count} streams: {alone:,.0f} steps/s alone, {together:,.0f} together", flush=True)


if __name__ == "__main__":
    main()
