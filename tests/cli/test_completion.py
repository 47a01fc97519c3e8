"""Searches in a language model: n-best lists, ranking them again, and scores of completed lines."""

from __future__ import annotations

import itertools
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
from unrolled.tasks.generate import texts

STORED = Path(__file__).parents[1] / "compat" / "2026-11"
WORDS = ["dog", "man", "bites"]
TEXT = "dog bites man\nman bites dog\ndog bites dog\nman bites man\n"


def trained(folder: Path, **keys: Any) -> Model:
    folder.mkdir()
    (folder / "text.txt").write_text(TEXT * 40)
    small = {"data.level": "word", "train.max_steps": 3, "train.batch_size": 4, "model.hidden_size": 8}
    return unrolled.train("generate", train=folder / "text.txt", out=folder / "run", set={**small, **keys}, quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    NGram.train(TEXT.splitlines(), order=2).save(folder / "lm.arpa")
    (folder / "words.txt").write_text("dog\nman\n")
    (folder / "test.txt").write_text(TEXT + "man\n\ndog dog bites man\n")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return trained(folder / "forward")


@pytest.fixture(scope="module")
def backward(folder: Path) -> Model:
    return trained(folder / "backward", **{"data.direction": "backward"})


def by_hand(model: Model, prompt: str, ends: list[str]) -> dict[str, float]:
    """log p of each end of the line after the prompt, the new line counted."""
    lines = [f"{prompt} {end}".strip() for end in ends]
    # log p(line) less that of the prompt alone, which is log p(prompt, new line) less log p(new line | prompt)
    with model.stream() as stream:
        stream.feed(prompt)
        given = -(stream.nats + stream.finish())
    return {end: one - given for end, one in zip(ends, model.log_prob(lines), strict=True)}


def every_end(words: list[str], most: int) -> list[str]:
    return [" ".join(some) for count in range(most + 1) for some in itertools.product(words, repeat=count)]


def test_the_best_ends_are_those_of_all(model: Model) -> None:
    answer = model.predict("dog", beam=200, n_best=10, max_tokens=4)
    expected = by_hand(model, "dog", every_end(WORDS, 3))
    ranked = sorted(expected, key=lambda end: -expected[end])[:10]
    several = (answer, *answer.others)
    assert [one.strip() for one in several] == ranked
    assert [one.log_prob for one in several] == pytest.approx([expected[end] for end in ranked], abs=1e-4)
    assert [one.score for one in several] == [one.log_prob for one in several]
    assert issubclass(type(answer), str)
    assert answer == answer.text
    assert all(one.ended for one in several)
    assert " ".join(answer.tokens) == answer.strip()


def test_a_transformer_whose_window_is_full(folder: Path) -> None:
    keys = {"model.kind": "transformer", "model.context": 6, "train.k1": 6, "model.num_layers": 1, "model.heads": 2}
    small = {**keys, "model.feedforward": 16, "model.hidden_size": 16}
    other = trained(folder / "transformer", **small)
    answer = other.predict("dog bites man bites dog bites", beam=200, n_best=5, max_tokens=3)
    expected = by_hand(other, "dog bites man bites dog bites", every_end(WORDS, 2))
    ranked = sorted(expected, key=lambda end: -expected[end])[:5]
    assert [one.strip() for one in (answer, *answer.others)] == ranked
    assert answer.log_prob == pytest.approx(expected[ranked[0]], abs=1e-4)


def test_a_list_from_the_command_line(model: Model, folder: Path) -> None:
    model.save(folder / "model.safetensors")
    found = model.predict(["dog", "man bites"], beam=30, n_best=3, max_tokens=4)
    options = ("run", folder / "model.safetensors", "--beam", "30", "--n-best", "3", "--max-tokens", "4")
    prompts = ("--prompt", "dog", "--prompt", "man bites")
    code, out, said = call(*options, *prompts)
    assert code == 0, said
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[0] for line in lines] == ["1", "2", "3"] * 2
    assert [line[2] for line in lines[:3]] == [f"dog{one}" for one in (found[0], *found[0].others)]
    assert [line[1] for line in lines[3:]] == [f"{one.score:.4f}" for one in (found[1], *found[1].others)]
    code, out, said = call(*options, *prompts, "--json")
    record = json.loads(out.splitlines()[1])
    assert code == 0, said
    assert (record["prompt"], record["text"]) == ("man bites", str(found[1]))
    assert [one["text"] for one in record["n_best"]] == [str(one) for one in (found[1], *found[1].others)]
    assert set(record["n_best"][0]) == {"text", "score", "log_prob", "ended", "tokens"}
    code, out, said = call(*options[:4], *prompts, "--json", "--lexicon", folder / "words.txt", "--max-tokens", "4")
    assert code == 0, said
    assert [word["text"] for word in json.loads(out.splitlines()[0])["words"]] == json.loads(out.splitlines()[0])[
        "tokens"
    ]
    assert json.loads(out.splitlines()[0])["n_best"] == []


