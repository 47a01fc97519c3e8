"""Trials on polyphonic music: what size, noise, optimizer, windows and updates change, one GRU and one seed each.

    python recipes/music_trials.py --data FOLDER --device cpu                     # all trials of both data sets
    python recipes/music_trials.py --data FOLDER --device cpu --only MuseData     # of one data set
    python recipes/music_trials.py --data FOLDER --device cpu --only "MuseData none" "MuseData 100 units"

Every trial is a run of `music.py` with a few settings changed. Short trials share a number of updates; long ones stop
early, by the validation pieces. Compare trials by `valid`; the test pieces choose nothing. Long trials are also scored
in the ways of `music_protocols.py`. A trial that has a result is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from common import machine, mistakes_told
from music import prepare, result_of, run
from music_protocols import pieces_of, ways

import unrolled
from unrolled.recipe_data import store_hashes

DATA = ("polymusic/Nottingham.npz", "polymusic/MuseData.npz")
SHORT_RUNS = {
    "Nottingham": ["train.max_steps=2500", "train.eval_every=250", "train.plateau_patience=1"],
    "MuseData": ["train.max_steps=1000", "train.eval_every=250", "train.plateau_patience=1"],
}
SHORT = {
    "none": [],
    "clip norm 5": ["train.clip_norm=5"],
    "no weight noise": ["train.weight_noise=0"],
    "no weight noise, dropout 0.3": ["train.weight_noise=0", "model.dropout=0.3"],
    "RMSProp 0.003": ["train.optimizer=rmsprop", "train.lr=0.003"],
    "RMSProp 0.001": ["train.optimizer=rmsprop", "train.lr=0.001"],
    "RMSProp 0.0003": ["train.optimizer=rmsprop", "train.lr=0.0003"],
    "one piece at a time, windows of 400 steps": ["train.batch_size=1", "train.window=400"],
    "windows of 200 steps": ["train.window=200"],
    "100 units": ["model.hidden_size=100"],
    "200 units": ["model.hidden_size=200"],
}
LONG = {
    "Nottingham": {
        "100 units, long": [
            *("train.max_steps=10000", "train.eval_every=500", "train.patience=5"),
            "model.hidden_size=100",
        ]
    },
    "MuseData": {
        "100 units, long": [
            *("train.max_steps=4500", "train.eval_every=300", "train.patience=5", "train.plateau_patience=1"),
            "model.hidden_size=100",
        ],
        "200 units, dropout 0.3, long": [
            *("train.max_steps=6000", "train.eval_every=300", "train.patience=5", "train.plateau_patience=1"),
            *("model.hidden_size=200", "model.dropout=0.3"),
        ],
    },
}
CELL = "gru-0"


def trials() -> dict[str, list[str]]:
    """The settings of every trial, by name.

    >>> trials()["MuseData clip norm 5"][-1]
    'train.clip_norm=5'
    """
    short = {f"{data} {name}": [*base, *change] for data, base in SHORT_RUNS.items() for name, change in SHORT.items()}
    long = {f"{data} {name}": change for data, changes in LONG.items() for name, change in changes.items()}
    return short | long


def trial(name: str, settings: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Train one trial, unless it has a result, and score it."""
    data = name.split()[0]
    work = options.work / name.replace(" ", "-")
    work.mkdir(parents=True, exist_ok=True)
    run(f"{data}-{CELL}", argparse.Namespace(data=options.data, device=options.device, work=work, set=settings))
    found = json.loads(result_of(work, f"{data}-{CELL}").read_text())
    scores = {"valid": round(found["valid"], 3), "test": round(found["test"], 3), "seconds": found["seconds"]}
    if name.endswith("long"):
        files = prepare(options.data / "polymusic" / f"{data}.npz", work / "data" / data)
        scores["ways"] = ways(unrolled.load(work / f"{data}-{CELL}"), pieces_of(files["test"]))
    return {"parameters": found["parameters"], **scores, "set": settings}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("UNROLLED_DATA", ".")))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="+", default=[""], help="trials whose names begin so: DATA CHANGE")
    parser.add_argument("--work", type=Path, default=Path("runs/music-trials"), help="where the runs are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    path = options.out / "music_trials.json"
    options.out.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text())["trials"] if path.exists() else {}
    for name, settings in trials().items():
        if name.startswith(tuple(options.only)):
            found[name] = trial(name, settings, options)
            print(name, json.dumps(found[name]), flush=True)
            facts = {"command": "python recipes/music_trials.py --data FOLDER --device cpu", "machine": machine("cpu")}
            path.write_text(json.dumps({**facts, "seed": 0, "cell": "gru", "trials": found}, indent=1) + "\n")
    store_hashes(Path(__file__), options.data, options.out)


if __name__ == "__main__":
    with mistakes_told():
        main()
