"""n-best lists in a new order, by n-grams and by trained language models."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import unrolled
from tests.search.ngram.test_training import trained
from unrolled.errors import UserError
from unrolled.search import rescore
from unrolled.tasks.generate.scores import evaluate_text

TEXT = "dog bites man\nman buys dog\ndog bites dog\n" * 60


def test_an_ngram_model_chooses() -> None:
    model = trained(TEXT.splitlines(), order=3)
    best, second = rescore([("dock buys man", -1.0), ("dog bites man", -1.2)], model, weight=1.0, word_bonus=0.5)
    assert best.text == "dog bites man"
    assert best.log_prob == model.score("dog bites man")
    assert best.score == pytest.approx(-1.2 + best.log_prob + 1.5)
    assert best.score > second.score
    (kept, _) = rescore([("dock buys man", -1.0), ("dog bites man", -1.2)], model, weight=0.0)
    assert kept.text == "dock buys man"


@pytest.mark.parametrize(
    ("level", "direction", "kind"),
    [("char", "forward", "recurrent"), ("word", "backward", "recurrent"), ("word", "forward", "feedforward")],
)
def test_a_trained_model_scores_lines(level: str, direction: str, kind: str, tmp_path: Path) -> None:
    """Batched is what one text after another gives, and what `evaluate` says of the same characters."""
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {"data.level": level, "data.direction": direction, "model.kind": kind, "model.hidden_size": 16}
    settings |= {"train.max_steps": 30, "train.batch_size": 4, "train.k1": 20}
    model = unrolled.train("generate", train=tmp_path / "text.txt", out=tmp_path / "run", set=settings, quiet=True)
    texts = ["dog bites man", "man", "", "dog bites dog buys man"] * 20
    together = model.log_prob(texts)
    assert together == pytest.approx([model.log_prob([text])[0] for text in texts], abs=1e-4)
    for text, score in zip(texts[:4], together, strict=False):
        alone = text + "\n" if direction == "forward" else "\n" + text
        scores = evaluate_text(model, alone)
        assert score == pytest.approx(-scores["nats_per_token"] * scores["tokens"], abs=1e-4)
    best, *_ = rescore([("nam setib god", 0.0), ("dog bites man", 0.0)], model, weight=0.5)
    assert best.text == "dog bites man"


def test_mistakes(tmp_path: Path) -> None:
    model = trained(["a b"], order=2)
    with pytest.raises(UserError, match=r"^weight=inf is not a finite number\. 0\.5 is a weight to begin with\.$"):
        rescore([("a", 0.0)], model, weight=math.inf)
    with pytest.raises(UserError, match=r"^candidates\[0\] has the score NaN: 'a'\. Check the search's input for NaN"):
        rescore([("a", math.nan)], model, weight=1)
    assert rescore([], model, weight=1) == []
    (tmp_path / "t.tsv").write_text("good\tyes\nbad\tno\nfine\tyes\nawful\tno\n" * 3)
    settings = {"model.hidden_size": 4, "train.max_steps": 1}
    other = unrolled.train("classify", train=tmp_path / "t.tsv", out=tmp_path / "run", set=settings, quiet=True)
    with pytest.raises(UserError, match=r"^A model of classify cannot score text\. Use a model of generate\.$"):
        rescore([("a", 0.0)], other, weight=1)
