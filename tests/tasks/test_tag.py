"""`tag` from Python: it learns, scores, tags files, and what goes in broken is said."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unrolled
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.metrics.spans import may_follow, spans_of, tags_of
from unrolled.models.tagger import Tagger
from unrolled.tasks import Request

SMALL: dict[str, Any] = {
    "model.hidden_size": 16,
    "model.embedding_size": 12,
    "model.letter_size": 6,
    "model.letter_hidden": 6,
    "model.dropout": 0.1,
    "train.batch_size": 8,
    "train.max_steps": 60,
    "train.lr": 0.02,
}
NAMES = ("Ada", "Grace Hopper", "Alan Turing", "Kurt", "Emmy Noether", "Paul")
VERBS = ("saw", "met", "called", "knew")
PLACES = ("Rome", "New York", "Oslo", "San Marino")


def chunked() -> list[list[tuple[str, str, str]]]:
    """Little sentences with names and places, as (word, part of speech, span)."""
    sentences = []
    for i, name in enumerate(NAMES):
        for j, verb in enumerate(VERBS):
            other, place = NAMES[(i + j + 1) % len(NAMES)], PLACES[(i + j) % len(PLACES)]
            row = []
            for text, kind in ((name, "PER"), (verb, ""), (other, "PER"), ("in", ""), (place, "LOC"), (".", "")):
                for k, word in enumerate(text.split()):
                    tag = "O" if not kind else f"{'I' if k else 'B'}-{kind}"
                    row.append((word, "NNP" if kind else "VB" if text == verb else "X", tag))
            sentences.append(row)
    return sentences


def columns_text() -> str:
    return "\n".join("".join(" ".join(word) + "\n" for word in sentence) for sentence in chunked())


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "chunks.txt"
    path.write_text(columns_text())
    return path


@pytest.fixture(scope="module")
def model(chunks: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("runs") / "chunks"
    return unrolled.train("tag", train=chunks, valid=chunks, out=folder, set=SMALL, quiet=True)


def small(file: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train("tag", train=file, out=folder, set={**SMALL, "train.max_steps": 3, **keys}, quiet=True)


def network_of(model: Model) -> Tagger:
    assert isinstance(model.network, Tagger)
    return model.network


def test_it_learns_and_says_how_well(model: Model, chunks: Path) -> None:
    scores = model.evaluate(chunks)
    assert scores["span_f1"] > 0.95
    assert scores["accuracy"] > 0.95
    assert scores["tokens"] == sum(map(len, chunked()))
    assert scores["unknown_words"] == scores["unknown_labels"] == 0
    assert set(scores["spans"]) == {"PER", "LOC"}
    assert scores["tags"]["B-PER"]["count"] == 48
    assert json.loads(json.dumps(scores)) == scores
    assert model.predict("Emmy Noether met Kurt in Oslo .") == [
        ("Emmy", "B-PER"),
        ("Noether", "I-PER"),
        ("met", "O"),
        ("Kurt", "B-PER"),
        ("in", "O"),
        ("Oslo", "B-LOC"),
        (".", "O"),
    ]


@pytest.mark.parametrize("output", ["softmax", "crf"])
def test_it_overfits_eight_sentences(output: str, tmp_path: Path) -> None:
    """Tags drawn at random: nothing but learning by heart gets them right."""
    random = np.random.default_rng(0)
    rows = [
        {"tokens": [f"w{i}" for i in random.integers(0, 40, 6)], "tags": list(random.choice(["A", "B", "C"], 6))}
        for _ in range(8)
    ]
    path = tmp_path / "eight.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {**SMALL, "train.max_steps": 300, "model.dropout": 0.0, "model.word_dropout": 0.0, "model.output": output}
    model = api.train("tag", train=path, valid=path, out=tmp_path / "run", set=keys, quiet=True)
    assert model.scores["accuracy"] == 1.0


def test_many_are_the_same_as_one(model: Model) -> None:
    """Padding and company change nothing, an empty sentence and a strange word included."""
    texts = ["Ada saw Paul in Rome .", "", "Zyx", "Kurt " * 70, "New York"]
    assert model.predict(texts) == [model.predict(text) for text in texts]
    assert model.predict("") == []
    assert model.predict([["New", "York"], ("Ada",)]) == [model.predict("New York"), model.predict("Ada")]
    batch = model.assets.collate([api_sentence(text) for text in texts])
    with torch.no_grad():
        together = model.network(batch)
        for row, text in enumerate(texts):
            alone = model.network(model.assets.collate([api_sentence(text)]))
            assert torch.allclose(together[row, : alone.shape[1]], alone[0], atol=1e-5) or not text


def api_sentence(text: str) -> Any:
    from unrolled.data.readers.tagged.sentences import Sentence

    return Sentence(tuple(text.split()))


def test_saved_and_loaded_is_the_same(model: Model, chunks: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "copy.safetensors")
    loaded = unrolled.load(tmp_path / "copy.safetensors")
    for (name, a), (_, b) in zip(model.network.named_parameters(), loaded.network.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert loaded.evaluate(chunks) == model.evaluate(chunks)


@pytest.mark.parametrize(
    "changes",
    [
        {"model__output": "softmax"},
        {"model__output": "crf", "data__tag_column": "2"},
        {"model__legal": False},
        {"model__bioes": False},
        {"model__letter_hidden": 0},
        {"data__feature_columns": ["2"]},
        {"model__cell": "gru", "model__num_layers": 2, "model__combine": "mix"},
        {"model__peephole": "current", "model__layer_norm": True, "model__variational_dropout": 0.2},
        {"data__min_count": 3, "data__lowercase": False},
        {"train__precision": "bf16"},
        {"train__accumulate": 2, "train__optimizer": "sgd"},
    ],
    ids=lambda changes: " ".join(f"{k}={v}" for k, v in changes.items()),
)
def test_every_option_trains_saves_and_tags(changes: dict[str, Any], chunks: Path, tmp_path: Path) -> None:
    model = small(chunks, tmp_path / "run", **changes)
    loaded = unrolled.load(tmp_path / "run")
    one: Any = {"tokens": ["Ada", "ran"], "2": ["NNP", "VB"]} if "data__feature_columns" in changes else "Ada ran"
    assert loaded.predict(one) == model.predict(one)
    assert all(math.isfinite(value) for value in model.scores.values())


def test_the_output_follows_the_tags(model: Model, chunks: Path, tmp_path: Path) -> None:
    assert network_of(model).crf is not None
    assert network_of(small(chunks, tmp_path / "run", data__tag_column="2")).crf is None


def test_only_legal_sequences_come_out(chunks: Path, tmp_path: Path) -> None:
    """A network that wants to be inside of spans all the time."""
    model = small(chunks, tmp_path / "run", train__max_steps=1, model__bioes=False)
    network, words = network_of(model), [["Ada", "Kurt", "in", "York"] * 5] * 4
    with torch.no_grad():
        network.scores.bias.copy_(torch.tensor([9.0 if tag.startswith("I") else 0.0 for tag in model.assets.tags]))

    def legal() -> list[bool]:
        sentences = [[None, *(tag for _, tag in sentence), None] for sentence in model.predict(words)]
        return [all(may_follow(a, b, "IOB2") for a, b in itertools.pairwise(tags)) for tags in sentences]

    assert all(legal())
    network.forbidden = None
    assert not any(legal())


def test_what_is_learnt_is_where_spans_end_too(chunks: Path, tmp_path: Path) -> None:
    """The data's IOB2 and the same in BIOES teach the same network; each gets its own tags back."""
    turned = tmp_path / "bioes.txt"
    with turned.open("w") as file:
        for sentence in chunked():
            tags = tags_of(spans_of([tag for _, _, tag in sentence]), len(sentence), "BIOES")
            file.writelines(f"{word} {pos} {tag}\n" for (word, pos, _), tag in zip(sentence, tags, strict=True))
            file.write("\n")
    one, other = (small(path, tmp_path / path.stem, train__max_steps=20) for path in (chunks, turned))
    for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert one.scores["span_f1"] == other.scores["span_f1"]
    text = "Emmy Noether met Kurt in San Marino ."
    tags = [tag for _, tag in one.predict(text)]
    assert tags_of(spans_of(tags), len(tags), "BIOES") == [tag for _, tag in other.predict(text)]
    assert not any(tag[0] in "ES" for tag in tags)


