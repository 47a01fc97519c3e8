"""BLEU against the length of the source: a fixed vector, attention, a Transformer, trained on short and longer pairs.

    python recipes/lengths.py --data FOLDER [--only attention,…] [--caps 12,25] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

The figure of Bahdanau et al. (2015) on real data. Each model is trained twice, on pairs whose source has at most 12 or
25 tokens (--caps), and scored on single sentences and on two and three of them joined, German → English. FOLDER, by
default $UNROLLED_DATA, holds multi30k and tatoeba_en_de: both train, Multi30k's test and Tatoeba's dev are scored. OUT
gets lengths.json and lengths.png; existing models (OUT/lengths-NAME.json) are not trained again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import LAST_ONLY, machine, mistakes_told

from unrolled import api
from unrolled.config import fitting
from unrolled.jobs import TrainingJob
from unrolled.recipe_data import store_hashes
from unrolled.see import length_figure
from unrolled.tasks.translate.config import TranslateConfig

DATA = (
    "multi30k/train.de",
    "multi30k/train.en",
    "multi30k/test_2016_flickr.de",
    "multi30k/test_2016_flickr.en",
    "tatoeba_en_de/train.tsv.gz",
    "tatoeba_en_de/dev.tsv.gz",
)
KINDS: dict[str, dict[str, Any]] = {
    "fixed vector": {"model.decoder.attention": "none", "model.encoder.hidden_size": 512},
    "attention": {"model.decoder.attention": "bahdanau", "model.decoder.score": "additive"},
    "transformer": {"model.kind": "transformer", "train.lr": 1e-3, "train.warmup_steps": 1000},
}
COMMON: dict[str, Any] = {
    **LAST_ONLY,
    "data.level": "bpe",
    "data.lowercase": True,
    "model.decoder.hidden_size": 512,
    "train.batch_tokens": 4096,
    "train.epochs": 12,
    "train.average": 0.998,
}


def read(data: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(German, English) pairs to train on, and to score."""

    def multi30k(name: str) -> list[tuple[str, str]]:
        columns = [(data / "multi30k" / f"{name}.{side}").read_text().split("\n") for side in ("de", "en")]
        return [(" ".join(s.split()), " ".join(t.split())) for s, t in zip(*columns, strict=True) if s and t]

    def tatoeba(name: str) -> list[tuple[str, str]]:
        lines = gzip.decompress((data / "tatoeba_en_de" / f"{name}.tsv.gz").read_bytes()).decode().splitlines()
        return [(line.split("\t")[1], line.split("\t")[0]) for line in lines]

    return multi30k("train") + tatoeba("train"), multi30k("test_2016_flickr") + tatoeba("dev")


def joined(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each pair alone, and fixed groups of two and three pairs joined."""
    order = random.Random(0).sample(pairs, len(pairs))
    found = list(order)
    for count in (2, 3):
        groups = zip(*(order[i::count] for i in range(count)), strict=False)
        found += [(" ".join(s for s, _ in group), " ".join(t for _, t in group)) for group in groups]
    return found


def run(train: Path, test: Path, kind: str, cap: int, device: str, changes: list[str]) -> dict[str, Any]:
    """Train one model on pairs up to the cap, and score it on all lengths."""
    files = {"data.train": str(train), "data.valid_fraction": 0.01, "data.max_source_length": cap}
    settings = fitting(TranslateConfig, {**COMMON, **KINDS[kind], **files, "train.device": device})
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        model = TrainingJob(api.configure("translate", changes, settings)).run(Path(folder) / "run", quiet=True)
        minutes = (time.perf_counter() - began) / 60
        scores = model.evaluate(test)
    facts = {"kind": kind, "cap": cap, "scores": scores, "minutes": round(minutes, 1), "changes": changes}
    return {**facts, "parameters": model.num_parameters, "machine": machine(model.device.type)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"))
    parser.add_argument("--only", default=",".join(KINDS), help="models, with commas: " + ", ".join(KINDS))
    parser.add_argument("--caps", default="12,25", help="most tokens of a training source, with commas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.data is None:
        sys.exit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    kinds = options.only.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        sys.exit(f"Unknown model {unknown[0]!r}. Choices: {', '.join(KINDS)}.")
    options.out.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "train.tsv", Path(folder) / "test.tsv"
        learnt, scored = read(Path(options.data))
        for path, pairs in zip(files, (learnt, joined(scored)), strict=True):
            path.write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
        for kind in kinds:
            for cap in map(int, options.caps.split(",")):
                name = f"{kind}, trained up to {cap}"
                path = options.out / f"lengths-{kind.replace(' ', '-')}-{cap}.json"
                if not path.exists():
                    path.write_text(json.dumps(run(*files, kind, cap, options.device, options.set), indent=1) + "\n")
                tables[name] = json.loads(path.read_text())
                print(f"{name}: BLEU {tables[name]['scores']['bleu']:.1f} over all lengths", flush=True)
    (options.out / "lengths.json").write_text(json.dumps(tables, indent=1) + "\n")
    store_hashes(Path(__file__), Path(options.data), options.out)
    by_length = {name: table["scores"]["by_length"] for name, table in tables.items()}
    length_figure(by_length).savefig(options.out / "lengths.png", dpi=120)


if __name__ == "__main__":
    with mistakes_told():
        main()
