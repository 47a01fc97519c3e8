"""Parts of speech of UD English EWT, and CoNLL-2000 chunks: published taggers' scores, reached anew.

    python recipes/tagging.py --data FOLDER [--only ewt,conll2000] [--seeds 0,1,2] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds ud_english_ewt (en_ewt-ud-train.conllu.gz, en_ewt-ud-dev.conllu, UD 2.16),
conll2000 (train.txt.gz) and glove (glove.6B.100d.subset.npz, words.txt). Every run writes OUT/tagging-PART-SEED.json
when it is done, and is not made again: the script can be stopped, and several can share the work by --only and --seeds.
At the end the runs that are there become a table and OUT/tagging.json.

Nothing is chosen by the scored sentences: there is one evaluation, after the last update. CoNLL-2000's own test set is
not in FOLDER: a tenth of the training sentences is held out, always the same, and no sentence is on both sides.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import unrolled
from unrolled import api
from unrolled.data import held_out
from unrolled.data.columns import ColumnsFile

Files = tuple[Path, Path]  # to train on, to score


@dataclass(frozen=True)
class Part:
    """One published result: its data, its settings, the score it is known by and what others reached."""

    about: str
    files: Callable[[Path, Path], Files]
    metric: str
    bar: float | None
    published: str
    settings: dict[str, Any]
    vectors: bool = True


def ewt(data: Path, work: Path) -> Files:
    folder = data / "ud_english_ewt"
    return folder / "en_ewt-ud-train.conllu.gz", folder / "en_ewt-ud-dev.conllu"


def conll2000(data: Path, work: Path) -> Files:
    """The training file cut in two by whole sentences."""
    file = ColumnsFile.parse(gzip.decompress((data / "conll2000" / "train.txt.gz").read_bytes()).decode().split("\n"))
    parts = held_out([sentence.words for sentence in file.sentences()], 0.1)
    paths = work / "train.txt", work / "test.txt"
    for path, rows in zip(paths, parts, strict=True):
        path.write_text("\n".join("".join(file.lines[i] + "\n" for i in file.rows[row]) for row in rows))
    return paths


COMMON: dict[str, Any] = {"train.eval_every": 10**9}
PARTS = {
    "ewt": Part(
        "UD English EWT 2.16, UPOS, dev, GloVe 100",
        ewt,
        "accuracy",
        0.950,
        "bi-LSTM with letters about 95 (Plank 2016, UD 1.2); BERT 97.4",
        {},
    ),
    "ewt-plain": Part(
        "the same without vectors: the defaults of `unrolled train tag`", ewt, "accuracy", None, "", {}, vectors=False
    ),
    "conll2000": Part(
        "CoNLL-2000 chunks, a tenth of train held out, parts of speech given, GloVe 100",
        conll2000,
        "span_f1",
        0.940,
        "BiLSTM-CRF 94.46 (Huang 2015), on the test set",
        {"data.feature_columns": ["2"]},
    ),
    "conll2000-plain": Part(
        "the same from words alone, without vectors: the defaults", conll2000, "span_f1", None, "", {}, vectors=False
    ),
}


def run(name: str, seed: int, data: Path, device: str, changes: list[str]) -> dict[str, Any]:
    part = PARTS[name]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        train, test = part.files(data, work)
        settings = {**COMMON, **part.settings, "train.seed": seed, "train.device": device}
        if part.vectors:
            settings["data.vectors"] = str(data / "glove" / "glove.6B.100d.subset.npz")
        files = {"data.train": str(train), "data.valid": str(test)}
        began = time.perf_counter()
        model = api.Job(api.configure("tag", changes, settings | files)).run(work / "run", quiet=True)
        minutes = (time.perf_counter() - began) / 60
        scores = model.evaluate(test)
    shown = {key: value for key, value in settings.items() if key != "data.vectors"}
    return {
        "part": name,
        "seed": seed,
        "score": scores[part.metric],
        "scores": {key: value for key, value in scores.items() if not isinstance(value, dict)},
        "minutes": round(minutes, 2),
        "settings": shown,
        "changes": changes,
        "parameters": model.num_parameters,
        "machine": machine(model.device.type),
        "command": f"python recipes/tagging.py --only {name} --seeds {seed} --device {device}",
    }


def machine(device: str) -> dict[str, Any]:
    cpu = next((line for line in _cpu_lines() if line.startswith("model name")), platform.processor()).split(":")[-1]
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else cpu.strip(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "unrolled": unrolled.__version__,
    }


def _cpu_lines() -> list[str]:
    return Path("/proc/cpuinfo").read_text().split("\n") if Path("/proc/cpuinfo").exists() else []


def collect(out: Path) -> None:
    """The table, and the file of all runs."""
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("tagging-*-*.json"))]
    rows = []
    for name, part in PARTS.items():
        mine = [one for one in runs if one["part"] == name]
        if mine:
            scores = [one["score"] for one in mine]
            mean = statistics.mean(scores)
            spread = f" ± {100 * statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
            minutes = statistics.mean(one["minutes"] for one in mine)
            bar = f"bar {100 * part.bar:.1f}, " if part.bar else ""
            print(
                f"{name:<16} {part.metric:<9} {100 * mean:6.2f}{spread} ({len(scores)} seeds), "
                f"{bar}{minutes:.1f} minutes. {part.about}. {part.published}"
            )
            rows.append({"part": name, "about": part.about, "metric": part.metric, "mean": mean, "bar": part.bar})
    (out / "tagging.json").write_text(json.dumps({"table": rows, "runs": runs}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting, to try it")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.data is None:
        sys.exit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only.split(","):
        for seed in map(int, options.seeds.split(",")):
            path = options.out / f"tagging-{name}-{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(run(name, seed, options.data, options.device, options.set), indent=1) + "\n")
    collect(options.out)


if __name__ == "__main__":
    main()
