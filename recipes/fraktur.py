"""Lines of Fraktur print, 1805–1925: character error rate, from the best path to an open lexicon with a language model.

    python recipes/fraktur.py --data FOLDER [--only fraktur] [--seeds 0] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds fraktur_ocr (lines.zip, lines.tsv). Every run writes OUT/fraktur-PART-SEED.json
when it is done, and is not repeated; at the end they become OUT/fraktur.json.

Every tenth training line, 373 of 3725, is held out. These lines choose the weights of the searches; of equal ones, the
most cautious. The lexicon holds the words (split at spaces, with their punctuation) that occur at least twice in the
other lines. The language model is a 2-gram of the same lines, with rarer words as `<unk>`. `fraktur-small` is for two
cores; `fraktur-dev` is scored on the held-out lines, to try settings.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Files, Part, main
from searches import table

from unrolled import Model
from unrolled.data.readers.media.transcripts import tidy
from unrolled.search import Lexicon, NGram
from unrolled.tasks.recognize.search import RecognitionOptions

DATA = ("fraktur_ocr/lines.tsv", "fraktur_ocr/lines.zip")
EVERY = 10
GAINS, WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0), (0.0, 0.1, 0.25, 0.5)  # 0: without it
LARGE: dict[str, Any] = {
    "model.channels": [32, 64, 128],
    "model.strides": [2, 2, 1],
    "model.hidden_size": 256,
    "model.num_layers": 3,
    "model.dropout": 0.4,
    "train.batch_size": 16,
    "train.lr": 2e-3,
    "train.warmup_steps": 500,
    "train.epochs": 20,
    "train.average": 0.999,
    "train.weight_decay": 0.01,
    "train.precision": "bf16",
}
SMALL: dict[str, Any] = {"train.epochs": 30, "train.average": 0.998}


def lines(scored: str) -> Callable[[Path, Path], Files]:
    def files(data: Path, work: Path) -> Files:
        with (data / "fraktur_ocr" / "lines.tsv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        train = [row for row in rows if row["split"] == "train"]
        parts = {
            "train": [row for i, row in enumerate(train) if i % EVERY],
            "dev": train[::EVERY],
            "test": [row for row in rows if row["split"] == "test"],
        }
        archive = (data / "fraktur_ocr" / "lines.zip").absolute()
        for name, some in parts.items():
            text = "".join(f"{archive}/{row['file']}\t{tidy(row['text'])}\n" for row in some)
            (work / f"{name}.tsv").write_text(text, encoding="utf-8")
        return work / "train.tsv", work / f"{scored}.tsv"

    return files


def known_words(options: RecognitionOptions, gain: float) -> RecognitionOptions:
    """Options that favour words of the lexicon by `gain`: half as a bonus for every word, all as the unknown penalty.

    With the penalty alone, two unknown words would be read as one, which pays it once.
    """
    return replace(options, word_bonus=gain / 2, unknown_penalty=-gain)


def all_searches(model: Model, test: Path) -> dict[str, Any]:
    texts = [line.split("\t")[1] for line in (test.parent / "train.tsv").read_text(encoding="utf-8").splitlines()]
    counts = Counter(word for text in texts for word in text.split())
    known = [word for word, count in counts.items() if count > 1]
    lexicon = Lexicon(known, list(model.assets.labels.names), skip_unspellable=True)
    usual = set(known)
    lm = NGram.train([" ".join(w if w in usual else "<unk>" for w in text.split()) for text in texts], order=2)
    words = [known_words(RecognitionOptions(lexicon=lexicon), gain) for gain in GAINS]
    ways = {
        "greedy": [RecognitionOptions()],
        "beam": [RecognitionOptions(beam=100)],
        "open lexicon": words,
        "open lexicon + lm": [replace(one, lm=lm, lm_weight=weight) for weight in WEIGHTS for one in words],
    }
    return table(model, test.parent / "dev.tsv", test, ways, "cer")


BARS = {"greedy_cer": 0.0145, "beam_cer": None, "open_lexicon_cer": None, "open_lexicon_lm_cer": 0.0145}
PUBLISHED = "ocropy's bi-LSTM 1.45 on 397 of the test lines (README: 1.089)"
PARTS = {
    "fraktur": Part(
        "Fraktur lines, CER of 424 test lines", "recognize", lines("test"), BARS, PUBLISHED, LARGE, scores=all_searches
    ),
    "fraktur-small": Part(
        "the same, default network", "recognize", lines("test"), BARS, PUBLISHED, SMALL, scores=all_searches
    ),
    "fraktur-dev": Part("held-out lines", "recognize", lines("dev"), BARS, "", LARGE, scores=all_searches),
}

if __name__ == "__main__":
    main("fraktur", __doc__, PARTS, seeds="0", only="fraktur")
