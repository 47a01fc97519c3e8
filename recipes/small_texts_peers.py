"""fastText and TF-IDF with logistic regression on one small set; `small_texts.py` calls it in the peers' environment.

Its argument is JSON: system, folder (of train.tsv, valid.tsv and test.tsv), seed, chosen settings or null, and the
number of answers to time. It prints JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Table = tuple[list[str], list[str]]  # labels and texts
Answer = Callable[[Sequence[str]], list[str]]

WORDS: list[dict[str, Any]] = [
    {"lr": lr, "epoch": epoch, "wordNgrams": words, "minn": 0, "maxn": 0}
    for lr, epoch, words in itertools.product((0.25, 1.0), (10, 25), (1, 2))
]
LETTERS: list[dict[str, Any]] = [{"lr": lr, "epoch": 25, "wordNgrams": 1, "minn": 2, "maxn": 5} for lr in (0.25, 1.0)]
FASTTEXT = [*WORDS, *LETTERS]
FEATURES: dict[str, dict[str, Any]] = {
    "words": {"analyzer": "word", "ngram_range": (1, 1)},
    "pairs": {"analyzer": "word", "ngram_range": (1, 2)},
    "letters": {"analyzer": "char_wb", "ngram_range": (1, 4)},
    "long letters": {"analyzer": "char_wb", "ngram_range": (2, 5)},
}
TFIDF: list[dict[str, Any]] = [{"features": features, "C": c} for features in FEATURES for c in (1.0, 4.0, 16.0)]


def read(path: Path) -> Table:
    labels, texts = zip(*(line.split("\t") for line in path.read_text().splitlines()), strict=True)
    return list(labels), list(texts)


def fasttext(table: Table, settings: dict[str, Any], seed: int, folder: Path) -> Answer:
    """fastText's supervised model, of 100 dimensions, on one thread."""
    import fasttext as package  # type: ignore[import-not-found]

    labels, texts = table
    file = folder / "fasttext.txt"
    file.write_text("".join(f"__label__{label} {text.lower()}\n" for label, text in zip(labels, texts, strict=True)))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        model = package.train_supervised(str(file), **settings, bucket=200_000, seed=seed, thread=1, verbose=0)

    def answer(asked: Sequence[str]) -> list[str]:
        found = [model.f.predict(f"{text.lower()}\n", 1, 0.0, "strict") for text in asked]
        return [pairs[0][1].removeprefix("__label__") if pairs else "" for pairs in found]

    return answer


def tfidf(table: Table, settings: dict[str, Any], seed: int, folder: Path) -> Answer:
    """TF-IDF with logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    labels, texts = table
    vectors = TfidfVectorizer(**FEATURES[settings["features"]], sublinear_tf=True)
    model = make_pipeline(vectors, LogisticRegression(C=settings["C"], max_iter=1000)).fit(texts, labels)
    return lambda asked: [str(one) for one in model.predict(list(asked))]


SYSTEMS: dict[str, tuple[Any, list[dict[str, Any]]]] = {"fasttext": (fasttext, FASTTEXT), "tfidf": (tfidf, TFIDF)}


def accuracy(answer: Answer, table: Table) -> float:
    labels, texts = table
    return sum(one == other for one, other in zip(answer(texts), labels, strict=True)) / len(labels)


def main() -> None:
    job = json.loads(sys.argv[1])
    folder, seed = Path(job["folder"]), job["seed"]
    train, valid, test = (read(folder / f"{part}.tsv") for part in ("train", "valid", "test"))
    fit, grid = SYSTEMS[job["system"]]
    chosen, tried = job["chosen"], 0.0
    if chosen is None:
        began = time.process_time()
        chosen = max(grid, key=lambda settings: accuracy(fit(train, settings, seed, folder), valid))
        tried = time.process_time() - began
    began = time.process_time()
    answer = fit(train, chosen, seed, folder)
    seconds = time.process_time() - began
    texts = test[1][: job["answered"]]
    answer(texts[:1])
    began = time.process_time()
    for text in texts:
        answer([text])
    each = (time.process_time() - began) / len(texts)
    scores = {"scores": {"accuracy": accuracy(answer, test)}, "valid": {"accuracy": accuracy(answer, valid)}}
    times = {"train_seconds": seconds, "answer_seconds": each, "tuning_seconds": tried}
    print(json.dumps({**scores, **times, "settings": chosen}))


if __name__ == "__main__":
    main()
