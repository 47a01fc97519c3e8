"""From a recognizer's posteriors to a table: best path, beam, lexicon, lexicon and language model.

The weights of the searches are chosen on examples that are neither trained on nor scored.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from unrolled import Model
from unrolled.data.readers.media.transcripts import read_transcripts
from unrolled.metrics.recognition import recognition_scores
from unrolled.tasks.recognize.predict import recognize
from unrolled.tasks.recognize.search import RecognitionOptions, Search

Ways = Mapping[str, Sequence[RecognitionOptions]]  # name → the options to choose from


def table(model: Model, dev: Path, test: Path, ways: Ways, metric: str) -> dict[str, Any]:
    """Choose the best options of each search on `dev` and score them on `test`; the last gives the main scores."""
    chosen = {name: choose(model, dev, options, metric) for name, options in ways.items()}
    rows = scores(model, test, chosen)
    told: dict[str, Any] = {}
    for name, row in rows.items():
        short = name.replace(" + ", "_").replace(" ", "_")
        told |= {f"{short}_{key}": value for key, value in row.items() if key != "exact_match"}
        told[f"{short}_options"] = _shown(chosen[name])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    told["memory_gib"] = round(memory / 2**30, 2)
    if model.device.type == "cuda":
        told["gpu_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return told


def choose(model: Model, dev: Path, options: Sequence[RecognitionOptions], metric: str) -> RecognitionOptions:
    """The options with the lowest error rate; of equal ones the first."""
    if len(options) == 1:
        return options[0]
    found = scores(model, dev, {str(i): one for i, one in enumerate(options)})
    return options[int(min(found, key=lambda name: (found[name][metric], int(name))))]


def scores(model: Model, file: Path, ways: Mapping[str, RecognitionOptions]) -> dict[str, dict[str, float]]:
    examples = read_transcripts(file)
    searches = {name: Search(model.assets.labels, options) for name, options in ways.items()}
    answers = recognize(model, [example.input for example in examples], searches)
    references = [model.assets.labels.reference(example.text) for example in examples]
    return {
        name: asdict(recognition_scores([one.text for one in found], references)) for name, found in answers.items()
    }


def grid(plain: RecognitionOptions, **values: Sequence[Any]) -> list[RecognitionOptions]:
    """All combinations of some values."""
    found = [plain]
    for name, choices in values.items():
        found = [replace(one, **{name: value}) for one in found for value in choices]
    return found


def _shown(options: RecognitionOptions) -> str:
    kept = ("beam", "lm_weight", "word_bonus", "unknown_penalty")
    plain = RecognitionOptions()
    told = {name: getattr(options, name) for name in kept if getattr(options, name) != getattr(plain, name)}
    return ", ".join(f"{name} {value}" for name, value in told.items())
