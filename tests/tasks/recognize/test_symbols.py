"""A recogniser of phones: labels of several letters, words of a lexicon, and references of either kind."""

from __future__ import annotations

from pathlib import Path

import jiwer
import numpy as np
import pytest

import unrolled
from tests.fitting import fitting
from tests.tasks.recognition import SMALL, frames, words
from unrolled import Model, UserError
from unrolled.errors import Note

PHONES = {"a": "AH", "b": "B", "c": "SH"}


@pytest.fixture(scope="module")
def phones(place: Path) -> Model:
    model = learn_symbols(place, [letters.replace(" ", "") for letters in words(60)])
    (place / "words.txt").write_text("bush B AH SH\nash AH SH\n")
    return model


def learn_symbols(place: Path, letters: list[str]) -> Model:
    file = write_phones(place / "phones.npz", letters, [" ".join(PHONES[c] for c in one) for one in letters])
    settings = fitting("recognize", {**SMALL, "data.level": "symbols"}, data__kind="frames")
    return unrolled.train("recognize", train=file, valid=file, out=place / "run-phones", set=settings, quiet=True)


def write_phones(file: Path, letters: list[str], texts: list[str]) -> Path:
    table = [frames(one, i) for i, one in enumerate(letters)]
    np.savez(file, frames=np.concatenate(table), lengths=[len(one) for one in table], texts=np.array(texts))
    return file


def test_phonemes_are_symbols(phones: Model, place: Path) -> None:
    assert phones.predict(frames("abca")).text == "AH B SH AH"
    assert phones.predict(frames("bacac"), lexicon=str(place / "words.txt")).text == "bush ash"
    scores = phones.evaluate(place / "phones.npz")
    assert scores["phone_error_rate"] < 0.05
    assert scores["phone_error_rate"] == scores["searches"]["greedy"]["phone_error_rate"]
    assert "cer" not in scores
    assert phones.scores["phone_error_rate"] < 0.05  # the score that chose the best model


def test_references_of_phones_and_of_words_are_told_apart(phones: Model, place: Path) -> None:
    """The first input says B AH SH AH SH, bush and ash; the second B AH B, which is none of the words."""
    said = ["bacac", "bab"]
    lexicon = str(place / "words.txt")
    as_phones = write_phones(place / "as-phones.npz", said, ["B AH SH AH SH", "B AH B"])
    scores = phones.evaluate(as_phones, lexicon=lexicon)
    assert list(scores["searches"]) == ["greedy", "beam", "lexicon"]
    assert scores["searches"]["greedy"] == {"phone_error_rate": 0.0, "exact_match": 1.0}
    found = phones.predict([frames(one, i) for i, one in enumerate(said)], lexicon=lexicon)
    spelt = [" ".join(label.text for label in one.labels) for one in found]
    assert spelt[0] == "B AH SH AH SH"
    assert scores["phone_error_rate"] == pytest.approx(jiwer.wer(["B AH SH AH SH", "B AH B"], spelt))
    assert scores["phone_error_rate"] > 0
    as_words = write_phones(place / "as-words.npz", said, ["bush ash", "bab"])
    with pytest.warns(Note) as said_notes:
        scores = phones.evaluate(as_words, lexicon=lexicon)
    assert [str(one.message) for one in said_notes] == [
        "The references are words; greedy and beam read labels, so they are left out.",
        f"Words outside the lexicon cannot be recognised. There are 1, the first at {as_words}: sequence 2: 'bab'.",
    ]
    assert list(scores["searches"]) == ["lexicon"]
    assert scores["wer"] == pytest.approx(1 / 3)  # one of three words is wrong
    assert scores["unknown_words"] == 1
    with pytest.raises(UserError, match=r"of their 1 parts 0 are labels and 0 are words of the lexicon\. Say what"):
        phones.evaluate(write_phones(place / "neither.npz", ["ab"], ["cat"]), lexicon=lexicon)
    with pytest.warns(Note, match="Symbols never seen in training"):
        assert phones.evaluate(place / "neither.npz", lexicon=lexicon, reference_kind="labels")["phone_error_rate"] > 1
    with pytest.raises(
        UserError, match=r"No part of the references is a label, such as SH: the first is 'bush'\. Give"
    ):
        phones.evaluate(as_words)
    with pytest.raises(UserError, match=r"reference_kind=words needs the words\. Give"):
        phones.evaluate(as_words, reference_kind="words")


def test_paths_that_read_the_same_are_summed_or_the_best_counts(phones: Model) -> None:
    """The score with max is that of the best path alone; with sum it is log P(labels), as the loss computes it."""
    inputs = frames("ab")
    best = phones.predict(inputs, beam=50, merge="max")
    total = phones.predict(inputs, beam=50, merge="sum")
    assert phones.predict(inputs, beam=50) == total
    assert best.score < total.score
    assert best.score == pytest.approx(phones.predict(inputs).score, abs=1e-4)  # the best path of all reads the same
    loss = phones.trace(inputs, text=total.text).losses
    assert total.score == pytest.approx(-float(loss.sum()), abs=1e-3)
    with_words = [phones.predict(inputs, lexicon={"ab": [["AH", "B"]]}, merge=merge).score for merge in ("sum", "max")]
    assert with_words == pytest.approx([total.score, best.score], abs=1e-3)
    assert phones.predict(inputs, lexicon={"ab": [["AH", "B"]]}).score == with_words[1]
    with pytest.raises(UserError, match="merge is for a search, and the best path is one path"):
        phones.predict(inputs, merge="sum")
    with pytest.raises(UserError, match="Unknown merge 'mean'"):
        phones.predict(inputs, beam=5, merge="mean")
