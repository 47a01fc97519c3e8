"""n-best lists in a new order: by n-grams, trained models and backward models, from the command line and Python."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jiwer
import pytest

import unrolled
from tests.cli.test_generate import call
from unrolled import Model, UserError
from unrolled.search import NGram

STORED = Path(__file__).parents[1] / "compat" / "2026-11"
TRANSLATOR = STORED / "translate-luong.safetensors"
TEXTS = ["seven seven", "seven three", "five seven", "three"]


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lm") / "numbers.arpa"
    NGram.train(TEXTS, order=2).save(path)
    return path


@pytest.fixture(scope="module")
def backward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that reads texts from their end."""
    folder = tmp_path_factory.mktemp("backward")
    (folder / "text.txt").write_text("\n".join(TEXTS * 20))
    keys = {"data.direction": "backward", "train.max_steps": 3, "train.batch_size": 4, "model.hidden_size": 8}
    unrolled.train("generate", train=folder / "text.txt", out=folder / "run", set=keys, quiet=True)
    return folder / "run"


def by_hand(model: Model, scorer: Any, weight: float, bonus: float, wanted: int) -> list[tuple[str, float]]:
    """(log P + weight · log p(text) + bonus · words) / lp of the ten best, where lp = (5 + tokens) / 6."""
    answer = model.predict("3 5", n_best=10, beam=10)
    found = []
    for one in (answer, *answer.others):
        added = weight * scorer.log_prob([one.text])[0] + bonus * len(one.text.split())
        found.append((one.text, (one.log_prob + added) / ((5 + len(one.target_tokens) + 1) / 6)))
    return sorted(found, key=lambda pair: -pair[1])[:wanted]


def test_an_ngram_model_ranks_translations_again(lm: Path) -> None:
    options = ("--rescore", lm, "--rescore-weight", "3", "--rescore-bonus", "0.5", "--n-best", "4", "--json")
    code, out, said = call("run", TRANSLATOR, *options, "--text", "3 5")
    assert code == 0, said
    found = [(one["translation"], one["score"]) for one in json.loads(out)["n_best"]]
    model = unrolled.load(TRANSLATOR)
    expected = by_hand(model, NGram.load(lm), 3.0, 0.5, 4)
    assert [text for text, _ in found] == [text for text, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)
    plain = model.predict("3 5", n_best=4, beam=10)
    assert [text for text, _ in found] != [str(one) for one in (plain, *plain.others)]
    code, out, _ = call("run", TRANSLATOR, *options[:6], "--text", "3 5")
    assert (code, out) == (0, expected[0][0] + "\n")


def test_a_backward_model_ranks_them_too(backward: Path) -> None:
    code, out, said = call("run", TRANSLATOR, "--rescore", backward, "--n-best", "3", "--text", "3 5", "--json")
    assert code == 0, said
    expected = by_hand(unrolled.load(TRANSLATOR), unrolled.load(backward), 0.5, 0.0, 3)
    assert [one["translation"] for one in json.loads(out)["n_best"]] == [text for text, _ in expected]
    scores = [one["score"] for one in json.loads(out)["n_best"]]
    assert scores == pytest.approx([score for _, score in expected], abs=1e-5)


