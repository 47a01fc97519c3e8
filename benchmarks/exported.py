"""Answers of exported models, in onnxruntime without torch, against the same models in torch and against the same
graphs written by torch's own exporter.

    PYTHONPATH=. taskset -c 0 python benchmarks/exported.py [--seconds 3] [--only tag]

Networks of the default size of each task, trained for two updates on the data that comes with the task. All sides
answer the same inputs with `predict`, in one process and in turns; before that, their answers must be equal. Times are
CPU time; on one core (taskset), since both runtimes share work out over those they see. Then each side answers one
input in a process of its own: its processor time and memory from start to end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from measure import interleaved, machine, row, show, write
from runtime_start import Start, best_starts
from torch_exporter import write_by_torch

import unrolled
from unrolled import runtime
from unrolled.errors import UserError

WORDS = ("the", "model", "reads", "a", "file", "of", "examples", "and", "returns", "what", "it", "found", "in", "each")
SIDES = ("torch", "exported", "torch's exporter")


def sentences(count: int) -> list[str]:
    """Sentences of 3 to 18 words, drawn by a fixed seed."""
    drawn = np.random.default_rng(1)
    return [" ".join(drawn.choice(WORDS, drawn.integers(3, 19))) for _ in range(count)]


def spellings(count: int) -> list[str]:
    """Words of 3 to 12 letters."""
    drawn = np.random.default_rng(2)
    return ["".join(drawn.choice(list("abcdefghijklmnoprstuvw"), drawn.integers(3, 13))) for _ in range(count)]


def recordings(count: int) -> list[Any]:
    """Noise of 0.3 to 1.2 seconds at 8 kHz."""
    drawn = np.random.default_rng(3)
    lengths = drawn.integers(2400, 9600, count)
    return [(0.1 * drawn.standard_normal(length).astype(np.float32), 8000) for length in lengths]


CASES: dict[str, tuple[dict[str, Any], list[Any], dict[str, Any]]] = {
    "classify": ({}, sentences(200), {}),
    "tag": ({}, [sentence.split() for sentence in sentences(100)], {}),
    "recognize": ({}, recordings(50), {"beam": 10}),
    "translate, beam 5": ({}, spellings(50), {"beam": 5}),
    "translate, Transformer, beam 5": ({"model.kind": "transformer"}, spellings(50), {"beam": 5}),
    "generate, 100 characters": ({}, ["The "], {"max_tokens": 100, "seed": 1}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3, help="starts of each side")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    given = parser.parse_args()
    facts = {**machine(), "clock": "CPU time", "cores": len(os.sched_getaffinity(0))}
    facts["load before"] = round(os.getloadavg()[0], 1)
    rows: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = []
    for name in CASES:
        if given.only in name:
            with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compare(name, Path(place), given.seconds, given.rounds, rows, details)
            print(rows[-1], flush=True)
    print(facts)
    show("Exported models against the same in torch", rows)
    write("exported" if not given.only else "exported_part", facts, rows, details)


def compare(
    name: str, place: Path, seconds: float, rounds: int, rows: list[dict[str, Any]], details: list[dict[str, Any]]
) -> None:
    changes, inputs, options = CASES[name]
    settings = {"train.max_steps": 2, "train.seed": 1, "data.kind": "audio", **changes}
    if name != "recognize":
        del settings["data.kind"]
    train = training_recordings(place) if name == "recognize" else None
    model = unrolled.train(name.partition(",")[0], train=train, out=place / "run", set=settings, quiet=True)
    unrolled.export_onnx(model, place / "onnx", check=False)
    reasons = write_by_torch(model, place / "onnx", place / "by-torch")
    sides: dict[str, Any] = {"torch": model, "exported": runtime.load(place / "onnx")}
    if not reasons:
        sides["torch's exporter"] = runtime.load(place / "by-torch")
    expected = texts(model, inputs, options)
    assert texts(sides["exported"], inputs, options) == expected, name
    if not reasons:
        try:
            found = texts(sides["torch's exporter"], inputs, options)
            reasons = {} if found == expected else {"answers": "differ from those of the model"}
        except (UserError, RuntimeError, ValueError) as error:
            reasons = {"run": str(error).splitlines()[0][:200]}
        except Exception as error:  # onnxruntime's
            reasons = {"run": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    if reasons:
        sides.pop("torch's exporter", None)
    runs = {side: partial(one.predict, inputs, **options) for side, one in sides.items()}
    best = interleaved(runs, seconds, least=3, clock=time.process_time)
    shown = [f"{side} {best[side] * 1e3:.1f} ms" for side in SIDES if side in best]
    rows.append(row(name, best["torch"] / best["exported"], note=", ".join(shown)))
    if "torch's exporter" in best:
        rows.append(row(f"{name}, against torch's exporter", best["torch's exporter"] / best["exported"]))
    starts = start_each(name, place, sides, rounds)
    rows.append(row(f"{name}: start", f"{starts['exported'].processor:.2f} s", note=told(starts, "processor", "s")))
    rows.append(row(f"{name}: memory", f"{starts['exported'].memory:.0f} MB", note=told(starts, "memory", "MB")))
    details.append({"case": name, "inputs": len(inputs), **best, "not by torch's exporter": reasons})
    details[-1]["starts"] = {side: one._asdict() for side, one in starts.items()}


def training_recordings(place: Path) -> Path:
    """A manifest of a few recordings."""
    for number, (samples, rate) in enumerate(recordings(8)):
        soundfile.write(place / f"{number}.wav", samples, rate)
    manifest = place / "train.tsv"
    manifest.write_text("".join(f"{number}.wav\t{'ab' * (1 + number % 2)}\n" for number in range(8)))
    return manifest


def start_each(name: str, place: Path, sides: dict[str, Any], rounds: int) -> dict[str, Start]:
    """Processor time and memory of one answer of each side in a process of its own."""
    homes = {"torch": "run", "exported": "onnx", "torch's exporter": "by-torch"}
    one = [str(place / "0.wav")] if name == "recognize" else ["--text", "the model reads"]
    more = ["--max-tokens", "20", "--seed", "1"] if name.startswith("generate") else []
    return best_starts({side: ["run", str(place / homes[side]), *one, *more] for side in sides}, rounds)


def told(starts: dict[str, Start], figure: str, unit: str) -> str:
    digits = 2 if unit == "s" else 0
    return ", ".join(f"{side} {getattr(one, figure):.{digits}f} {unit}" for side, one in starts.items())


def texts(model: Any, inputs: list[Any], options: dict[str, Any]) -> list[str]:
    """The answers without their scores, which differ by rounding."""
    found: Any = model.predict(inputs, **options)
    return [str(getattr(one, "text", getattr(one, "label", one))) for one in found]


if __name__ == "__main__":
    main()
