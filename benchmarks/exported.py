"""Answers of exported models, in onnxruntime without torch, against the same models in torch.

    PYTHONPATH=. python benchmarks/exported.py [--seconds 3]

Networks of the default size of each task, trained for two updates on the data that comes with the task. Both sides
answer the same inputs with `predict`, in one process and in turns; before that, their answers must be equal.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import interleaved, machine, row, show, write

import unrolled
from unrolled import runtime

WORDS = ("the", "model", "reads", "a", "file", "of", "examples", "and", "returns", "what", "it", "found", "in", "each")


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
    "translate, beam 5": ({}, spellings(50), {"beam": 5}),
    "translate, Transformer, beam 5": ({"model.kind": "transformer"}, spellings(50), {"beam": 5}),
    "generate, 100 characters": ({}, ["The "], {"max_tokens": 100, "seed": 1}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    rows, details = [], []
    for name, (changes, inputs, options) in CASES.items():
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = {"train.max_steps": 2, "train.seed": 1, **changes}
            model = unrolled.train(name.partition(",")[0], out=Path(place, "run"), set=settings, quiet=True)
            unrolled.export_onnx(model, Path(place, "onnx"), check=False)
            exported = runtime.load(Path(place, "onnx"))
            answers = [str(side.predict(inputs, **options)) for side in (model, exported)]
            same = answers[0] == answers[1] or _texts(model, inputs, options) == _texts(exported, inputs, options)
            assert same, name
            sides: dict[str, Any] = {"torch": model, "exported": exported}
            runs = {side: partial(one.predict, inputs, **options) for side, one in sides.items()}
            best = interleaved(runs, seconds, least=3)
        ratio = best["torch"] / best["exported"]
        times = f"{best['exported'] * 1e3:.1f} ms, torch {best['torch'] * 1e3:.1f} ms"
        rows.append(row(name, f"{ratio:.2f}x", "", "", times))
        details.append({"case": name, "inputs": len(inputs), **best})
    facts = machine()
    print(facts)
    show("Exported models against the same in torch", rows)
    write("exported", facts, rows, details)


def _texts(model: Any, inputs: list[Any], options: dict[str, Any]) -> list[str]:
    """The answers without their scores, which differ by rounding."""
    found: Any = model.predict(inputs, **options)
    return [str(getattr(one, "text", getattr(one, "label", one))) for one in found]


if __name__ == "__main__":
    main()
