"""The scores that 16-bit and 8-bit weights of an exported model cost, on test files of every task.

    python benchmarks/smaller_weights.py --data FOLDER [--steps 300] [--only tag] [--out results/smaller_weights.json]

Networks of the default sizes with short trainings, which end with the update that is named: the question is not how
good they are. FOLDER has the sets of data that the cases name. `caption` and `forecast` use data that come along.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measure import RESULTS, machine
from PIL import Image

import unrolled
from unrolled.data.demo.glyphs import embedded_glyphs
from unrolled.data.readers.series.read_series import embedded_series
from unrolled.text.files import opened

WEIGHTS = ("fp32", "fp16", "int8")
Files = tuple[Path, Path, dict[str, Any]]


def lines_of(path: Path) -> list[str]:
    with opened(path, "data") as file:
        return file.read().decode().splitlines(keepends=True)


def written(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(lines))
    return path


def trec(data: Path, place: Path) -> Files:
    return data / "trec/train.tsv", data / "trec/test.tsv", {"data.label_column": "1", "data.text_column": "3"}


def words(data: Path, place: Path) -> Files:
    folder = data / "ud_english_ewt"
    train = written(place / "train.conllu", lines_of(folder / "en_ewt-ud-train.conllu.gz"))
    return train, folder / "en_ewt-ud-dev.conllu", {}


def shakespeare(data: Path, place: Path) -> Files:
    text = (data / "tinyshakespeare/input.txt").read_text()
    return written(place / "train.txt", text[:-20_000]), written(place / "test.txt", text[-20_000:]), {}


def phonemes(data: Path, place: Path) -> Files:
    folder = data / "sigmorphon2021_g2p"
    test = written(place / "test.tsv", lines_of(folder / "hun_dev.tsv")[:300])
    return folder / "hun_train.tsv", test, {"data.target.level": "symbols"}


def digits(data: Path, place: Path) -> Files:
    zipfile.ZipFile(data / "fsdd/recordings.zip").extractall(place)
    files = {path.name: path for path in place.rglob("*.wav")}
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for line in lines_of(data / "fsdd/manifest.tsv")[1:]:
        name, digit, _, _, split, _ = line.rstrip("\n").split("\t")
        parts[split].append(f"{files[name]}\t{names[int(digit)]}\n")
    train, test = (written(place / f"{split}.tsv", lines) for split, lines in parts.items())
    return train, test, {"data.kind": "audio"}


def letters(data: Path, place: Path) -> Files:
    lines = []
    for number, glyph in enumerate(embedded_glyphs()):
        assert glyph.view.values is not None
        Image.fromarray(glyph.view.values).save(place / f"{number}.png")
        lines += [f"{number}.png\t{text}\n" for text in glyph.captions]
    return written(place / "train.tsv", lines[::2]), written(place / "test.tsv", lines[1::2][:200]), {}


def waves(data: Path, place: Path) -> Files:
    sheet = embedded_series()
    rows = [f"{','.join(map(str, row))}\n" for one in sheet.series for row in one.values.tolist()]
    head, cut = f"{','.join(sheet.columns)}\n", len(rows) * 4 // 5
    return written(place / "train.csv", [head, *rows[:cut]]), written(place / "test.csv", [head, *rows[cut:]]), {}


# files, the scores to show, and how many times the usual number of updates
CASES: dict[str, tuple[Callable[[Path, Path], Files], Sequence[str], float]] = {
    "classify": (trec, ("accuracy", "nll"), 1),
    "tag": (words, ("accuracy",), 1),
    "generate": (shakespeare, ("perplexity",), 2),
    "translate": (phonemes, ("phone_error_rate", "exact_match"), 2),
    "recognize": (digits, ("cer", "exact_match"), 1),
    "caption": (letters, ("bleu4", "chrf"), 1),
    "forecast": (waves, ("mse", "skill"), 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="", help="tasks to leave out: classify,tag")
    parser.add_argument("--out", type=Path, default=RESULTS / "smaller_weights.json")
    given = parser.parse_args()
    facts = {**machine(), "seed": 1, "updates": given.steps}
    found = json.loads(given.out.read_text())["details"] if given.out.exists() else []
    for task in CASES:
        if given.only in task and task not in given.skip.split(","):
            with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                one = {**measured(task, given.data, Path(place), given.steps), "commit": facts["commit"]}
            print(json.dumps(one), flush=True)
            found = [*(other for other in found if other["task"] != task), one]
            given.out.write_text(json.dumps({"machine": facts, "details": found}, indent=1) + "\n")
    print("\n".join(itertools.chain.from_iterable(map(table_of, found))))


def measured(task: str, data: Path, place: Path, steps: int) -> dict[str, Any]:
    """The scores of the model file and of its exports, and the sizes of their graphs."""
    files, shown, more = CASES[task]
    (place / "files").mkdir()
    train, test, settings = files(data, place / "files")
    settings |= {"train.max_steps": int(steps * more), "train.seed": 1}
    model = unrolled.train(task, train=train, out=place / "run", set=settings, quiet=True)
    result: dict[str, Any] = {"task": task, "parameters": model.num_parameters, "updates": settings["train.max_steps"]}
    for weights in WEIGHTS:
        done = unrolled.export_onnx(model, place / weights, weights=weights, check=False, score_on=test)
        result["model file"] = {name: done.scores[name].model for name in shown if name in done.scores}
        result[weights] = {name: done.scores[name].exported for name in shown if name in done.scores}
        result[f"{weights}, MB"] = sum(done.sizes.values()) / 1e6
    return result


def table_of(one: dict[str, Any]) -> list[str]:
    """Lines of a table in Markdown."""
    sizes = ", ".join(f"{one[f'{weights}, MB']:.2f}" for weights in WEIGHTS)
    return [
        f"| {one['task']} | {name} | {one['model file'][name]:.4f} | "
        + " | ".join(f"{one[weights][name]:.4f}" for weights in WEIGHTS)
        + f" | {sizes} |"
        for name in one["model file"]
    ]


if __name__ == "__main__":
    main()