def test_a_label_never_seen_is_counted_and_reported(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_text("Ada NNP B-PER\nRome NNP B-GPE\n\nOslo NNP I-GPE\n")
    with pytest.warns(Note) as notes:
        scores = model.evaluate(path)
    assert str(notes[0].message) == (
        f"2 tags were never seen in training, and count as wrong: B-GPE, I-GPE (first: {path}:1)."
    )
    assert scores["unknown_labels"] == 2
    assert scores["accuracy"] == pytest.approx(1 / 3)
    assert scores["spans"]["GPE"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 2}


def test_scores_are_their_definitions(model: Model, tmp_path: Path) -> None:
    """Accuracy, known and unknown words, and F1 of each tag, counted by hand from what predict says."""
    path = tmp_path / "test.jsonl"
    rows = [
        {"tokens": ["Xenia", "met", "Paul"], "tags": ["B-PER", "O", "B-PER"]},
        {"tokens": ["in", "Yorkshire"], "tags": ["O", "B-LOC"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = model.predict([row["tokens"] for row in rows])
    pairs = [(t, a, w) for r, s in zip(rows, answers, strict=True) for t, (w, a) in zip(r["tags"], s, strict=True)]
    scores = model.evaluate(path)
    assert scores["accuracy"] == pytest.approx(np.mean([t == a for t, a, _ in pairs]))
    strange = [t == a for t, a, w in pairs if w in ("Xenia", "Yorkshire")]
    assert scores["unknown_words"] == 2
    assert scores["unknown_word_accuracy"] == pytest.approx(np.mean(strange))
    seen = {t for t, _, _ in pairs} | {a for _, a, _ in pairs}
    f1 = []
    for tag in seen:
        right = sum(t == a == tag for t, a, _ in pairs)
        f1.append(2 * right / (sum(t == tag for t, _, _ in pairs) + sum(a == tag for _, a, _ in pairs)))
        assert scores["tags"][tag]["f1"] == pytest.approx(f1[-1])
    assert scores["macro_f1"] == pytest.approx(np.mean(f1))


def run(model: Model, **request: Any) -> str:
    return "".join(model.runner.run(Request(**request)))


def test_columns_come_back_tagged(model: Model, chunks: Path, tmp_path: Path) -> None:
    text = columns_text()
    assert run(model, files=[str(chunks)]) == text  # it knows its training sentences
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(text.replace("B-LOC", "B-PER"))
    assert run(model, files=[str(wrong)]) == text
    assert run(model, lines=wrong.read_text().splitlines(keepends=True)) == text
    untagged = tmp_path / "words.conll"
    untagged.write_text("".join(line.split()[0] + "\n" if line else "\n" for line in text.split("\n")[:-1]))
    first = "".join(f"{line.split()[0]} {line.split()[2]}\n" if line else "\n" for line in text.split("\n")[:-1])
    assert run(model, files=[str(untagged)]) == first


def test_conllu_comes_back_tagged(chunks: Path, tmp_path: Path) -> None:
    def line(number: str, word: str, tag: str) -> str:
        return "\t".join([number, word, "l", tag, "x", "A=b", "0", "d", "e", "SpaceAfter=No"]) + "\n"

    text = ""
    for n, sentence in enumerate(chunked()):
        text += f"# sent_id = {n}\n" + line("1-2", "AdaLovelace", "_")
        text += "".join(line(str(i), word, pos) for i, (word, pos, _) in enumerate(sentence, 1))
        text += line("3.1", "gone", "_") + "\n"
    (tmp_path / "a.conllu").write_text(text)
    model = small(tmp_path / "a.conllu", tmp_path / "run", train__max_steps=60, data__valid=str(tmp_path / "a.conllu"))
    assert model.scores["accuracy"] == 1.0
    (tmp_path / "b.conllu").write_text(text.replace("\tNNP\t", "\t_\t"))
    assert run(model, files=[str(tmp_path / "b.conllu")]) == text
    assert run(model, lines=(tmp_path / "b.conllu").read_text().splitlines(keepends=True)) == text


def test_texts_come_back_in_every_format(model: Model, tmp_path: Path) -> None:
    texts = ["Ada saw Paul in Rome.", "", "Kurt"]
    plain = run(model, texts=texts)
    assert plain == "Ada/B-PER saw/O Paul/B-PER in/O Rome/B-LOC ./O\n\nKurt/B-PER\n"
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    assert run(model, files=[str(tmp_path / "lines.txt")]) == plain
    assert run(model, lines=[text + "\n" for text in texts]) == plain
    records = [json.loads(line) for line in run(model, texts=texts, format="jsonl").splitlines()]
    chances = records[0].pop("probabilities")
    assert records[0] == {
        "tokens": ["Ada", "saw", "Paul", "in", "Rome", "."],
        "tags": ["B-PER", "O", "B-PER", "O", "B-LOC", "O"],
    }
    assert chances == [round(p, 6) for _, _, p in model.predict(texts[0], probabilities=True)]
    assert records[1] == {"tokens": [], "tags": [], "probabilities": []}
    rows = run(model, texts=["Kurt, Ada"], format="csv").splitlines()
    assert [row.rpartition(",")[0] for row in rows] == ["sentence,token,tag", "1,Kurt,B-PER", '1,",",O', "1,Ada,B-PER"]
    assert rows[0].endswith(",probability")
    assert 0.5 < float(rows[1].rpartition(",")[2]) <= 1
    (tmp_path / "in.jsonl").write_text('{"tokens": ["Ada", "saw"]}\n')
    assert run(model, files=[str(tmp_path / "in.jsonl")]) == "Ada/B-PER saw/O\n"


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
    weight = network_of(model).input.words.weight
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
    many = (words * (100_000 // len(words) + 1))[:100_000]
    path = tmp_path / "long.txt"
    path.write_text("".join(" ".join(word) + "\n" for word in many) + "\n" + columns_text())
    keys = {"model__hidden_size": 4, "data__valid": str(chunks), "train__max_steps": 1, "train__batch_size": 200}
    model = small(path, tmp_path / "run", **keys)
    answers = model.predict([[word for word, _, _ in many], ["Ada"]])
    assert len(answers[0]) == 100_000
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
        with pytest.raises(UserError, match="needs its whole input: it does not stream"):
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
