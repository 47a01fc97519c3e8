"""Texts, features and columns that tag reads."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unrolled
from tests.tasks.tag.conftest import SMALL, api_sentence, chunked, columns_text, network_of, run, small
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.models.inputs import WordInput


def test_text_that_ends_in_a_tag_is_still_text(chunks: Path, tmp_path: Path) -> None:
    """Many tag sets call the full stop "."."""
    path = tmp_path / "dots.txt"
    path.write_text(columns_text().replace(". X O", ". . ."))
    model = small(path, tmp_path / "run")
    assert "." in model.assets.tags
    for text in ("Ada ran .\n", "Ada ran .\nKurt saw Paul .\n"):
        assert run(model, lines=text.splitlines(keepends=True)).count("/") == len(text.split())


def test_features_are_read(chunks: Path, tmp_path: Path) -> None:
    """The tag is in the feature: with it the model cannot fail, whatever the word."""
    keys = {"data__feature_columns": ["2"], "data__tag_column": "2", "train__max_steps": 80}
    model = small(chunks, tmp_path / "run", **keys)
    answer = model.predict({"tokens": ["Quux", "Quux", "Quux"], "2": ["NNP", "X", "VB"]})
    assert [tag for _, tag in answer] == ["NNP", "X", "VB"]
    with pytest.raises(UserError) as error:
        model.predict("Ada saw")
    assert str(error.value) == (
        "This model reads more than words: the columns 2. "
        "Give them too: a file, or from Python a dictionary of lists by name."
    )
    with pytest.raises(UserError, match=r"The input has no '2'\. It has: tokens"):
        model.predict({"tokens": ["a"]})
    with pytest.raises(UserError, match=r"The input has 2 tokens and 1 2\. Expected one for each"):
        model.predict({"tokens": ["a", "b"], "2": ["X"]})


@pytest.mark.parametrize("tuned", [True, False])
def test_pretrained_vectors(tuned: bool, chunks: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("ada 1 2 3\nparis 4 5 6\nrome -1 -2 -3\n")
    keys = {"data__vectors": str(vectors), "model__tune_vectors": tuned, "train__lr": 1e-3}
    model = small(chunks, tmp_path / "run", **keys)
    inputs = network_of(model).input
    assert isinstance(inputs, WordInput)
    weight = inputs.words.weight
    words = model.assets.words
    expected = torch.tensor([[1.0, 2, 3], [4, 5, 6], [-1, -2, -3]])
    found = weight[words.ids(["Ada", "Paris", "Rome"])]
    assert torch.allclose(found, expected, atol=0.1)
    assert torch.equal(found, expected) is not tuned
    assert torch.equal(torch.from_numpy(model.word_vectors()["rome"]), found[2])
    test = tmp_path / "test.txt"
    test.write_text("Paris NNP B-LOC\nKurt NNP B-PER\n")
    assert model.evaluate(test)["unknown_words"] == 1  # it has a vector, but was in no training sentence
    assert unrolled.load(tmp_path / "run").predict("Paris") == model.predict("Paris")


def test_fine_tuning_extends_words_and_tags(model: Model, tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("Björk NNP B-MUS\nsang VB O\n\nAda NNP B-PER\nsang VB O\n")
    model.save(tmp_path / "old.safetensors")
    tuned = api.train(
        "tag",
        train=more,
        valid=more,
        out=tmp_path / "run",
        init=tmp_path / "old.safetensors",
        set={"train.max_steps": 1, "train.lr": 1e-9},
        quiet=True,
    )
    old, new = model.assets.tags.tokens, tuned.assets.tags.tokens
    assert new == (*old, "B-MUS", "I-MUS")
    assert tuned.assets.learnt.tokens == (*model.assets.learnt.tokens, "S-MUS")
    crf = network_of(tuned).crf
    before = network_of(model).crf
    assert crf is not None
    assert before is not None
    known = len(model.assets.learnt)
    assert torch.allclose(crf.transitions[:known, :known], before.transitions, atol=1e-6)
    assert tuned.predict("Ada saw Paul in Rome .") == model.predict("Ada saw Paul in Rome .")


def test_embeddings_are_the_mean_of_the_states(model: Model) -> None:
    vectors = model.embed(["Ada saw Paul", "Rome"])
    assert vectors.shape == (2, 32)
    with torch.no_grad():
        states = network_of(model).states(model.assets.collate([api_sentence("Ada saw Paul")]))
    assert np.allclose(vectors[0], states[0].mean(0).numpy(), atol=1e-5)
    assert np.allclose(model.embed("Rome"), vectors[1], atol=1e-5)


def test_a_very_long_sentence(chunks: Path, tmp_path: Path) -> None:
    words = [word for sentence in chunked() for word in sentence]
    many = (words * (20_000 // len(words) + 1))[:20_000]
    path = tmp_path / "long.txt"
    path.write_text("".join(" ".join(word) + "\n" for word in many) + "\n" + columns_text())
    keys = {"model__hidden_size": 4, "data__valid": str(chunks), "train__max_steps": 1, "train__batch_size": 200}
    model = small(path, tmp_path / "run", **keys)
    answers = model.predict([[word for word, _, _ in many], ["Ada"]])
    assert len(answers[0]) == 20_000
    assert answers[1] == model.predict("Ada")


class TestMistakes:
    def test_one_class_only(self, tmp_path: Path) -> None:
        path = tmp_path / "one.txt"
        path.write_text("a X\n\nb X\n")
        with pytest.raises(UserError) as error:
            small(path, tmp_path / "run")
        assert str(error.value) == (
            f"Every word of {path} has the tag 'X': there is nothing to learn. "
            "Give another column: data.column for CoNLL-U, data.tag_column for other files."
        )
        assert not (tmp_path / "run").exists()

    def test_one_sentence_only(self, tmp_path: Path) -> None:
        path = tmp_path / "one.txt"
        path.write_text("a X\nb Y\n")
        with pytest.raises(UserError, match=r"one\.txt holds one sentence\. Give more, or a file with data\.valid"):
            small(path, tmp_path / "run")

    def test_empty_sentences_are_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        rows = [
            {"tokens": ["a", "b"], "tags": ["X", "Y"]},
            {"tokens": [], "tags": []},
            {"tokens": ["c", "b"], "tags": ["X", "Y"]},
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.warns(Note, match="1 empty sentences of .*a.jsonl are left out"):
            model = small(path, tmp_path / "run")
        assert model.scores["tokens"] == 2

    def test_inputs_that_are_none(self, model: Model) -> None:
        with pytest.raises(UserError) as error:
            model.predict([5])
        assert str(error.value) == "An input is int. Expected a text or a list of words, or a list of them."
        for wrong in (None, 5, 2.5, b"Ada", Path("a.txt")):
            for method in (model.predict, model.embed, model.trace):
                with pytest.raises(UserError, match=f"An input is {type(wrong).__name__}. Expected a text or a list"):
                    method(wrong)
        with pytest.raises(UserError, match=r"The input has no 'tokens'\. It has: nothing\."):
            model.predict({})
        with pytest.raises(UserError, match=r"The input: tokens is not a list of texts\."):
            model.predict({"tokens": "Ada"})
        with pytest.raises(UserError, match="Unknown predict option 'beam'"):
            model.predict("Ada", beam=3)
        with pytest.raises(UserError, match="This model reads from both ends, and needs the end"):
            model.stream()


class TestKeysAboutColumns:
    @pytest.mark.parametrize("given", [2, "2", [2], ["2"], [2, 1], "2, 1", [-2]])
    def test_features_are_numbers_or_names(self, given: Any, chunks: Path, tmp_path: Path) -> None:
        model = small(chunks, tmp_path / "run", train__max_steps=1, data__feature_columns=given)
        names = [part.strip() for part in str(given).strip("[]").replace("'", "").split(",")]
        assert [len(values) for values in model.assets.features] == [len(values_in(name)) + 1 for name in names]
        words = {"tokens": ["Ada"], **{name: ["NNP"] for name in names}}
        assert unrolled.load(tmp_path / "run").predict(words) == model.predict(words)

    def test_one_name(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        row = {"tokens": ["a", "b"], "tags": ["X", "Y"], "pos": ["P", "Q"]}
        path.write_text("".join(json.dumps({**row, "tokens": [f"a{i}", "b"]}) + "\n" for i in range(4)))
        model = small(path, tmp_path / "run", train__max_steps=1, data__feature_columns="pos")
        assert "P" in model.assets.features[0]

    def test_columns_are_numbers(self, chunks: Path, tmp_path: Path) -> None:
        keys = {"data__tag_column": 2, "data__word_column": 1, "train__max_steps": 1}
        assert set(small(chunks, tmp_path / "run", **keys).assets.tags) == {"NNP", "VB", "X"}

    @pytest.mark.parametrize(
        ("name", "key", "value", "message"),
        [
            (
                "a.conllu",
                "tag_column",
                5,
                "{path} is CoNLL-U: data.tag_column=5 does not apply. "
                "Leave it out: words are in the column form, and data.column says which one is learnt.",
            ),
            (
                "a.conllu",
                "word_column",
                "lemma",
                "{path} is CoNLL-U: data.word_column='lemma' does not apply. "
                "Leave it out: words are in the column form, and data.column says which one is learnt.",
            ),
            (
                "a.jsonl",
                "column",
                "xpos",
                "{path} is not CoNLL-U: data.column='xpos' does not apply. "
                "Leave it out, and set data.tag_column if tags are not in their usual place.",
            ),
            (
                "a.txt",
                "column",
                "xpos",
                "{path} is not CoNLL-U: data.column='xpos' does not apply. "
                "Leave it out, and set data.tag_column if tags are not in their usual place.",
            ),
        ],
    )
    def test_a_key_that_no_file_has_a_use_for(
        self, name: str, key: str, value: Any, message: str, tmp_path: Path
    ) -> None:
        path = write_kind(tmp_path / name)
        with pytest.raises(UserError) as error:
            small(path, tmp_path / "run", **{f"data__{key}": value})
        assert str(error.value) == message.format(path=path)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(("key", "value"), [("tag_column", 2), ("column", "xpos"), ("feature_columns", 2)])
    def test_a_key_without_any_file(self, key: str, value: Any, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=f"There is no file to train on: data.{key}={value!r} does not apply"):
            api.train("tag", out=tmp_path / "run", set={**SMALL, f"data.{key}": value}, quiet=True)

    def test_files_of_two_kinds_have_a_use_for_both(self, tmp_path: Path) -> None:
        train, valid = write_kind(tmp_path / "a.conllu"), write_kind(tmp_path / "a.txt")
        keys = {"data__valid": str(valid), "data__tag_column": 2, "data__column": "xpos"}
        model = small(train, tmp_path / "run", train__max_steps=1, **keys)
        assert set(model.assets.tags) == {"XA", "XB"}

    def test_a_model_trained_further_brings_its_column_along(self, tmp_path: Path) -> None:
        train, more = write_kind(tmp_path / "a.conllu"), write_kind(tmp_path / "a.txt")
        small(train, tmp_path / "old", train__max_steps=1, data__column="xpos")
        keys = {"train.max_steps": 1}
        tuned = api.train("tag", train=more, out=tmp_path / "run", init=tmp_path / "old", set=keys, quiet=True)
        assert set(tuned.assets.tags) == {"XA", "XB", "A", "B"}

    def test_scores_on_conllu_say_what_they_compare(self, tmp_path: Path) -> None:
        model = small(write_kind(tmp_path / "a.txt"), tmp_path / "run", train__max_steps=1, data__tag_column=2)
        path = write_kind(tmp_path / "a.conllu")
        with pytest.warns(Note, match="a.conllu is CoNLL-U: its column upos is compared, and data.tag_column does not"):
            model.evaluate(path)


def values_in(column: str) -> set[str]:
    return {word[int(column) - (int(column) > 0)] for sentence in chunked() for word in sentence}


def write_kind(path: Path) -> Path:
    """Four sentences in a file of the kind that its name tells."""
    lines = {
        ".conllu": "1\ta{}\t_\tA\tXA" + "\t_" * 5 + "\n2\tb\t_\tB\tXB" + "\t_" * 5 + "\n\n",
        ".jsonl": '{{"tokens": ["a{}", "b"], "tags": ["A", "B"]}}\n',
        ".txt": "a{} A\nb B\n\n",
    }[path.suffix]
    path.write_text("".join(lines.format(number) for number in range(4)))
    return path


def test_the_embedded_source_is_what_runs_without_data(tmp_path: Path, capfd: Any) -> None:
    api.train("tag", out=tmp_path / "run", set={**SMALL, "train.max_steps": 1})
    assert "the source of Python's own library" in capfd.readouterr().err


def test_check_finds_what_is_shared_and_unknown(chunks: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    first = columns_text().split("\n\n")[0]
    valid.write_text(f"{first}\n\nXenia NNP B-MUS\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = api.check("tag", [], {**SMALL, "data.train": str(chunks), "data.valid": str(valid)}).facts
    assert facts["valid sentences also in train"] == "1 of 2"
    assert facts["valid words unknown"] == 1
    assert facts["valid tags never in train"] == 1
    assert facts["spans"] == "IOB2"
