"""Letters to phonemes, trained also on dictionary words with the readings of other models.

    python recipes/g2p_taught.py --data FOLDER [--only fre,hun,bul] [--seeds 0] [--device cuda] [--out FOLDER]
    python recipes/g2p_taught.py --data FOLDER --teach fre:few:100 [--device cuda]

FOLDER is that of g2p.py. The words are those of simplemma's dictionaries (`pip install simplemma`): 40,000 that are in
none of the task's files, with the same share of headwords as the training words. Eight models (TEACHERS), trained with
the methods of g2p.py, read these words. Teachers agree on a word if the mean probability of one reading is at least a
half. One more model learns the agreed words, and the training words, which count four times each. No model trains on
dev words, with or without phonemes. LANGUAGE-tune does the same with held-out stems of the training words.

The readings of a teacher are kept in the cache ($UNROLLED_CACHE, or ~/.cache/unrolled), so teachers can run beforehand,
side by side (--teach); missing ones run when they are needed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import LAST_ONLY, Files, Part, main, mistakes_told
from g2p import BASELINE, CTC, GAP, WAYS, Row, Rows, Way, held, letter_frames, places_of, scored, shown, with_beam

from unrolled import Model, UserError, api
from unrolled.config import fitting
from unrolled.jobs import TrainingJob
from unrolled.kernels.cuda.compiler import cache_folder
from unrolled.tasks import TASKS

DATA = (
    "sigmorphon2021_g2p/fre_train.tsv",
    "sigmorphon2021_g2p/fre_dev.tsv",
    "sigmorphon2021_g2p/hun_train.tsv",
    "sigmorphon2021_g2p/hun_dev.tsv",
    "sigmorphon2021_g2p/bul_train.tsv",
    "sigmorphon2021_g2p/bul_dev.tsv",
)
CODES = {"fre": "fr", "hun": "hu", "bul": "bg"}  # of simplemma's dictionaries
WORDS = 40_000
TEACHERS = [
    *(("few", seed) for seed in range(100, 104)),
    *((way, seed) for way in ("ctc-pairs", "more-pairs") for seed in (100, 101)),
]
TIMES = 4  # weight of a training word
AGREED = 0.5
TAUGHT: dict[str, Any] = {
    **CTC,
    "model.hidden_size": 192,
    "model.dropout": 0.3,
    "train.batch_size": 64,
    "train.epochs": 10,
}


def other_words(language: str, train: Rows, apart: set[str]) -> list[str]:
    """Dictionary words in the letters of the training words, with the same share of headwords."""
    try:
        from simplemma.strategies.dictionaries import DefaultDictionaryFactory
    except ImportError as error:
        raise UserError("The words come from simplemma.", "pip install simplemma") from error

    dictionary = DefaultDictionaryFactory().get_dictionary(CODES[language])
    learnt = {word for word, _ in train}
    letters = {letter for word in learnt for letter in word}
    headwords = set(dictionary.values())
    share = sum(word in headwords for word in learnt) / len(learnt)
    fit = sorted(w for w in {*dictionary, *headwords} if len(w) > 1 and letters.issuperset(w) and w not in apart)
    draw = random.Random(0)
    drawn = []
    for wanted, among in ((share, True), (1 - share, False)):
        chosen = [word for word in fit if (word in headwords) == among]
        drawn += draw.sample(chosen, min(len(chosen), round(wanted * WORDS)))
    return sorted(drawn)


def split(language: str, tune: bool, data: Path) -> tuple[Rows, Rows, list[str]]:
    """Rows to train on and to score, and the words outside both and outside the task's files."""
    both: list[Rows] = []

    def keep(train: Rows, test: Rows, work: Path) -> Files:
        both.extend((train, test))
        return work, work

    (held if tune else scored)(language, Way("recognize", {}, keep))(data, Path())
    train, test = both
    folder = data / "sigmorphon2021_g2p"
    task = {line.split("\t")[0] for part in ("train", "dev") for line in (folder / f"{language}_{part}.tsv").open()}
    return train, test, other_words(language, train, task)


def told_in(language: str, tune: bool, way: str, seed: int) -> Path:
    return cache_folder() / "g2p" / f"{language}{'-tune' * tune}-{way}-{seed}.tsv"


