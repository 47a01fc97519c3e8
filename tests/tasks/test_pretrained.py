"""Pretrained vectors in `generate` and `translate`: the words of the file start from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unrolled import UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob

TEXT = "the cat sat on the Mat\nthe dog sat on a rug\n" * 20
WORDS = ["the", "cat", "mat", "dog", "king"]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """GloVe's text: in lower case, with a word that the texts have not."""
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{word} {n} {n + 0.5} {-n} 1\n" for n, word in enumerate(WORDS, 1)))
    return path


def expected(word: str) -> list[float]:
    n = WORDS.index(word.lower()) + 1
    return [n, n + 0.5, -n, 1]


def a_job(task: str, file: Path, **keys: Any) -> TrainingJob:
    changes = {key.replace("__", "."): value for key, value in keys.items()}
    return TrainingJob(api.configure(task, [], {"data.train": str(file), "train.batch_size": 4, **changes}))


def rows_of(tokenizer: Any, weight: torch.Tensor) -> dict[str, list[float]]:
    return {tokenizer.token(i): weight[i].tolist() for i in range(len(tokenizer))}


@pytest.mark.parametrize("kind", ["recurrent", "transformer", "feedforward"])
def test_a_language_model_starts_from_them(kind: str, vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    width = {"model__hidden_size": 4, "model__heads": 2} if kind == "transformer" else {"model__embedding_size": 4}
    keys: dict[str, Any] = {"data__level": "word", "data__vectors": str(vectors), "model__kind": kind, **width}
    with pytest.warns(Note, match=r"glove\.txt has vectors of 4 of \d+ words; the others start at random\."):
        job = a_job("generate", tmp_path / "book.txt", **keys)
    network: Any = job.model.network
    found = rows_of(job.assets, network.embedding.weight)
    for word in ("the", "cat", "Mat", "dog"):
        assert found[word] == expected(word)
    assert found["sat"] != pytest.approx([0, 0, 0, 0])
    assert network.embedding.weight.requires_grad


def test_they_stay_as_they_are_if_asked(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    keys = {"data.level": "word", "data.vectors": str(vectors), "model.embedding_size": 4, "model.tune_vectors": False}
    short = {"train.max_steps": 2, "train.batch_size": 4, "model.hidden_size": 5}
    model = api.train("generate", train=tmp_path / "book.txt", out=tmp_path / "m", set={**keys, **short}, quiet=True)
    network: Any = model.network
    assert rows_of(model.assets, network.embedding.weight)["cat"] == expected("cat")
    loaded: Any = api.load(tmp_path / "m").network  # without the file of vectors
    assert torch.equal(loaded.embedding.weight, network.embedding.weight)


@pytest.mark.parametrize("kind", ["recurrent", "transformer", "stepwise"])
def test_either_side_of_a_translator_starts_from_them(kind: str, vectors: Path, tmp_path: Path) -> None:
    pairs = "".join(f"the cat {i}\tdog the {i}\n" for i in range(20))
    (tmp_path / "pairs.tsv").write_text(pairs)
    keys: dict[str, Any] = {"model__kind": kind, "data__level": "word", "data__source_vectors": str(vectors)}
    if kind == "transformer":
        keys |= {"model__encoder__hidden_size": 4, "model__encoder__heads": 2, "model__decoder__heads": 2}
    else:
        keys |= {"model__embedding_size": 4}
    if kind == "stepwise":
        keys |= {"model__encoder__bidirectional": False}
    else:
        keys |= {"data__target_vectors": str(vectors)}
    job = a_job("translate", tmp_path / "pairs.tsv", **keys, model__tune_vectors=False)
    network: Any = job.model.network
    table = {"recurrent": lambda: network.encoder.embedding, "transformer": lambda: network.source}
    source = table.get(kind, lambda: network.embedding)()
    assert rows_of(job.assets.source.tokenizer, source.weight)["cat"] == expected("cat")
    assert not source.weight.requires_grad
    if kind != "stepwise":
        assert rows_of(job.assets.target.tokenizer, network.embedding.weight)["dog"] == expected("dog")
        assert network.embedding.weight.requires_grad
    assert np.isfinite(job.trainer().update().loss)


def test_mistakes_say_what_to_do(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    (tmp_path / "pairs.tsv").write_text("".join(f"the cat {i}\tdog the {i}\n" for i in range(20)))
    book, pairs = tmp_path / "book.txt", tmp_path / "pairs.tsv"
    with pytest.raises(UserError, match=r"data\.vectors=.* does nothing here: it belongs to data\.level=word"):
        a_job("generate", book, data__vectors=str(vectors))
    with pytest.raises(UserError) as error:
        a_job("generate", book, data__vectors=str(vectors), data__level="word")
    assert str(error.value) == (
        f"The vectors of {vectors} have 4 numbers, and the model's have 64. Use model.embedding_size=4."
    )
    with pytest.raises(UserError) as error:
        a_job("translate", pairs, data__source_vectors=str(vectors), data__source__level="char")
    assert str(error.value) == (
        "data.source_vectors are of words, and the tokens are of level char. Use data.source.level=word."
    )