def test_eval_rescores(lm: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("3 5\tfive three\n7\tseven\n")
    code, out, said = call("eval", TRANSLATOR, tmp_path / "pairs.tsv", "--rescore", lm, "--beam", "8", "--json")
    assert code == 0, said
    assert json.loads(out)["search"] == "beam 8, gnmt 1, rescored"


def test_captions_and_recordings(lm: Path) -> None:
    code, out, said = call(
        "run", STORED / "caption.safetensors", STORED / "picture.png", "--rescore", lm, "--n-best", "2"
    )
    assert (code, len(out.splitlines())) == (0, 2), said
    path = STORED / "recognize.safetensors"
    code, out, said = call("run", path, STORED / "sound.wav", "--rescore", lm, "--rescore-weight", "2", "--json")
    assert code == 0, said
    scorer, answer = NGram.load(lm), unrolled.load(path).predict(STORED / "sound.wav", n_best=10)
    pairs = [(one.score + 2 * scorer.score(one.text), one.text) for one in (answer, *answer.others)]
    assert json.loads(out)["text"] == max(pairs)[1]
    assert json.loads(out)["score"] == pytest.approx(max(pairs)[0], abs=1e-4)


def test_eval_shows_readings_before_and_after(tmp_path: Path) -> None:
    """The last row of the table is what `run` answers, and here it is right."""
    path, images = STORED / "recognize.safetensors", STORED / "sound.wav"
    (tmp_path / "list.tsv").write_text(f"{images}\tabb\n")
    lm = tmp_path / "lm.arpa"
    NGram.train(["abb", "abb abb", "aab"] * 3, order=2).save(lm)
    options = ("--rescore", lm, "--rescore-weight", "5")
    for more, rows in (
        ((), ["greedy", "beam", "beam, rescored"]),
        (("--beam", "20"), ["greedy", "beam", "beam, rescored"]),
    ):
        code, out, said = call("eval", path, tmp_path / "list.tsv", *options, *more, "--json")
        assert code == 0, said
        scores = json.loads(out)
        assert list(scores["searches"]) == rows
        assert scores["search"] == rows[-1]
        code, out, said = call("run", path, images, *options, *more, "--json")
        assert code == 0, said
        text = json.loads(out)["text"]
        assert scores["searches"][rows[-1]]["cer"] == pytest.approx(jiwer.cer("abb", text))
        assert text == "abb"
        before = str(unrolled.load(path).predict(images, beam=20 if more else 100))
        assert scores["searches"]["beam"]["cer"] == pytest.approx(jiwer.cer("abb", before))
    (tmp_path / "words.txt").write_text("abb\nab\n")
    lexical = ("--lexicon", tmp_path / "words.txt", "--lm", lm)
    code, out, said = call("eval", path, tmp_path / "list.tsv", *options, *lexical)
    assert code == 0, said
    assert re.search(r"search +CER +WER +exact match\n", out)
    assert re.search(r"lexicon \+ lm, rescored  ", out)


def test_draws_are_ranked_by_log_p_and_the_model(lm: Path) -> None:
    model, scorer = unrolled.load(TRANSLATOR), NGram.load(lm)
    drawn = model.predict("3 5", temperature=1.0, seed=3, rescore=scorer, n_best=3, candidates=6)
    assert len(drawn.others) == 2
    for one in (drawn, *drawn.others):
        assert one.score == pytest.approx(one.log_prob + 0.5 * scorer.score(one.text), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rescore_weight": 1.0},
            "rescore_weight is for rescoring, and there is no model for it. Give one (--rescore).",
        ),
        ({"candidates": 5}, "candidates is for rescoring, and there is no model for it. Give one (--rescore)."),
        ({"rescore": "lm", "beam": 1}, "A beam of 1 finds 1 outputs, too few to rescore. Use a beam of 10."),
        (
            {"rescore": "lm", "beam": 5, "candidates": 8},
            "A beam of 5 finds 5 outputs, too few to rescore. Use a beam of 8.",
        ),
        ({"rescore": "runs/lm"}, "rescore='runs/lm' is a path, and no .arpa file. Load the model: unrolled.load("),
        ({"rescore": 3}, "rescore=3 has no log_prob. Use an NGram, or a trained model of generate."),
        ({"rescore": "lm", "candidates": 1}, "candidates=1 is not a whole number from 2 up. Use 2."),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        unrolled.load(TRANSLATOR).predict("3", **options)
    assert str(error.value).startswith(message)


def test_a_model_that_scores_no_text() -> None:
    code, _, said = call("run", TRANSLATOR, "--rescore", STORED / "classify.safetensors", "--text", "3")
    assert (code, said) == (2, "unrolled: A model of classify cannot score text. Use a model of generate.\n")
