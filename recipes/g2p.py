"""Letters to phonemes in six languages: SIGMORPHON 2021, one single model for each, beside the task's own ensemble.

    python recipes/g2p.py --data FOLDER [--only hun,kor] [--seeds 0] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds sigmorphon2021_g2p (LANGUAGE_train.tsv, LANGUAGE_dev.tsv). Every run writes
OUT/g2p-LANGUAGE-SEED.json when it is done, and is not made again. At the end the runs become a table and OUT/g2p.json.

The score is the share of words that are right; the word error rate is what is missing to 1. Nothing is chosen by the
scored words: there is one evaluation, after the last update. To choose settings, hold out a part of train:

    python recipes/g2p.py --only hun-tune,kor-tune --set model.encoder.dropout=0.5
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Files, Part, main

from unrolled.data import held_out

BASELINE = {"eng_us": 45.1, "fre": 7.4, "dut": 10.8, "hun": 1.5, "kor": 18.4, "bul": 8.3}  # word error rates, dev
SETTINGS: dict[str, Any] = {
    "data.source.level": "char",
    "data.target.level": "symbols",
    "model.encoder.num_layers": 2,
    "model.encoder.hidden_size": 256,
    "model.decoder.hidden_size": 512,
    "model.encoder.dropout": 0.4,
    "model.decoder.dropout": 0.4,
    "train.batch_size": 64,
    "train.lr": 2e-3,
    "train.epochs": 40,
    "train.average": 0.998,
}


def scored(language: str) -> Callable[[Path, Path], Files]:
    """The task's own files."""

    def files(data: Path, work: Path) -> Files:
        folder = data / "sigmorphon2021_g2p"
        return folder / f"{language}_train.tsv", folder / f"{language}_dev.tsv"

    return files


def held(language: str) -> Callable[[Path, Path], Files]:
    """A tenth of the training words, in place of dev."""

    def files(data: Path, work: Path) -> Files:
        lines = (data / "sigmorphon2021_g2p" / f"{language}_train.tsv").read_text().splitlines()
        parts = held_out([line.split("\t")[0] for line in lines], 0.1)
        paths = work / "train.tsv", work / "test.tsv"
        for path, rows in zip(paths, parts, strict=True):
            path.write_text("".join(lines[row] + "\n" for row in rows))
        return paths

    return files


def settings(language: str) -> dict[str, Any]:
    return {**SETTINGS, "train.epochs": 16} if language == "eng_us" else SETTINGS  # four times as many words


def part(language: str) -> Part:
    wrong = BASELINE[language]
    published = f"the task's ensemble: {100 - wrong:.1f}"
    about = f"{language}, words right on dev"
    return Part(about, "translate", scored(language), {"exact_match": 1 - 0.011 * wrong}, published, settings(language))


PARTS = {language: part(language) for language in BASELINE} | {
    f"{language}-tune": Part(
        f"{language}, a tenth of train held out",
        "translate",
        held(language),
        {"exact_match": None},
        settings=settings(language),
    )
    for language in BASELINE
}

if __name__ == "__main__":
    main("g2p", __doc__, PARTS, seeds="0", only=",".join(BASELINE))
