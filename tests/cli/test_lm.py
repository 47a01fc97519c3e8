"""`unrolled lm` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import warm
from tests.cli.test_generate import call
from tests.search.ngram.test_training import zen
from unrolled.search import NGram


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "zen.txt").write_text("\n".join(zen()) + "\n")
    return tmp_path / "zen.txt"


@pytest.fixture
def model(text: Path, tmp_path: Path) -> Path:
    assert call("lm", "train", text, "--out", tmp_path / "zen.arpa", "--order", "2")[0] == 0
    return tmp_path / "zen.arpa"


def test_train(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.arpa.gz"
    code, said, _ = call("lm", "train", text, "--out", out, "--prune", "0,0,1", "--memory", "1M")
    assert (code, said) == (0, f"{out}: 96 1-grams, 143 2-grams, 4 3-grams\n")
    assert NGram.load(out).counts == [96, 143, 4]


def test_notes_are_lines_on_stderr(text: Path, tmp_path: Path) -> None:
    result = warm.unrolled("lm", "train", "--out", tmp_path / "m.arpa", given="a b\na c\n")
    assert result.returncode == 0
    assert result.stdout == f"{tmp_path}/m.arpa: 6 1-grams, 5 2-grams, 4 3-grams\n"
    assert result.stderr.splitlines()[0] == (
        "Note: The text is too small, or too regular, to estimate the discounts of 1-grams: no 1-gram has the count 3. "
        "Used instead: 0.5, 1, 1.5."
    )


def test_eval(model: Path, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("beautiful is better than nothing\n\nso what\n")
    code, said, _ = call("lm", "eval", model, tmp_path / "test.txt")
    scores = json.loads(call("lm", "eval", model, tmp_path / "test.txt", "--json")[1])
    assert code == 0
    assert scores == NGram.load(model).evaluate(tmp_path / "test.txt")
    assert said == (
        f"perplexity                 {scores['perplexity']:.2f}\n"
        f"  without unknown words    {scores['perplexity_known']:.2f}\n"
        f"log probability            {scores['log_prob']:.2f}\n"
        "words                      7 in 2 sentences\n"
        "  unknown                  3\n"
    )


def test_a_byte_order_mark_is_no_part_of_a_word(tmp_path: Path) -> None:
    (tmp_path / "marked.txt").write_text("a b\nb c\n", encoding="utf-8-sig")
    model = tmp_path / "m.arpa"
    assert call("lm", "train", tmp_path / "marked.txt", "--out", model, "--order", "2")[0] == 0
    assert "a" in NGram.load(model)
    result = warm.unrolled("lm", "eval", model, "--json", given=(tmp_path / "marked.txt").read_bytes())
    assert json.loads(result.stdout)["unknown"] == 0


def test_mix(model: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("a cat sat on a mat\nthe cat is better than the mat\n")
    other = tmp_path / "other.arpa"
    call("lm", "train", tmp_path / "other.txt", "--out", other)
    out = tmp_path / "c.arpa"
    code, said, _ = call("lm", "mix", model, other, "--text", tmp_path / "other.txt", "--out", out)
    shares = [float(line.split()[0]) for line in said.splitlines()[:2]]
    assert code == 0
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert shares[1] > 0.9
    assert NGram.load(out).order == 3
    code, said, _ = call("lm", "mix", model, other, "--weights", "1,3", "--out", tmp_path / "d.arpa", "--json")
    assert json.loads(said) == {
        "weights": {str(model): 0.25, str(other): 0.75},
        "counts": NGram.load(tmp_path / "d.arpa").counts,
    }


def test_mistakes(model: Path, text: Path, tmp_path: Path) -> None:
    def said(*words: str | Path) -> str:
        code, _, errors = call("lm", *words)
        assert code == 2
        return errors

    before = model.read_bytes()
    exists = f"unrolled: {model} exists already. Choose another name, or remove it first.\n"
    assert said("train", text, "--out", model) == exists
    assert said("mix", model, model, "--weights", "1,1", "--out", model) == exists
    assert model.read_bytes() == before
    out = tmp_path / "new.arpa"
    assert said("train", text, "--out", out, "--prune", "0,x") == (
        "unrolled: --prune 0,x is not a list of numbers. Try: --prune 0,0,1\n"
    )
    assert said("train", text, "--out", out, "--prune", "0,0.5") == (
        "unrolled: prune=[0, 0.5] are not counts. Give whole numbers from 0 up, such as 0, 0, 1.\n"
    )
    assert said("mix", model, model, "--weights", "1;1", "--out", out) == (
        "unrolled: --weights 1;1 is not a list of numbers. Try: --weights 0.7,0.3\n"
    )
    assert said("mix", model, model, "--out", out) == (
        "unrolled: Mixing needs either weights or a text to fit them to.\n"
    )
    assert said("eval", text, text) == f"unrolled: {text}:20: The file has no line \\data\\: it is not an ARPA file.\n"
    assert said("eval", model, tmp_path / "none") == (
        f"unrolled: {tmp_path}/none does not exist. Give the path of a text file.\n"
    )
    assert not out.exists()
