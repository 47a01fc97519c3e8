"""Chung et al. 2014, Table 2: tanh, GRU and LSTM on polyphonic music; our table beside theirs, and the learning curves.

    python recipes/music.py --data FOLDER                       # all of it, one run after the other
    python recipes/music.py --data FOLDER --only JSB_Chorales-gru-0   # one run; several processes may share the work
    python recipes/music.py --table                             # table and picture of the runs that are there

FOLDER/polymusic holds JSB_Chorales.npz, Nottingham.npz and MuseData.npz (88 keys, Boulanger-Lewandowski's splits). A
run that has a result is not repeated. Nats per time step are summed over the keys and averaged over all steps of all
pieces; the first step of a piece is predicted from a row of zeros. The paper's rolls had 93, 96 and 105 keys.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import mistakes_told

from unrolled import __version__, api
from unrolled.jobs import TrainingJob
from unrolled.recipe_data import store_hashes

DATA = ("polymusic/JSB_Chorales.npz", "polymusic/Nottingham.npz", "polymusic/MuseData.npz")
CELLS: dict[str, dict[str, Any]] = {
    "tanh": {"model.cell": "rnn", "model.hidden_size": 100},
    "gru": {"model.cell": "gru", "model.hidden_size": 46, "model.reset_after": False},
    "lstm": {"model.cell": "lstm", "model.hidden_size": 36, "model.peephole": "current"},
}
PAPER = {
    "JSB_Chorales": {"tanh": 9.10, "gru": 8.54, "lstm": 8.67},
    "Nottingham": {"tanh": 3.13, "gru": 3.23, "lstm": 3.20},
    "MuseData": {"tanh": 6.23, "gru": 5.99, "lstm": 6.23},
}
SETTINGS: dict[str, Any] = {
    "data.start_row": True,
    "data.horizon": 1,
    "model.loss": "bernoulli",
    "model.dropout": 0.0,
    "train.weight_noise": 0.075,
    "train.clip_norm": 1.0,
    "train.optimizer": "adam",
    "train.lr": 2e-3,
    "train.schedule": "plateau",
    "train.plateau_patience": 4,
    "train.patience": 20,
}
LARGE = {"train.batch_size": 16, "train.window": 100, "train.eval_every": 100}
SIZES: dict[str, dict[str, Any]] = {
    "JSB_Chorales": {"train.batch_size": 8, "train.window": 200, "train.eval_every": 50, "train.epochs": 300},
    "Nottingham": {**LARGE, "train.epochs": 200},
    "MuseData": {**LARGE, "train.epochs": 100},
}
GATED_LR = 5e-3  # of GRU and LSTM on the two large sets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("UNROLLED_DATA", ".")))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--work", type=Path, default=Path("runs/music"), help="where the runs are kept")
    parser.add_argument("--only", nargs="+", default=[""], help="runs whose names begin so: DATA-CELL-SEED")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for trials; not for the table")
    parser.add_argument("--table", action="store_true", help="train nothing")
    options = parser.parse_args()
    names = [f"{data}-{cell}-{seed}" for data in PAPER for cell in CELLS for seed in options.seeds]
    if not options.table:
        for name in names:
            if name.startswith(tuple(options.only)):
                run(name, options)
    results = [json.loads(path.read_text()) for name in names if (path := result_of(options.work, name)).exists()]
    if not results:
        sys.exit("There is no result yet.")
    print(table(results))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "music.json").write_text(json.dumps(summary(results), indent=1) + "\n")
    store_hashes(Path(__file__), options.data, options.out)
    draw(results, options.work, options.out / "music.png")


def result_of(work: Path, name: str) -> Path:
    return work / f"{name}.json"


def run(name: str, options: argparse.Namespace) -> None:
    """Train one model and write its scores, unless they exist."""
    path = result_of(options.work, name)
    if path.exists():
        return
    data, cell, seed = name.split("-")
    files = prepare(options.data / "polymusic" / f"{data}.npz", options.work / "data" / data)
    overrides = [f"{key}={value}" for key, value in changes(data, cell, int(seed), options.device).items()]
    began = time.perf_counter()
    config = api.configure(
        "forecast", [*overrides, *options.set], {"data.train": str(files["train"]), "data.valid": str(files["valid"])}
    )
    model = TrainingJob(config).run(options.work / name, quiet=True)
    seconds = time.perf_counter() - began
    scores = {part: model.evaluate(file)["nll"] for part, file in files.items() if part != "train"}
    result = {
        "name": name,
        "parameters": model.num_parameters,
        **scores,
        "seconds": round(seconds, 1),
        "device": str(model.device),
        "settings": dict(item.split("=", 1) for item in [*overrides, *options.set]),
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{name:<22} valid {scores['valid']:.3f}  test {scores['test']:.3f}  {seconds:.0f} s", flush=True)


def changes(data: str, cell: str, seed: int, device: str) -> dict[str, Any]:
    made = {**SETTINGS, **SIZES[data], **CELLS[cell], "train.seed": seed, "train.device": device}
    return {**made, "train.lr": GATED_LR} if cell != "tanh" and data != "JSB_Chorales" else made


def prepare(source: Path, folder: Path) -> dict[str, Path]:
    """The splits as npz files of `inputs` and `lengths`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    with np.load(source) as arrays:
        for part in ("train", "valid", "test"):
            files[part] = folder / f"{part}.npz"
            rolls = np.unpackbits(arrays[f"{part}_rolls"], axis=1)[:, :88]
            beside = folder / f"{part}.{os.getpid()}.npz"
            np.savez_compressed(beside, inputs=rolls, lengths=arrays[f"{part}_lengths"].astype(np.int64))
            beside.replace(files[part])
    return files


