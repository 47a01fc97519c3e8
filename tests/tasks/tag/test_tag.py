"""`tag` from Python: it learns, scores, tags files, and what goes in broken is said."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unrolled
from tests.tasks.tag.conftest import SMALL, api_sentence, chunked, columns_text, network_of, run, small
from unrolled import Model, api
from unrolled.errors import Note
from unrolled.metrics.spans import may_follow, spans_of, tags_of
from unrolled.tasks.tag.assets import TagAssets
from unrolled.text.vocabulary import Vocabulary


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


def test_iob2_and_bioes_train_the_same_network(chunks: Path, tmp_path: Path) -> None:
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


def test_tags_that_become_one() -> None:
    """B and S, and I and E, of the same kind: also where its name has an E or an S."""
    inner = [f"{mark}-{kind}" for kind in ("PER", "LOC") for mark in "BIES"] + ["O"]
    assets = TagAssets(None, (), Vocabulary(["B-PER"]), "IOB2", Vocabulary(inner))
    alike = {tuple(inner[other] for other in row.nonzero()[0]) for row in assets.same_tag()}
    assert alike == {("B-PER", "S-PER"), ("I-PER", "E-PER"), ("B-LOC", "S-LOC"), ("I-LOC", "E-LOC"), ("O",)}
