"""Six small sets of labelled texts: `classify` beside fastText and tuned TF-IDF with logistic regression.

    python recipes/small_texts.py --peers VENV/bin/python [--data FOLDER] [--only trec,names] [--seeds 0,1,2,3,4]
        [--systems linear,beside,fasttext,tfidf] [--out FOLDER]

FOLDER, by default $UNROLLED_DATA, holds trec, sst2, sst_trees, names and ud_english_ewt; the sixth set is the built-in
one. VENV has scikit-learn and fasttext-wheel, apart from our own environment.

Every seed draws another tenth of the training texts to validate on, the same for all systems; the scored texts are read
once, by the model that validation chose. `linear` is the wide path alone (model.kind=linear), `beside` a small
recurrent network beside it.
The peers choose their settings on the validation part of seed 0 (the grids are in small_texts_peers.py).

Times are CPU seconds of one thread: of training with known settings for the peers, of everything from texts to the
kept model for ours, choice of the penalty included; and of an answer to one text.

Every run writes OUT/small_texts-SET-SYSTEM-SEED.json when it is done, and is not repeated. At the end all existing runs
become a table and OUT/small_texts.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from classification import names, tree_phrases, write_tsv
from common import machine, mistakes_told

from unrolled import api
from unrolled.data import held_out
from unrolled.data.demo.docstrings import embedded_labels
from unrolled.recipe_data import RESULTS, store_hashes

DATA = (
    "trec/train.tsv",
    "trec/test.tsv",
    "sst2/train.tsv",
    "sst2/dev.tsv",
    "sst_trees/train.txt",
    "sst_trees/dev.txt",
    "names/*.txt",
    "ud_english_ewt/en_ewt-ud-train.conllu.gz",
    "ud_english_ewt/en_ewt-ud-dev.conllu",
)
Rows = list[tuple[str, str]]
Parts = tuple[Rows, Rows]  # (label, text) to train on, to score
ANSWERED = 200  # texts whose answers are timed, one at a time
OURS: dict[str, dict[str, Any]] = {
    "linear": {"model.kind": "linear"},
    "beside": {"model.hidden_size": 32, "model.embedding_size": 32, "train.max_steps": 300},
}
SYSTEMS = (*OURS, "fasttext", "tfidf")


def _read(path: Path) -> Rows:
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [(row[0], row[-1].strip()) for row in rows]


def trec(data: Path) -> Parts:
    """Questions and the six kinds of their answers."""
    return _read(data / "trec" / "train.tsv"), _read(data / "trec" / "test.tsv")


def sst2(data: Path) -> Parts:
    """Sentences of film reviews, good or bad: whole sentences only, without the labels of their phrases."""
    return _read(data / "sst2" / "train.tsv"), _read(data / "sst2" / "dev.tsv")


def sst5(data: Path) -> Parts:
    """Sentences of film reviews, on a scale from 0 to 4."""

    def sentences(part: str) -> Rows:
        lines = (data / "sst_trees" / f"{part}.txt").read_text().splitlines()
        roots = (tree_phrases(line)[-1] for line in lines)
        return [(str(label), " ".join(words)) for label, words in roots]

    return sentences("train"), sentences("dev")


def surnames(data: Path) -> Parts:
    """Surnames of 18 languages, duplicates removed, 15 % held out."""
    with tempfile.TemporaryDirectory() as folder:
        train, test = names(data, Path(folder))
        return _read(train), _read(test)


def genre(data: Path) -> Parts:
    """Sentences of the web, and where they stood: answers, email, newsgroup, reviews or weblog."""

    def sentences(text: str) -> Rows:
        found, kind = [], ""
        for line in text.splitlines():
            if line.startswith("# sent_id = "):
                kind = line.removeprefix("# sent_id = ").partition("-")[0]
            elif line.startswith("# text = "):
                found.append((kind, line.removeprefix("# text = ").replace("\t", " ")))
        return found

    folder = data / "ud_english_ewt"
    with gzip.open(folder / "en_ewt-ud-train.conllu.gz", "rt", encoding="utf-8") as file:
        train = sentences(file.read())
    return train, sentences((folder / "en_ewt-ud-dev.conllu").read_text())


def docstrings(data: Path) -> Parts:
    """First lines of docstrings of Python's standard library, and the module: the built-in data, 15 % held out."""
    rows = embedded_labels()
    train, test = held_out([text for _, text in rows], 0.15)
    return [rows[i] for i in train], [rows[i] for i in test]


SETS: dict[str, Callable[[Path], Parts]] = {
    "trec": trec,
    "sst2": sst2,
    "names": surnames,
    "sst5": sst5,
    "genre": genre,
    "docstrings": docstrings,
}


