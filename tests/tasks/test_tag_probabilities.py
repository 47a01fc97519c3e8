"""Probabilities of a tagger, addresses that stay whole, and tags that are numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch

from tests.fitting import fitting
from unrolled import Model, UserError, api
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import Note
from unrolled.models.tagger import Tagger
from unrolled.tasks.tag.config import TagConfig
from unrolled.tasks.tag.documents import words_of
from unrolled.tasks.tag.task import Tag

SMALL: dict[str, Any] = {
    "model.hidden_size": 8,
    "model.letter_hidden": 4,
    "train.max_steps": 12,
    "train.batch_size": 8,
    "train.eval_every": 12,
}
NAMES = ["O", "B-PER", "I-PER", "B-LOC"]
PEOPLE = ["Ada", "Kurt", "Alan", "Grace"]
ROWS: list[dict[str, Any]] = [
    {"tokens": [PEOPLE[i % 4], "met", PEOPLE[i // 4 % 4], "in", ("Rome", "Oslo")[i % 2]], "ner_tags": [1, 0, 1, 0, 3]}
    for i in range(40)
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "a.jsonl"
    rows = [{"tokens": row["tokens"], "tags": [NAMES[int(tag)] for tag in row["ner_tags"]]} for row in ROWS]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def small(file: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train("tag", train=file, out=folder, set=fitting("tag", {**SMALL, **keys}), quiet=True)


@pytest.mark.parametrize(
    ("output", "bioes"), [("softmax", False), ("crf", False), ("crf", True)], ids=["softmax", "crf", "crf of bioes"]
)
def test_probabilities_are_those_of_the_network(output: str, bioes: bool, file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", model__output=output, model__bioes=bioes)
    words = [["Ada", "met", "Kurt"], ["Oslo"]]
    answers = model.predict(words, probabilities=True)
    assert [[one[:2] for one in answer] for answer in answers] == model.predict(words)
    for sentence, answer in zip(words, answers, strict=True):
        batch = model.assets.collate([Sentence(tuple(sentence))])  # alone: how they are batched changes nothing
        with torch.no_grad():
            scores = model.network(batch)
        assert isinstance(model.network, Tagger)
        chances = model.network.probabilities(batch, scores)[0]
        assert chances.sum(-1) == pytest.approx(torch.ones(len(sentence)), abs=1e-5)
        for t, (_, tag, probability) in enumerate(answer):
            marks = {"B": "BS", "I": "IE", "O": "O"}[tag[0]] if bioes else tag[0]
            kin = [i for i, name in enumerate(model.assets.learnt) if name[0] in marks and name[1:] == tag[1:]]
            assert probability == pytest.approx(float(chances[t, kin].sum()), abs=1e-5)
    if output == "softmax":
        assert all(probability == max(chances[t]) for t, (_, _, probability) in enumerate(answers[1]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("See https://x.y.", ["See", "https://x.y", "."]),
        ("(http://a.b/c_(d)?q=1&r=2#top),", ["(", "http://a.b/c_(d)?q=1&r=2#top", ")", ","]),
        ("www.example.org/x!", ["www.example.org/x", "!"]),
        ("Write to ada.b+c@math.ox.ac.uk, please", ["Write", "to", "ada.b+c@math.ox.ac.uk", ",", "please"]),
        ("RT @ada_l: #news,#x", ["RT", "@ada_l", ":", "#news", ",", "#x"]),
        ("1,234.56 12:30:15 2024-01-31 3/4 1'000", ["1,234.56", "12:30:15", "2024-01-31", "3/4", "1'000"]),
        ("C# @ # http:// a @", ["C", "#", "@", "#", "http", ":", "/", "/", "a", "@"]),
        ("我爱#北京", ["我", "爱", "#", "北", "京"]),
        ("don't 3.5 state-of-the-art", ["don't", "3.5", "state-of-the-art"]),
    ],
)
def test_addresses_stay_whole(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_a_long_text_without_blanks_takes_no_time() -> None:
    for text in ("a." * 50_000, "@a," * 30_000, "a@" * 50_000, "http://" * 20_000):
        assert "".join(words_of(text)) == text


def test_names_of_hugging_face(tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist([{**row, "pos_tags": [0] * 5} for row in ROWS])
    feature = {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}
    about = {"huggingface": json.dumps({"info": {"features": {"ner_tags": feature}}})}
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table.replace_schema_metadata(about), path)
    with pytest.raises(
        UserError, match=r"has several columns of tags: ner_tags, pos_tags\. Say which: data\.tag_column"
    ):
        small(path, tmp_path / "run")
    model = small(path, tmp_path / "run", data__tag_column="ner_tags")
    assert {"O", "B-PER", "B-LOC"} <= set(model.assets.tags)
    assert model.evaluate(path)["unknown_labels"] == 0


def test_tags_that_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    with pytest.warns(Note, match=r"ner_tags are whole numbers without names: the tags are '0', '1', …"):
        assert list(small(path, tmp_path / "a").assets.tags) == ["0", "1", "3"]
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    (tmp_path / "names.json").write_text(json.dumps({"ner_tags": {"feature": {"names": NAMES}}}))
    for names in (",".join(NAMES), str(tmp_path / "names.txt"), str(tmp_path / "names.json")):
        config = api.configure("tag", [], {"data.train": str(path), "data.tag_names": names})
        assert isinstance(config, TagConfig)
        assert Tag().read(config).train[0].tags == ("B-PER", "O", "B-PER", "O", "B-LOC")
    config = api.configure("tag", ["data.tag_names=O,B-PER"], {"data.train": str(path)})
    assert isinstance(config, TagConfig)
    with pytest.raises(
        UserError, match=r"a\.jsonl:1: ner_tags holds 3, and there are 2 names\. Expected numbers from 0"
    ):
        Tag().read(config)
