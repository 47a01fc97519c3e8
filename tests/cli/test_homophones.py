"""Words that sound alike in n-best lists, against every sequence of words that a model can write."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import unrolled
from tests.cli.test_generate import call
from tests.tasks.translate.conftest import SMALL
from unrolled import Model
from unrolled.search import NGram

SAID = {"two": ["T UW"], "too": ["T UW"], "to": ["T UW", "T"], "ate": ["EY T"], "eight": ["EY T"], "a": ["EY"]}
TEXTS = ["two ate eight", "eight ate too", "a to two", "too to eight", "to a two"]
LONGEST = 5  # phones, the end not counted
WEIGHTS = {"lm_weight": 1.5, "word_bonus": 0.4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("homophones")
    lines = [f"{word} {phones}\n" for word, spellings in SAID.items() for phones in spellings]
    (folder / "said.txt").write_text("".join(lines))
    NGram.train(TEXTS, order=2).save(folder / "lm.arpa")
    texts = ["T UW EY T", "EY T T", "EY T UW", "T EY T EY"]
    (folder / "train.tsv").write_text("".join(f"{i} {i + 1}\t{text}\n" for i, text in enumerate(texts * 3)))
    (folder / "text.txt").write_text("\n".join(texts * 30) + "\n")
    return folder


@pytest.fixture(scope="module")
def translator(folder: Path) -> Model:
    keys = {**SMALL, "data.level": "symbols", "train.max_steps": 2}
    return unrolled.train("translate", train=folder / "train.tsv", out=folder / "run", set=keys, quiet=True)


def spellings(words: tuple[str, ...]) -> set[str]:
    return {" ".join(phones) for phones in itertools.product(*(SAID[word] for word in words))}


def every_sentence() -> list[tuple[str, ...]]:
    """All sequences of words, by their shortest spelling."""
    found = (words for count in range(LONGEST + 1) for words in itertools.product(SAID, repeat=count))
    return [words for words in found if min(len(one.split()) for one in spellings(words)) <= LONGEST]


def by_enumeration(own: dict[str, float], lm: NGram) -> list[tuple[str, float]]:
    """Every sequence of words with its score, by its best spelling; the best first."""
    scores = {}
    for words in every_sentence():
        added = WEIGHTS["lm_weight"] * lm.score(list(words)) + WEIGHTS["word_bonus"] * len(words)
        best = max((own[one] for one in spellings(words) if one in own), default=None)
        if best is not None:
            scores[" ".join(words)] = best + added
    return sorted(scores.items(), key=lambda pair: -pair[1])


def test_the_nbest_list_is_that_of_all_word_sequences(translator: Model, folder: Path) -> None:
    lm = NGram.load(folder / "lm.arpa")
    free = translator.predict("1 2", beam=3000, n_best=3000, length_penalty="none", max_tokens=LONGEST + 1)
    own = {" ".join(one.target_tokens): one.log_prob for one in (free, *free.others) if one.ended}
    expected = by_enumeration(own, lm)
    options = (
        "--lexicon",
        folder / "said.txt",
        "--lm",
        folder / "lm.arpa",
        "--lm-weight",
        "1.5",
        "--word-bonus",
        "0.4",
    )
    limits = ("--beam", "400", "--n-best", "12", "--max-tokens", str(LONGEST + 1), "--length-penalty", "none")
    translator.save(folder / "model.safetensors")
    code, out, said = call("run", folder / "model.safetensors", *options, *limits, "--json", "--text", "1 2")
    assert code == 0, said
    found = json.loads(out)["n_best"]
    assert [one["translation"] for one in found] == [text for text, _ in expected[:12]]
    assert [one["score"] for one in found] == pytest.approx([score for _, score in expected[:12]], abs=1e-4)
    for one in found:
        for word in one["words"]:
            assert " ".join(one["target_tokens"][word["start"] : word["end"]]) in SAID[word["text"]]
    sounds = [" ".join(one["target_tokens"]) for one in found]
    assert len(set(sounds)) < len(sounds)  # some sound alike


def test_the_length_penalty_divides_the_words_too(translator: Model, folder: Path) -> None:
    lm = NGram.load(folder / "lm.arpa")
    answer = translator.predict(
        "1 2", lexicon=folder / "said.txt", lm=lm, **WEIGHTS, beam=200, n_best=8, max_tokens=LONGEST + 1
    )
    for one in (answer, *answer.others):
        total = one.log_prob + 1.5 * lm.score(one.text) + 0.4 * len(one.text.split())
        assert one.score == pytest.approx(total / ((5 + len(one.target_tokens) + 1) / 6), abs=1e-4)
    texts = [str(one) for one in (answer, *answer.others)]
    assert len(set(texts)) == len(texts) == 8
