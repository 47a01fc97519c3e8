"""Numbers spoken digit by digit: word error rate, from the best path to a lexicon with a language model.

    python recipes/digits.py --data FOLDER [--only fsdd,…] [--seeds 0] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds fsdd (recordings.zip, manifest.tsv). Two to seven recordings of one speaker are
joined with random gaps, from a seed; the target is spelled out: `three five one`. Recordings 0–4 of each digit and
speaker are the official test, 5–9 are held out to choose the weights of the searches, and the others are for training.
`fsdd-SPEAKER` leaves that speaker out of training and is scored on all of his recordings. Every run writes
OUT/digits-PART-SEED.json when it is done, and is not repeated; at the end they become OUT/digits.json.

In training all digits are equally likely. The scored numbers follow a rule that a language model can learn: in nine
cases of ten each digit is followed by one of three. The model, a 3-gram, learns it from 5,000 other numbers.
"""

from __future__ import annotations

import csv
import io
import wave
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from common import Files, Part, main
from numpy.typing import NDArray
from searches import grid, table

from unrolled import Model
from unrolled.search import Lexicon, NGram
from unrolled.tasks.recognize.search import RecognitionOptions

DATA = ("fsdd/manifest.tsv", "fsdd/recordings.zip")
SPEAKERS = ("george", "jackson", "nicolas", "yweweler")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
STRINGS = {"train": 6000, "dev": 300, "test": 800}
SETTINGS: dict[str, Any] = {
    "data.bands": 40,
    "model.hidden_size": 160,
    "model.dropout": 0.4,
    "train.spectrum.speed": 0.2,
    "train.spectrum.pitch": 0.15,
    "train.batch_size": 32,
    "train.epochs": 25,
    "train.average": 0.998,
}
Samples = NDArray[np.int16]


def strings(unheard: str | None = None) -> Callable[[Path, Path], Files]:
    """Manifests of joined recordings: the official split, or one speaker alone against all others."""

    def files(data: Path, work: Path) -> Files:
        recordings = read(data)
        parts: dict[str, dict[tuple[str, int], list[Samples]]] = {"train": {}, "dev": {}, "test": {}}
        for (speaker, digit, index), samples in recordings.items():
            part = "test" if index < 5 else "dev" if index < 10 else "train"
            if unheard is not None:
                part = "test" if speaker == unheard else "dev" if index < 10 else "train"
            parts[part].setdefault((speaker, digit), []).append(samples)
        for number, (name, spoken) in enumerate(parts.items()):
            write(work, name, spoken, np.random.default_rng((0, number)))
        return work / "train.tsv", work / "test.tsv"

    return files


def read(data: Path) -> dict[tuple[str, int, int], Samples]:
    """Recordings by speaker, digit and index."""
    found = {}
    with zipfile.ZipFile(data / "fsdd" / "recordings.zip") as archive:
        for row in csv.DictReader((data / "fsdd" / "manifest.tsv").open(), delimiter="\t"):
            with wave.open(io.BytesIO(archive.read(row["file"]))) as file:
                samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
            found[row["speaker"], int(row["digit"]), int(row["index"])] = samples
    return found


def write(work: Path, name: str, spoken: dict[tuple[str, int], list[Samples]], random: np.random.Generator) -> None:
    """Write a manifest and an archive of joined recordings."""
    speakers = sorted({speaker for speaker, _ in spoken})
    lines = []
    with zipfile.ZipFile(work / f"{name}.zip", "w") as archive:
        for number in range(STRINGS[name]):
            digits = drawn(random, by_rule=name != "train")
            speaker = speakers[number % len(speakers)]
            pieces = [gap(random)]
            for digit in digits:
                choices = spoken[speaker, digit]
                pieces += [choices[random.integers(len(choices))], gap(random)]
            file = io.BytesIO()
            soundfile.write(file, np.concatenate(pieces), RATE, format="FLAC")
            archive.writestr(f"{number}.flac", file.getvalue())
            lines.append(f"{name}.zip/{number}.flac\t{spelt(digits)}\n")
    (work / f"{name}.tsv").write_text("".join(lines))


def gap(random: np.random.Generator) -> Samples:
    """Up to 0.4 seconds of near silence."""
    return random.normal(0, 5, random.integers(RATE // 20, 2 * RATE // 5)).astype(np.int16)


def drawn(random: np.random.Generator, by_rule: bool) -> list[int]:
    """Two to seven digits; by rule d is followed by 3 d + 1, 3 d + 4 or 3 d + 8 (mod 10) in nine cases of ten."""
    digits = [int(random.integers(10))]
    for _ in range(int(random.integers(1, 7))):
        follower = (3 * digits[-1] + int(random.choice([1, 4, 8]))) % 10
        digits.append(follower if by_rule and random.random() < 0.9 else int(random.integers(10)))
    return digits


def spelt(digits: Sequence[int]) -> str:
    return " ".join(WORDS[digit] for digit in digits)


def all_searches(model: Model, test: Path) -> dict[str, Any]:
    lexicon = Lexicon(list(WORDS), list(model.assets.labels.names))
    random = np.random.default_rng((0, 9))
    lm = NGram.train([spelt(drawn(random, by_rule=True)) for _ in range(5000)], order=3)
    bonuses = (-4.0, -2.0, 0.0, 2.0, 4.0)
    ways = {
        "greedy": [RecognitionOptions()],
        "beam": [RecognitionOptions(beam=100)],
        "lexicon": grid(RecognitionOptions(lexicon=lexicon), word_bonus=bonuses),
        "lexicon + lm": grid(
            RecognitionOptions(lexicon=lexicon, lm=lm), lm_weight=(0.3, 0.6, 1.0, 1.5, 2.0), word_bonus=bonuses
        ),
    }
    return table(model, test.parent / "dev.tsv", test, ways, "wer")


BARS = {"greedy_wer": None, "beam_wer": None, "lexicon_wer": None, "lexicon_lm_wer": 0.02}
PARTS = {
    "fsdd": Part(
        "strings of spoken digits, official test recordings",
        "recognize",
        strings(),
        BARS,
        "No agreed number",
        SETTINGS,
        scores=all_searches,
    ),
    **{
        f"fsdd-{speaker}": Part(
            f"strings of spoken digits, {speaker} unheard",
            "recognize",
            strings(speaker),
            dict.fromkeys(BARS),
            "",
            SETTINGS,
            scores=all_searches,
        )
        for speaker in SPEAKERS
    },
}

if __name__ == "__main__":
    main("digits", __doc__, PARTS, seeds="0")
