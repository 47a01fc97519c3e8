"""Questions, opinions, names and spoken digits: scores of published classifiers, reproduced.

    python recipes/classification.py --data FOLDER [--only trec,sst2] [--seeds 0,1,2,3,4] [--device cpu] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds trec, sst2, sst_trees, names, fsdd and glove. Every run writes
OUT/classification-PART-SEED.json when it is done, and is not repeated: several processes can share the work with --only
and --seeds. At the end all existing runs become a table and OUT/classification.json.

Settings were chosen on slices of the training data; the scored examples are read once, after the last update.

TREC and SST-2 use the published sets. TREC-6 is read off the same model as TREC-50.

SST-2 trains on the labelled phrases of the training trees (without neutral ones) and is scored on the 872 sentences of
its dev set.

Names: duplicates removed, a fixed 15 % held out.

FSDD: recordings 0–4 of each digit and speaker are the official test. `fsdd-SPEAKER` leaves that speaker out of
training; `fsdd-tune-5` holds out ten training recordings of each, to try settings. The spectrogram has 40 mel bands and
their slopes, 100 frames a second. Each training recording occurs 25 times, 24 of them at another speed and pitch, with
noise and gaps.
"""

from __future__ import annotations

import csv
import io
import wave
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from common import Files, Part, main
from numpy.typing import NDArray

from unrolled import Model
from unrolled.data import held_out
from unrolled.data.signals.augment import SpectrumChanges, changed_spectrum, masked_spectrum
from unrolled.data.signals.log_mel import LogMel, with_deltas

DATA = (
    "trec/train.tsv",
    "trec/test.tsv",
    "sst_trees/train.txt",
    "sst2/dev.tsv",
    "names/*.txt",
    "fsdd/manifest.tsv",
    "fsdd/recordings.zip",
    "glove/glove.6B.100d.subset.npz",
    "glove/words.txt",
)
SPEAKERS = ("george", "jackson", "nicolas", "yweweler")
BANDS = 40
COPIES, CHANGES = 24, SpectrumChanges(speed=0.2, pitch=0.15)  # of each training recording