def write_parts(name: str, seed: int, data: Path, folder: Path) -> None:
    """train.tsv, valid.tsv and test.tsv; a tenth of the training texts validates, the others are shuffled."""
    rows, test = SETS[name](data)
    chosen = set(random.Random(seed).sample(range(len(rows)), len(rows) // 10))
    train, valid = ([row for i, row in enumerate(rows) if (i in chosen) == held] for held in (False, True))
    random.Random(seed).shuffle(train)  # fastText learns in the order of the file, and some sets are sorted by label
    write_tsv(folder / "train.tsv", train)
    write_tsv(folder / "valid.tsv", valid)
    write_tsv(folder / "test.tsv", test)


def ours(system: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train and score a model of ours."""
    torch.set_num_threads(1)
    settings = {**OURS[system], "train.seed": seed, "train.threads": 1, "train.device": "cpu"}
    columns = {"data.label_column": "1", "data.text_column": "2"}
    began = time.process_time()
    train, valid = folder / "train.tsv", folder / "valid.tsv"
    model = api.train("classify", train=train, valid=valid, out=folder / "run", set={**settings, **columns}, quiet=True)
    seconds = time.process_time() - began
    scores = {key: value for key, value in model.evaluate(folder / "test.tsv").items() if isinstance(value, float)}
    texts = [text for _, text in _read(folder / "test.tsv")][:ANSWERED]
    model.predict(texts[0])
    began = time.process_time()
    for text in texts:
        model.predict(text)
    answer = (time.process_time() - began) / len(texts)
    said = model.task.description.remarks(model)
    return {
        "scores": scores,
        "valid": model.scores,
        "train_seconds": seconds,
        "answer_seconds": answer,
        "settings": settings,
        "megabytes": (folder / "run" / "best.safetensors").stat().st_size / 1e6,
        **({"remarks": said} if said else {}),
    }


def peer(system: str, peers: Path, chosen: dict[str, Any] | None, seed: int, folder: Path) -> dict[str, Any]:
    """Train and score a peer, in its own environment."""
    script = Path(__file__).parent / "small_texts_peers.py"
    job = json.dumps({"system": system, "folder": str(folder), "seed": seed, "chosen": chosen, "answered": ANSWERED})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    result = subprocess.run([peers, script, job], capture_output=True, text=True, check=False, env=environment)
    if result.returncode:
        sys.exit(f"{peers} {script.name} failed:\n{result.stderr}")
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def runs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The missing runs."""
    for seed in map(int, options.seeds.split(",")):
        for name in options.only.split(","):
            for system in options.systems.split(","):
                path = options.out / f"small_texts-{name}-{system}-{seed}.json"
                if path.exists():
                    continue
                with tempfile.TemporaryDirectory() as place:
                    folder = Path(place)
                    write_parts(name, seed, options.data, folder)
                    if system in OURS:
                        found = ours(system, seed, folder)
                    else:
                        first = options.out / f"small_texts-{name}-{system}-0.json"
                        chosen = json.loads(first.read_text())["settings"] if first.exists() else None
                        found = peer(system, options.peers, chosen, seed, folder)
                facts = {"set": name, "system": system, "seed": seed}
                told = {"machine": machine("cpu"), "load": os.getloadavg()[0]}
                path.write_text(json.dumps({**facts, **found, **told}, indent=1) + "\n")
                yield {**facts, **found}


def collect(out: Path) -> None:
    """Write the table of all runs."""
    stored = out / "small_texts.json"
    known = json.loads(stored.read_text())["runs"] if stored.exists() else []
    fresh = [json.loads(path.read_text()) for path in sorted(out.glob("small_texts-*-*-*.json"))]
    every = {(one["set"], one["system"], one["seed"]): one for one in [*known, *fresh]}
    rows = []
    for name in SETS:
        for system in SYSTEMS:
            mine = [one for (which, by, _), one in sorted(every.items()) if (which, by) == (name, system)]
            if not mine:
                continue
            accuracy = [one["scores"]["accuracy"] for one in mine]
            row = {
                "set": name,
                "system": system,
                "accuracy": statistics.mean(accuracy),
                "spread": statistics.stdev(accuracy) if len(accuracy) > 1 else None,
                "seeds": len(accuracy),
                "train_seconds": statistics.median(one["train_seconds"] for one in mine),
                "answer_ms": 1000 * statistics.median(one["answer_seconds"] for one in mine),
            }
            rows.append(row)
            print(
                f"{name:<11} {system:<9} {100 * row['accuracy']:6.2f} ± {100 * (row['spread'] or 0):4.2f} "
                f"({row['seeds']} seeds)  {row['train_seconds']:8.2f} s  {row['answer_ms']:7.3f} ms"
            )
    stored.write_text(json.dumps({"table": rows, "runs": [every[key] for key in sorted(every)]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"), help="folder of the data sets")
    parser.add_argument("--peers", type=Path, help="the Python of an environment with scikit-learn and fastText")
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.data is None:
        sys.exit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    if options.peers is None and {"fasttext", "tfidf"} & set(options.systems.split(",")):
        sys.exit("Give --peers PYTHON, or leave the peers out: --systems linear,beside")
    options.out.mkdir(parents=True, exist_ok=True)
    with mistakes_told():
        for one in runs(options):
            print(f"{one['set']} {one['system']} {one['seed']}: {100 * one['scores']['accuracy']:.2f}", flush=True)
    collect(options.out)
    store_hashes(Path(__file__), options.data, options.out)


if __name__ == "__main__":
    main()
