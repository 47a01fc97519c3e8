"""Hotwords: scores from their definition, over all labellings and sentences; C++ against Python; bad input."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.test_generate import call
from tests.search.ctc.exhaustive import log_probs_of
from tests.search.ctc.test_dictionary_search import BACKENDS, TEXT, native_only, trained
from unrolled.errors import UserError
from unrolled.search import Lexicon, Scorer
from unrolled.search.ctc import Decoder
from unrolled.search.ctc.hotwords import Hotwords, read_phrases
from unrolled.search.ctc.prefix_beam import prefix_search

Patterns = Sequence[tuple[tuple[int, ...], float]]
PATTERNS: Patterns = [((1, 2), 0.7), ((2, 1, 2), 1.1), ((1,), 0.4), ((1, 1, 2), 2.0), ((2, 2), 0.3)]


def worth(labels: Sequence[int], patterns: Patterns, separator: int | None) -> float:
    """The definition: every place where a phrase stands, between separators where there are any."""
    around = () if separator is None else (separator,)
    text = (*around, *labels, *around)
    total = 0.0
    for phrase, weight in patterns:
        wanted = (*around, *phrase, *around)
        places = sum(text[at : at + len(wanted)] == wanted for at in range(len(text) - len(wanted) + 1))
        total += places * weight * len(phrase)
    return total


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("merge", ["max", "sum"])
@pytest.mark.parametrize("separator", [None, 3])
def test_every_labelling(backend: str, merge: str, separator: int | None) -> None:
    log_probs = log_probs_of(6, 4, scale=2.0)
    by_labels: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(4), repeat=6):
        labels = tuple(label for label, _ in itertools.groupby(path) if label)
        score = sum(float(log_probs[t, label]) for t, label in enumerate(path))
        before = by_labels.get(labels, -math.inf)
        by_labels[labels] = max(before, score) if merge == "max" else float(np.logaddexp(before, score))
    right = {labels: score + worth(labels, PATTERNS, separator) for labels, score in by_labels.items()}
    hot = Hotwords(PATTERNS, separator, labels=4)
    found = prefix_search(log_probs, 10**5, merge=merge, margin=math.inf, n_best=10**5, backend=backend, hotwords=hot)
    assert len(found) == len(right)
    assert [one.score for one in found] == pytest.approx(sorted(right.values(), reverse=True), abs=1e-5)
    assert {tuple(one.labels): one.score for one in found} == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("merge", ["max", "sum"])
@pytest.mark.parametrize("separator", [None, "|"])
def test_every_sentence(backend: str, merge: str, separator: str | None) -> None:
    """Each word has one spelling, so that the words say the labels."""
    labels = ["-", "a", "b", "|"] if separator else ["-", "a", "b"]
    words = {"A": ["a"], "AB": ["ab"], "BB": ["bb"], "BAA": ["baa"]}
    phrases = {"AB": 0.8, "A BB": 1.7, "BAA A": 0.5, "BB BB": 0.6}
    log_probs = log_probs_of(7, len(labels), scale=2.0)
    rest: dict[str, Any] = {"lm_weight": 0.8, "word_bonus": 0.3, "merge": merge, "beam": 10**6, "margin": math.inf}

    def readings(**more: Any) -> dict[tuple[str, ...], float]:
        lm = trained(TEXT, 2, backend)
        decoder = Decoder(labels, Lexicon(words, labels), lm, separator=separator, backend=backend, **rest, **more)
        found = decoder.decode(log_probs, n_best=10**6)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        return {tuple(word.text for word in one.words): one.score for one in found}

    def spelt(said: Sequence[str]) -> tuple[int, ...]:
        text = (separator or "").join(words[word][0] for word in said)
        return tuple(labels.index(label) for label in text)

    patterns = [(spelt(phrase.split()), weight) for phrase, weight in phrases.items()]
    column = labels.index(separator) if separator else None
    plain = readings()
    right = {said: score + worth(spelt(said), patterns, column) for said, score in plain.items()}
    assert readings(hotwords=phrases) == pytest.approx(right, abs=1e-4)


@native_only
def test_native_equals_plain() -> None:
    """To the bit, under every limit."""
    random = np.random.default_rng(0)
    spellings = {"A": ["a"], "AB": ["ab", "aab"], "B": ["b", "bb"], "BEE": ["b"], "ABBA": ["abba"]}
    lm = trained(TEXT, 2)
    for trial in range(60):
        separator = [None, "|"][trial % 2]
        labels = ["-", "a", "b", "|"] if separator else ["-", "a", "b"]
        scores = torch.from_numpy(random.standard_normal((12, len(labels))) * 2)
        log_probs = scores.log_softmax(-1).float()
        options: dict[str, Any] = {
            "beam": int(random.integers(1, 15)),
            "margin": [None, 3.0, math.inf][random.integers(3)],
            "per_node": [None, 1, 2][random.integers(3)],
            "merge": ["max", "sum"][random.integers(2)],
            "unknown_penalty": [None, -1.0][random.integers(2)],
            "separator": separator,
            "hotwords": {"A": 0.5, "AB B": 1.5, "ABBA": 0.9, "B A AB": 2.0},
            "hotword_weight": 1.0,
        }
        lexicon, n_best = Lexicon(spellings, labels), int(random.integers(1, 6))
        ours, plain = (
            Decoder(labels, lexicon, lm if trial % 3 else None, backend=name, **options).decode(log_probs, n_best)
            for name in ("native", "reference")
        )
        assert ours == plain, (trial, options)
        options = {key: options[key] for key in ("beam", "margin", "merge")}
        options |= {"hotwords": ["ab", "bba", "a"], "hotword_weight": 1.3}
        ours, plain = (
            Decoder(labels, separator=separator, backend=name, **options).decode(
                log_probs, min(n_best, options["beam"])
            )
            for name in ("native", "reference")
        )
        assert ours == plain, (trial, options)


def test_beside_other_scorers() -> None:
    """Scorers run in the Python search; hotwords join them there."""
    log_probs = log_probs_of(8, 4, scale=2.0)
    alone = Decoder(["-", "a", "b", "|"], separator="|", hotwords=["ab", "b"], margin=math.inf)
    with pytest.warns(match="Scorers run in the Python search"):
        beside = Decoder(["-", "a", "b", "|"], separator="|", hotwords=["ab", "b"], margin=math.inf, scorers=[Scorer()])
    found, other = (decoder.decode(log_probs, 5) for decoder in (alone, beside))
    assert [one.labels for one in found] == [one.labels for one in other]
    assert [one.score for one in found] == pytest.approx([one.score for one in other])


def test_streams_read_hotwords_too() -> None:
    log_probs = log_probs_of(12, 4, scale=2.0)
    decoder = Decoder(["-", "a", "b", "|"], ["ab", "b", "a"], separator="|", hotwords=["ab b"], hotword_weight=2.0)
    stream = decoder.stream()
    for part in np.array_split(log_probs, 5):
        stream.feed(part)
    assert stream.best() == decoder.decode(log_probs)


def test_the_command(tmp_path: Path) -> None:
    """Frames that are read as "bat" by a hair; the hotword is "cat"."""
    letters = ["-", "a", "b", "c", "t"]
    probs = np.full((3, 5), 0.01)
    probs[0, [2, 3]], probs[1, 1], probs[2, 4] = (0.5, 0.47), 0.96, 0.96
    np.savez(tmp_path / "p.npz", one=(probs / probs.sum(1, keepdims=True)).astype(np.float32))
    (tmp_path / "labels.txt").write_text("\n".join(letters))
    (tmp_path / "hot.txt").write_text("cat\t0.1\n")
    command = ("decode", tmp_path / "p.npz", "--labels", tmp_path / "labels.txt", "--kind", "probs")
    assert call(*command)[1] == "one\tbat\n"
    assert call(*command, "--hotwords", tmp_path / "hot.txt")[1] == "one\tcat\n"
    code, out, _ = call(*command, "--hotwords", tmp_path / "hot.txt", "--json")
    assert json.loads(out)["text"] == "cat"
    code, _, err = call(*command, "--hotword-weight", "2")
    assert (code, err) == (
        2,
        "unrolled: --hotword-weight is for hotwords, and there are none. Give them: --hotwords FILE.\n",
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Decoder(["-", "a"], hotwords=["ab"]), "The hotword 'ab' has 'b', which is none of the labels."),
        (
            lambda: Decoder(["-", "a"], ["a"], hotwords=["a aa"]),
            "The lexicon does not have 'aa' of the hotword 'a aa'.",
        ),
        (
            lambda: Decoder(["-", "a"], hotwords=[]),
            "There are no hotwords. Give at least one phrase, or leave them out.",
        ),
        (lambda: Decoder(["-", "a"], hotwords={"a": -1}), "'a': the weight -1 is not a number above 0."),
        (lambda: Decoder(["-", "a"], hotwords=["a"], hotword_weight=0), "hotword_weight: the weight 0 is not a number"),
        (lambda: read_phrases("none.txt"), "Cannot read none.txt: No such file or directory."),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value).startswith(message)