def teach(language: str, tune: bool, name: str, seed: int, data: Path, device: str) -> Path:
    """Train a teacher and write its readings: each word with its three best readings and their probabilities."""
    path = told_in(language, tune, name, seed)
    if path.exists():
        return path
    way = WAYS[name]
    train, test, words = split(language, tune, data)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        learnt, last = way.files(train, test, work)
        settings = {**LAST_ONLY, **way.settings, "train.seed": seed, "train.device": device}
        files = {"data.train": str(learnt), "data.valid": str(last)}
        keys = fitting(TASKS[way.task]().config_class, settings | files)  # ways share settings
        model = TrainingJob(api.configure(way.task, [], keys)).run(work / "run", quiet=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    gap = [GAP] if name == "ctc-pairs" else []  # a letter too where pairs are read
    unfinished.write_text("".join(said(model, words, places_of([*(word for word, _ in train), *gap]))))
    return unfinished.replace(path)


def said(model: Model, words: Sequence[str], places: Mapping[str, int]) -> list[str]:
    frames = model.task.name == "recognize"
    lines = []
    for first in range(0, len(words), 2000):
        some = words[first : first + 2000]
        answers = model.predict([shown(word, places) for word in some] if frames else some, beam=8, n_best=3)
        for word, best in zip(some, answers, strict=True):
            readings = [(one.text, math.exp(one.score if frames else one.log_prob)) for one in (best, *best.others)]
            lines.append("\t".join([word, *(f"{text}\t{share:.4f}" for text, share in readings)]) + "\n")
    return lines


def agreed(told: Sequence[Sequence[str]]) -> list[Row]:
    """The words on which the teachers agree, with their reading.

    >>> agreed([["ab\\tA B\\t0.9\\tA P\\t0.1", "ob\\tO B\\t0.6"], ["ab\\tA P\\t0.4\\tA B\\t0.3", "ob\\tO P\\t0.8"]])
    [('ab', 'A B')]
    """
    rows = []
    for lines in zip(*told, strict=True):
        votes: dict[str, float] = defaultdict(float)
        word = lines[0].split("\t")[0]
        for line in lines:
            same, *readings = line.split("\t")
            if same != word:
                raise UserError(
                    "Teachers were asked for other words.", f"Delete {cache_folder() / 'g2p'} and run them again."
                )
            for text, share in zip(readings[::2], readings[1::2], strict=True):
                votes[text] += float(share) / len(told)
        best = max(votes, key=votes.__getitem__)
        if best and votes[best] >= AGREED:
            rows.append((word, best))
    return rows


def taught(language: str, tune: bool, device: str) -> Callable[[Path, Path], Files]:
    def files(data: Path, work: Path) -> Files:
        told = [teach(language, tune, way, seed, data, device) for way, seed in TEACHERS]
        train, test, _ = split(language, tune, data)
        more = agreed([path.read_text().splitlines() for path in told])
        return letter_frames([*(row for _ in range(TIMES) for row in train), *more], test, work)

    return files


def parts(device: str) -> Mapping[str, Part]:
    return {
        language + "-tune" * tune: Part(
            f"{language}, taught, " + ("stems of train held out" if tune else "words right on dev"),
            "recognize",
            taught(language, tune, device),
            {"exact_match": None if tune else 1 - 0.011 * BASELINE[language]},
            "" if tune else f"the task's ensemble: {100 - BASELINE[language]:.1f}",
            TAUGHT,
            scores=with_beam,
        )
        for tune in (False, True)
        for language in CODES
    }


def begin() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--teach", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"))
    given, _ = parser.parse_known_args()
    if not given.teach:
        main("g2p_taught", __doc__ or "", parts(given.device), seeds="0", only=",".join(CODES))
        return
    language, way, seed = (*given.teach.split(":"), "", "")[:3]
    known = language.removesuffix("-tune") in CODES and way in WAYS and seed.isdecimal()
    if not known:
        sys.exit(f"--teach {given.teach}: expected LANGUAGE:WAY:SEED, as fre:few:100, or fre-tune:few:100.")
    if given.data is None:
        sys.exit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    with mistakes_told():
        tune = language.endswith("-tune")
        print(teach(language.removesuffix("-tune"), tune, way, int(seed), given.data, given.device))


if __name__ == "__main__":
    begin()