def means(results: list[dict[str, Any]]) -> dict[tuple[str, str], list[float]]:
    """Test scores of all seeds by data set and cell."""
    found: dict[tuple[str, str], list[float]] = {}
    for result in results:
        data, cell, _ = result["name"].split("-")
        found.setdefault((data, cell), []).append(result["test"])
    return found


def table(results: list[dict[str, Any]]) -> str:
    """Nats per step on the test pieces: mean ± deviation over seeds, and the paper's."""
    found = means(results)
    lines = [f"{'test, nats per step':<20}" + "".join(f"{cell:>32}" for cell in CELLS)]
    for data, paper in PAPER.items():
        line = f"{data:<20}"
        for cell in CELLS:
            scores = found.get((data, cell), [])
            spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
            ours = f"{statistics.mean(scores):.2f} ± {spread:.2f} ({len(scores)})" if scores else "–"
            line += f"{ours + f'  paper {paper[cell]:.2f}':>32}"
        lines.append(line)
    return "\n".join(lines)


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "command": "python recipes/music.py --data FOLDER",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "unrolled": __version__,
        "paper": PAPER,
        "means": {f"{data}-{cell}": statistics.mean(scores) for (data, cell), scores in means(results).items()},
        "runs": results,
    }


def draw(results: list[dict[str, Any]], work: Path, path: Path) -> None:
    """Validation nats per step over the updates, a panel for each data set, a line for each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = dict(zip(PAPER, figure.subplots(1, len(PAPER)), strict=True))
    colors = dict(zip(CELLS, ("tab:gray", "tab:blue", "tab:red"), strict=True))
    for result in results:
        data, cell, _ = result["name"].split("-")
        metrics = work / result["name"] / "metrics.jsonl"
        rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
        panels[data].plot([row["step"] for row in rows], [row["nll"] for row in rows], color=colors[cell], lw=0.9)
    for data, panel in panels.items():
        panel.set_title(data)
        panel.set_xlabel("updates")
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.grid(alpha=0.3, which="both")
    first = next(iter(panels.values()))
    first.set_ylabel("validation, nats per step")
    for cell, color in colors.items():
        first.plot([], [], color=color, label=cell)
    first.legend()
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    with mistakes_told():
        main()
