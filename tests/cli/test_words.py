"""`unrolled words` on files and on models, as a user types it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import unrolled
from tests.cli.test_generate import call
from unrolled.models.inputs import WordInput
from unrolled.tasks import Generate, Tracer
from unrolled.text import Vectors, Words

ROYAL = ["king", "queen", "man", "woman", "pear", "-"]
MATRIX: list[list[float]] = [[2, 2, 0.1], [2, -2, 0.2], [0, 2, 0], [0, -2, 0], [0, 0.1, 1], [0.3, 0, 0.1]]


@pytest.fixture
def royal(tmp_path: Path) -> Path:
    path = tmp_path / "royal.txt"
    Vectors(ROYAL, MATRIX).write(path)
    return path


def test_a_sum_on_the_shell(royal: Path) -> None:
    """Signs as the shell hands them over, and no torch for a file of vectors."""
    code = "import sys; from unrolled.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} words {royal} king - man + woman --count 2"
    result = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "queen  0.9586\n-      0.4623\n"


def test_neighbours_of_a_word(royal: Path) -> None:
    code, out, _ = call("words", royal, "King", "--count", "1")
    assert (code, out) == (0, "man  0.7067\n")
    assert len(call("words", royal, "king")[1].splitlines()) == 5


def test_a_sum_in_quotes_and_a_sign_as_a_word(royal: Path) -> None:
    assert call("words", royal, "king - man + woman") == call("words", royal, "king", "-", "man", "+", "woman")
    assert call("words", royal, "-")[0] == 0


def test_json(royal: Path) -> None:
    _, out, _ = call("words", royal, "king", "-", "man", "+", "woman", "--json", "--count", "1")
    assert json.loads(out) == {
        "query": "king - man + woman",
        "nearest": [{"word": "queen", "cosine": pytest.approx(0.9586, abs=1e-4)}],
    }


def test_analogies(royal: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text(": family\nman king woman queen\nman king woman prince\n: gram1-fruit\nking man queen pear\n")
    code, out, _ = call("words", royal, "--analogies", questions)
    assert code == 0
    assert out == (
        "               right   asked  skipped\n"
        "family       100.00%       1        1\n"
        "gram1-fruit    0.00%       1        0\n"
        "semantic     100.00%\n"
        "syntactic      0.00%\n"
        "total         50.00%       2        1\n"
    )
    scores = json.loads(call("words", royal, "--analogies", questions, "--json")[1])
    assert (scores["total"], scores["asked"], scores["skipped"]) == (0.5, 2, 1)


def test_most_reads_the_first_rows(royal: Path) -> None:
    assert call("words", royal, "king", "--most", "2")[1] == "queen  0.0025\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Give either words, such as king - man + woman, or --analogies FILE."),
        (("king", "--analogies", "q"), "Give either words, such as king - man + woman, or --analogies FILE."),
        (("kin",), "There is no vector for 'kin' among 6 words. Did you mean 'king'?"),
        (("king", "-", "womann"), "There is no vector for 'womann' among 6 words. Did you mean 'woman'?"),
        (
            ("king", "queen"),
            "There is no sign between 'king' and 'queen'. Expected words with + or - between them: king - man + woman",
        ),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str, royal: Path) -> None:
    assert call("words", royal, *words)[::2] == (2, f"unrolled: {message}\n")


def test_no_such_file(tmp_path: Path) -> None:
    assert call("words", tmp_path / "x", "king")[2] == (
        f"unrolled: {tmp_path}/x does not exist. Give a run folder, a model file, or a file of word vectors.\n"
    )


TEXT = "one cat sat on a mat\ntwo dogs ran to the house\n" * 40


@pytest.mark.parametrize(
    ("level", "kind", "token"),
    [
        ("word", "recurrent", "cat"),
        ("word", "feedforward", "dogs"),
        ("char", "recurrent", "\n"),
        ("bpe", "recurrent", " the"),
    ],
)
def test_a_language_model_shows_its_tokens_vectors(level: str, kind: str, token: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {"data.level": level, "model.kind": kind, "model.hidden_size": 8, "train.max_steps": 2}
    settings |= {"train.batch_size": 4, "train.k1": 10}
    model = unrolled.train("generate", train=tmp_path / "text.txt", out=tmp_path / "run", set=settings, quiet=True)
    vectors = model.word_vectors()
    (number,) = (n for n in range(len(model.assets)) if model.assets.token(n) == token)
    assert np.array_equal(vectors[token], model.network.embedding.weight[number].detach())  # type: ignore[union-attr,index]
    for place in (tmp_path / "run", tmp_path / "run" / "best.safetensors"):
        _, out, _ = call("words", place, token, "--json", "--count", "3")
        found = [(entry["word"], entry["cosine"]) for entry in json.loads(out)["nearest"]]
        assert found == vectors.nearest(token, 3)
    shown = call("words", tmp_path / "run", token, "--count", "1000")[1]
    assert len(shown.splitlines()) == len(vectors) - 1


def test_words_with_letters_show_what_is_looked_up() -> None:
    words = Words.train([["The", "cat"], ["the", "dog"]])
    layer = WordInput(len(words.vocabulary), 9, size=4, letter_size=3, letter_hidden=2, word_dropout=0.1)
    vectors = layer.word_vectors(words)
    assert vectors.words == ["the", "cat", "dog"]
    assert torch.equal(torch.from_numpy(vectors["The"]), layer.words.weight[1])


def test_a_model_without_words_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Generate, "tracer", Tracer)
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {"model.hidden_size": 8, "train.max_steps": 1, "train.batch_size": 4}
    unrolled.train("generate", train=tmp_path / "text.txt", out=tmp_path / "run", set=settings, quiet=True)
    assert call("words", tmp_path / "run", "king")[::2] == (
        2,
        "unrolled: A model of generate has no word vectors. Give one that reads words, or a vectors file.\n",
    )
