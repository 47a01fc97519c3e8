"""Letters with mistakes to text, on the Penn Treebank: what a lexicon and a language model do for a model that writes.

    python recipes/dictionary.py --data FOLDER [--seeds 0] [--device cuda] [--out FOLDER] [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds ptb. The source is two to six words of which every fifth letter is wrong,
missing or doubled; the target are the words. An encoder–decoder with attention reads and writes letters. The lexicon
and the 3-gram come from the training part. The weights of each search are chosen on chunks of the valid part; the
scores are those of chunks of the test part.
"""

from __future__ import annotations

import random
import re
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import Files, Part, main

from unrolled import Model
from unrolled.metrics.recognition import recognition_scores
from unrolled.search import NGram

DATA = ("ptb/ptb.train.txt", "ptb/ptb.valid.txt", "ptb/ptb.test.txt")
WRITTEN = re.compile(r"[a-z]+")
CHUNKS = {"train": 30_000, "valid": 80, "test": 300}
SEEN = 300  # chunks of the test part that were looked at while the searches were chosen: left out
WEIGHTS = (0.1, 0.25, 0.5)
PENALTIES = (-3.0, -6.0)  # of words outside the lexicon
BEAM = 20


def mistyped(text: str, generator: random.Random, share: float = 0.2) -> str:
    """The text with a share of its letters wrong, missing or doubled.

    >>> mistyped("dog bites man", random.Random(1), share=0.5)
    'zm ytzs kaann'
    """
    found = []
    for letter in text:
        if letter == " " or generator.random() >= share:
            found.append(letter)
        else:
            found.append(generator.choice([generator.choice(string.ascii_lowercase), "", letter * 2]))
    return "".join(found)


def chunks(path: Path, count: int, generator: random.Random) -> list[str]:
    """Runs of two to six words of letters alone."""
    found = []
    for line in path.read_text().splitlines():
        for run in re.split(r"<unk>|\bN\b|[^a-z ]+\S*", line):
            words = [word for word in run.split() if WRITTEN.fullmatch(word)]
            while len(words) > 1:
                size = generator.randint(2, 6)
                found.append(" ".join(words[:size]))
                words = words[size:]
    generator.shuffle(found)
    return [chunk for chunk in found if " " in chunk][:count]


def files(data: Path, work: Path) -> Files:
    generator = random.Random(0)
    for part, count in CHUNKS.items():
        first = SEEN if part == "test" else 0
        texts = chunks(data / "ptb" / f"ptb.{part}.txt", first + count, generator)[first:]
        (work / f"{part}.tsv").write_text("".join(f"{mistyped(text, generator)}\t{text}\n" for text in texts))
    lines = (data / "ptb" / "ptb.train.txt").read_text().splitlines()
    words = {word for line in lines for word in line.split() if WRITTEN.fullmatch(word)}
    (work / "words.txt").write_text("\n".join(sorted(words)) + "\n")
    NGram.train(lines, order=3).save(work / "lm.arpa")
    return work / "train.tsv", work / "test.tsv"


def scores(model: Model, test: Path) -> Mapping[str, Any]:
    """Errors of each search, with the weights that are best on the valid part."""
    words, lm = str(test.parent / "words.txt"), NGram.load(test.parent / "lm.arpa")
    beam: dict[str, Any] = {"beam": BEAM}
    lexicon = {**beam, "lexicon": words}
    ways: dict[str, list[dict[str, Any]]] = {
        "greedy": [{"beam": 1}],
        "beam": [beam],
        "rescored": [{**beam, "rescore": lm, "rescore_weight": weight, "candidates": BEAM} for weight in WEIGHTS],
        "lexicon": [lexicon],
        "lexicon_lm": [{**lexicon, "lm": lm, "lm_weight": weight} for weight in WEIGHTS],
        "open_lm": [
            {**lexicon, "lm": lm, "lm_weight": weight, "unknown_penalty": penalty}
            for weight in WEIGHTS
            for penalty in PENALTIES
        ],
    }
    told: dict[str, Any] = {}
    for name, several in ways.items():
        valid = [errors(model, test.parent / "valid.tsv", one)["wer"] if len(several) > 1 else 0.0 for one in several]
        chosen = several[valid.index(min(valid))]
        began = time.perf_counter()
        found = errors(model, test, chosen)
        told |= {f"{name}_{metric}": value for metric, value in found.items()}
        told[f"{name}_seconds"] = round(time.perf_counter() - began, 2)
        told[f"{name}_penalty"] = chosen.get("unknown_penalty")
        told[f"{name}_weight"] = chosen.get("lm_weight", chosen.get("rescore_weight"))
    return told


def errors(model: Model, file: Path, options: Mapping[str, Any]) -> dict[str, float]:
    pairs: Sequence[list[str]] = [line.split("\t") for line in file.read_text().splitlines()]
    found = model.predict([source for source, _ in pairs], **options)
    return asdict(recognition_scores([one.text for one in found], [target for _, target in pairs]))


PARTS = {
    "typos": Part(
        "words with mistakes in every fifth letter, PTB",
        "translate",
        files,
        {f"{name}_wer": None for name in ("greedy", "beam", "rescored", "lexicon", "lexicon_lm", "open_lm")},
        settings={
            "data.level": "char",
            "model.embedding_size": 32,
            "model.encoder.hidden_size": 128,
            "model.decoder.hidden_size": 128,
            "model.encoder.dropout": 0.1,
            "model.decoder.dropout": 0.1,
            "train.batch_size": 48,
            "train.lr": 3e-3,
            "train.warmup_steps": 100,
            "train.average": 0.99,
            "train.max_steps": 1000,
        },
        scores=scores,
    )
}

if __name__ == "__main__":
    main("dictionary", __doc__, PARTS, seeds="0")