def write_tsv(path: Path, rows: Iterable[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    return path


def trec(data: Path, work: Path) -> Files:
    """coarse TAB fine TAB question → coarse:fine TAB question."""
    made = []
    for part in ("train", "test"):
        rows = [line.split("\t") for line in (data / "trec" / f"{part}.tsv").read_text().splitlines()]
        made.append(write_tsv(work / f"{part}.tsv", ((f"{c}:{f}", text) for c, f, text in rows)))
    return made[0], made[1]


def trec_scores(model: Model, test: Path) -> dict[str, float]:
    """Scores of the 50 fine classes and the 6 coarse ones; a coarse class sums the probabilities of its fine ones."""
    labels, questions = zip(*(line.split("\t") for line in test.read_text().splitlines()), strict=True)
    coarse = []
    for label, answer in zip(labels, model.predict(list(questions)), strict=True):
        sums: dict[str, float] = {}
        for name, probability in answer.probabilities.items():
            sums[name.split(":")[0]] = sums.get(name.split(":")[0], 0.0) + probability
        coarse.append(max(sums, key=sums.__getitem__) == label.split(":")[0])
    return {"trec6": sum(coarse) / len(coarse), "trec50": float(model.evaluate(test)["accuracy"])}


def sst2(data: Path, work: Path) -> Files:
    """All labelled phrases of the training trees, each once; labels 0 and 1 are negative, 3 and 4 positive."""
    phrases: dict[str, str] = {}
    for line in (data / "sst_trees" / "train.txt").read_text().splitlines():
        for label, words in tree_phrases(line):
            if label != 2:
                phrases[" ".join(words).lower()] = str(int(label > 2))
    dev = data / "sst2" / "dev.tsv"
    for line in dev.read_text().splitlines():  # no dev sentence is a training phrase
        phrases.pop(line.split("\t")[1].strip().lower(), None)
    return write_tsv(work / "train.tsv", ((label, phrase) for phrase, label in phrases.items())), dev


def tree_phrases(tree: str) -> list[tuple[int, list[str]]]:
    """The label and words of every node of "(3 (2 It) (4 (2 's) (4 good)))"."""
    nodes: list[tuple[int, list[str]]] = []
    open_nodes: list[tuple[int, list[str]]] = []
    for token in tree.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            open_nodes.append((-1, []))
        elif token == ")":
            nodes.append(open_nodes.pop())
        elif open_nodes[-1][0] < 0:
            open_nodes[-1] = (int(token), [])
        else:
            word = token.replace("-LRB-", "(").replace("-RRB-", ")")
            for _, words in open_nodes:
                words.append(word)
    return nodes


def names(data: Path, work: Path) -> Files:
    pairs = dict.fromkeys(
        (path.stem, name.strip())
        for path in sorted((data / "names").glob("*.txt"))
        for name in path.read_text().splitlines()
        if name.strip()
    )
    rows = list(pairs)
    parts = held_out([name for _, name in rows], 0.15)
    train, test = (
        write_tsv(work / f"{n}.tsv", (rows[i] for i in p)) for n, p in zip(("train", "test"), parts, strict=True)
    )
    return train, test


def linear(train: Path, test: Path) -> dict[str, float]:
    """Two linear models of character n-grams: plain logistic regression, and a tuned support vector machine.

    Cross-validation on the training names chooses the machine's regularisation.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    (labels, texts), (truth, asked) = (
        zip(*(line.split("\t") for line in path.read_text().splitlines()), strict=True) for path in (train, test)
    )
    plain = make_pipeline(TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4)), LogisticRegression(max_iter=1000))
    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True)
    grid = GridSearchCV(make_pipeline(vectors, LinearSVC()), {"linearsvc__C": [0.3, 1.0, 2.5]}, cv=3)
    return {
        "logistic regression": float(plain.fit(texts, labels).score(asked, truth)),
        "tuned SVM": float(grid.fit(texts, labels).score(asked, truth)),
    }


def fsdd(speaker: str | None = None, held: int | None = None) -> Callable[[Path, Path], Files]:
    """The official split; or one speaker to score and the others to train on; or ten of the training recordings."""

    def is_scored(row: dict[str, str]) -> bool:
        if held is not None:
            return held <= int(row["index"]) < held + 10
        return row["speaker"] == speaker if speaker else row["official_split"] == "test"

    def files(data: Path, work: Path) -> Files:
        with (data / "fsdd" / "manifest.tsv").open() as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        if held is not None:
            rows = [row for row in rows if row["official_split"] != "test"]
        sides = [[row for row in rows if is_scored(row) == side] for side in (False, True)]
        with zipfile.ZipFile(data / "fsdd" / "recordings.zip") as archive:
            train = write_frames(work / "train.npz", archive, sides[0], COPIES)
            return train, write_frames(work / "test.npz", archive, sides[1])

    return files


def write_frames(path: Path, archive: zipfile.ZipFile, rows: list[dict[str, str]], copies: int = 0) -> Path:
    """Write spectrograms and digits, with `copies` augmented copies of each recording."""
    random = np.random.default_rng(0)
    frames, labels = [], []
    for row in rows:
        plain = spectrogram(archive.read(row["file"]))
        frames.append(plain)
        for _ in range(copies):
            changed = changed_spectrum(plain, CHANGES, random)
            frames.append(masked_spectrum(changed, BANDS, CHANGES, random))
        labels += [row["digit"]] * (copies + 1)
    frames = [with_deltas(torch.from_numpy(one), order=1).numpy() for one in frames]
    lengths = np.array([len(one) for one in frames])
    np.savez(path, frames=np.concatenate(frames), lengths=lengths, labels=np.array(labels))
    return path


def spectrogram(data: bytes) -> NDArray[np.float32]:
    """Log-mel spectrogram of a recording, (T, BANDS)."""
    with wave.open(io.BytesIO(data)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return LogMel(file.getframerate(), BANDS)(np.divide(samples, 32768, dtype=np.float32))


SPOKEN = {
    "model.dropout": 0.5,
    "model.num_layers": 2,
    "train.epochs": 6,
    "train.lr": 2e-3,
    "train.average": 0.998,
}
PARTS = {
    "trec": Part(
        "TREC questions, trained on the 50 classes, GloVe 100",
        "classify",
        trec,
        {"trec6": 0.93, "trec50": 0.85},
        "6 classes: CNN 91.2 random, 92.8 static, 93.6 tuned vectors (Kim 2014)",
        {
            "model.ngrams": 32768,
            "model.dropout": 0.5,
            "model.hidden_size": 300,
            "model.pool": "attention+max",
            "train.batch_size": 50,
            "train.lr": 2e-3,
            "train.epochs": 20,
        },
        vectors=True,
        scores=trec_scores,
    ),
    "sst2": Part(
        "SST-2 dev, phrases of the training trees, GloVe 100",
        "classify",
        sst2,
        {"accuracy": 0.86},
        "LSTM 84.9, BiLSTM 87.5 (Tai 2015, test)",
        {
            "model.ngrams": 32768,
            "model.dropout": 0.5,
            "model.pool": "attention+max",
            "model.tune_vectors": True,
            "train.lr": 2e-3,
            "train.epochs": 3,
            "train.batch_size": 64,
        },
        vectors=True,
    ),
    "names": Part(
        "surnames of 18 languages, duplicates removed, 15 % held out",
        "classify",
        names,
        {"accuracy": None},
        "Bar: 2 points over a linear model",
        {
            "model.ngrams": 32768,
            "model.dropout": 0.5,
            "model.hidden_size": 192,
            "model.pool": "max+last",
            "train.epochs": 16,
            "train.label_smoothing": 0.1,
        },
        beside=linear,
    ),
    "fsdd": Part(
        "Free Spoken Digits, official split",
        "classify",
        fsdd(),
        {"accuracy": 0.99},
        "log-mel means and logistic regression 96.5",
        SPOKEN,
    ),
    **{
        f"fsdd-{speaker}": Part(
            f"Free Spoken Digits, {speaker} unheard", "classify", fsdd(speaker), {"accuracy": None}, "", SPOKEN
        )
        for speaker in SPEAKERS
    },
    **{
        f"fsdd-tune-{first}": Part(
            f"Free Spoken Digits, training recordings {first} to {first + 9} held out",
            "classify",
            fsdd(held=first),
            {"accuracy": None},
            "",
            SPOKEN,
        )
        for first in (5, 15, 25, 35)
    },
}

if __name__ == "__main__":
    main("classification", __doc__, PARTS, seeds="0,1,2,3,4")