@pytest.mark.parametrize("scorer", ["lm.arpa", "backward/run", "forward/run"])
def test_another_model_ranks_whole_lines(scorer: str, model: Model, backward: Model, folder: Path) -> None:
    """The prompt is part of the line: a backward model reads it last."""
    model.save(folder / "model.safetensors")
    options = ("--beam", "20", "--candidates", "12", "--rescore", folder / scorer, "--rescore-weight", "2")
    given = ("--n-best", "4", "--max-tokens", "4", "--prompt", "man\ndog", "--json")
    code, out, said = call("run", folder / "model.safetensors", *options, "--rescore-bonus", "0.5", *given)
    assert code == 0, said
    other = NGram.load(folder / scorer) if scorer.endswith("arpa") else unrolled.load(folder / scorer)
    answer = model.predict("man\ndog", beam=20, n_best=12, max_tokens=4)
    expected = []
    for one in (answer, *answer.others):
        line = f"dog{one}"
        added = 2 * other.log_prob([line])[0] + 0.5 * len(line.split())
        expected.append((one.log_prob + added, str(one)))
    expected = sorted(expected, reverse=True)[:4]
    found = json.loads(out)["n_best"]
    assert [one["text"] for one in found] == [text for _, text in expected]
    assert [one["score"] for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


def test_a_backward_model_is_ranked_again_too(model: Model, backward: Model, folder: Path) -> None:
    lm = NGram.load(folder / "lm.arpa")
    answer = backward.predict("man", beam=20, n_best=5, max_tokens=4, rescore=lm, rescore_weight=3.0)
    for one in (answer, *answer.others):
        assert one.line == f"{one}man"
        assert one.score == pytest.approx(one.log_prob + 3 * lm.log_prob([f"{one}man"])[0], abs=1e-4)
    backward.save(folder / "backward.safetensors")
    options = ("--beam", "20", "--n-best", "2", "--max-tokens", "4", "--prompt", "man")
    code, out, said = call("run", folder / "backward.safetensors", *options)
    assert code == 0, said
    assert all(line.endswith("man") for line in out.splitlines())
    assert len(out.splitlines()) == 2


def test_eval_completes_lines(model: Model, folder: Path) -> None:
    """Every search beside the others, scored by jiwer; perplexity stays that of the model alone."""
    model.save(folder / "model.safetensors")
    asked = ("eval", folder / "model.safetensors", folder / "test.txt")
    code, out, said = call(*asked, "--json")
    assert code == 0, said
    plain = json.loads(out)
    assert "searches" not in plain
    options = ("--beam", "8", "--lexicon", folder / "words.txt", "--lm", folder / "lm.arpa", "--lm-weight", "2")
    code, out, said = call(*asked, *options, "--rescore", folder / "lm.arpa", "--max-tokens", "4", "--json")
    assert code == 0, said
    scores = json.loads(out)
    assert {name: scores[name] for name in plain} == plain
    assert list(scores["searches"]) == ["greedy", "beam 8", "lexicon", "lexicon + lm", "lexicon + lm, rescored"]
    assert (scores["search"], scores["lines"], scores["lines_left_out"]) == ("lexicon + lm, rescored", 5, 1)
    given, rest = (
        ["dog", "man", "dog", "man", "dog dog"],
        ["bites man", "bites dog", "bites dog", "bites man", "bites man"],
    )
    kept: dict[str, Any] = {"max_tokens": 4, "beam": 8}
    words: dict[str, Any] = {"lexicon": ["dog", "man"], **kept}
    lm = NGram.load(folder / "lm.arpa")
    searches = {
        "greedy": {"max_tokens": 4, "beam": 1},
        "beam 8": kept,
        "lexicon": words,
        "lexicon + lm": {**words, "lm": lm, "lm_weight": 2.0},
        "lexicon + lm, rescored": {**words, "lm": lm, "lm_weight": 2.0, "rescore": lm},
    }
    for name, chosen in searches.items():
        answers = [str(one).strip() for one in model.predict(given, **chosen)]
        assert scores["searches"][name]["wer"] == pytest.approx(jiwer.wer(rest, answers))
        assert scores["searches"][name]["cer"] == pytest.approx(jiwer.cer(rest, answers))
        assert scores["searches"][name]["exact_match"] == sum(a == b for a, b in zip(answers, rest, strict=True)) / 5
    assert scores["wer"] == scores["searches"]["lexicon + lm, rescored"]["wer"]
    alone = model.evaluate(folder / "test.txt", beam=2)["wer"]  # at most twice the longest line: 4 words
    answers = [str(one).strip() for one in model.predict(given, beam=2, max_tokens=8)]
    assert alone == pytest.approx(jiwer.wer(rest, answers))
    code, out, said = call(*asked, "--given", "2", "--max-tokens", "3")
    assert code == 0, said
    assert re.search(r"perplexity .*\n(.*\n)*search  +beam 5\nlines +5\nlines_left_out +1\n\nsearch +CER +WER", out)


def test_eval_completes_phones_and_backward(backward: Model, folder: Path, tmp_path: Path) -> None:
    scores = backward.evaluate(folder / "test.txt", beam=2, max_tokens=4)
    answers = [str(one).strip() for one in backward.predict(["man", "dog"], beam=2, max_tokens=4)]
    assert scores["lines"] == 5
    (tmp_path / "two.txt").write_text("dog bites man\nman bites dog\n")
    found = backward.evaluate(tmp_path / "two.txt", beam=2, max_tokens=4, given=1)
    assert found["wer"] == pytest.approx(jiwer.wer(["dog bites", "man bites"], answers))
    (tmp_path / "phones.txt").write_text("D AO G M AE N\nM AE N D AO G\n" * 30)
    keys = {"data.level": "symbols", "train.max_steps": 2, "train.batch_size": 2, "model.hidden_size": 8}
    phones = unrolled.train("generate", train=tmp_path / "phones.txt", out=tmp_path / "run", set=keys, quiet=True)
    said = {"dog": [["D", "AO", "G"]], "man": [["M", "AE", "N"]]}
    scores = phones.evaluate(tmp_path / "phones.txt", lexicon=said, max_tokens=4, beam=20)
    assert list(scores["searches"]["lexicon"]) == ["phone_error_rate", "exact_match"]
    assert scores["phone_error_rate"] in (0.0, 0.5, 1.0)  # a word of three phones, or none
    line = phones.predict("M AE N", lexicon=said, max_tokens=4, beam=20, n_best=3, word_bonus=5.0)
    assert {one.line for one in (line, *line.others)} <= {"man dog", "man man", "man"}
    assert {str(one) for one in (line, *line.others)} <= {"dog", "man", ""}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 2}, "n_best is for a search, and without a beam text is drawn. Give one (--beam 5)."),
        ({"rescore": "lm"}, "rescore is for a search, and without a beam text is drawn. Give one (--beam 10)."),
        ({"beam": 2, "n_best": 3}, "n_best=3 is more than the beam's size=2. Use a beam of 3."),
        ({"beam": 0}, "beam=0 is not a whole number from 1 up. Use 1."),
        ({"beam": 1, "rescore": "lm"}, "A beam of 1 finds 1 outputs, too few to rescore. Use a beam of 10."),
        (
            {"rescore_weight": 1.0},
            "rescore_weight is for rescoring, and there is no model for it. Give one (--rescore).",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        unrolled.load(STORED / "generate-lstm.safetensors").predict("3", **options)
    assert str(error.value) == message


def test_texts_without_lines_to_complete(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short.txt").write_text("dog\nman\n")
    with pytest.raises(UserError) as error:
        model.evaluate(tmp_path / "short.txt", beam=3)
    assert str(error.value) == "No line has two words, so there is nothing to complete. Use a text with longer lines."
    with pytest.raises(UserError, match="No line has 8 words, so there is nothing to complete"):
        model.evaluate(tmp_path / "short.txt", given=7)
    monkeypatch.setattr(texts, "LARGE", 4)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError) as error:
        model.evaluate(tmp_path / "short.txt", beam=3)
    assert str(error.value) == (
        f"{tmp_path / 'short.txt'} is too large to complete its lines. Use a part of it, below 64 MB."
    )
