"""Pairs and their tokens: levels, unknown words, joint sub-words, lengths, and configs that cannot be."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch

import unrolled
from tests.tasks import test_translate
from tests.tasks.test_translate import KINDS, SMALL, every, notes_of, numbers, small, table
from unrolled import UserError, api
from unrolled.data import Pair
from unrolled.search import BeamResult, Hypothesis
from unrolled.tasks.shared.levels import translation_level
from unrolled.tasks.shared.side import Reading
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.predict import Translation, answer_of

file = test_translate.file


@pytest.mark.parametrize("level", ["symbols", "char", "bpe"])
def test_only_words_of_a_list(level: str, file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", data__target__level=level, train__max_steps=60)
    (tmp_path / "words.txt").write_text("three\nseven\n")
    texts = [source for source, _ in numbers()][::5]
    for words in (str(tmp_path / "words.txt"), ("three", "seven")):
        searched = model.predict(texts, words=words, beam=3, n_best=2)
        drawn = model.predict(texts, words=words, temperature=1.0, n_best=2)
        for answer in searched + drawn:
            for one in every(answer):
                assert set(re.findall("[a-z]+", str(one))) <= {"three", "seven"} or not one.ended


def test_unknown_words_are_replaced_by_attention(tmp_path: Path) -> None:
    """Names, each seen once and so unknown, become a word of the source; which one, the attention says."""
    rows = [(f"call name{i} now", f"now ring name{i}") for i in range(60)] + [("call me now", "now ring me")] * 60
    path = tmp_path / "names.tsv"
    path.write_text(table(rows))
    settings = {**SMALL, "data.level": "word", "data.min_count": 2, "train.max_steps": 150}
    model = unrolled.train("translate", train=path, valid=path, out=tmp_path / "run", set=settings, quiet=True)
    assert str(model.predict("call Ada now", unknown="keep")) == "now ring <unk>"
    answer = model.predict("call Ada now", attention=True)
    looked = int(answer.attention[2].argmax())
    assert str(answer) == f"now ring {['call', 'Ada', 'now'][looked]}"
    assert "<unk>" not in str(model.predict("call Ada now", unknown="forbid"))
    assert str(model.predict("call Ada now", temperature=0)) == str(answer)  # drawn ones, too


@pytest.mark.parametrize(("place", "word"), [(0, "Call"), (1, "Ada!"), (2, "now")])
def test_the_word_that_was_looked_at_takes_the_place(place: int, word: str) -> None:
    reading = Reading("word", 2, None, False, "auto")
    assets = TranslateAssets.train([Pair("call now", "now ring")] * 2, reading, reading, joint=True)
    ids = assets.source.ids("Call  Ada! now")
    attention = torch.zeros(3, 4)
    attention[:, 3] = 0.1  # the end of the source is no word
    attention[1, place] = 1.0
    hypothesis = Hypothesis(assets.target.ids("now what").tolist(), -1.0, -1.0, True, attention)
    answer = answer_of(assets, "Call  Ada! now", ids, BeamResult([hypothesis]), replacing=True, shown=False)
    assert answer.text == f"now {word}"


def test_levels_of_each_side(file: Path, tmp_path: Path) -> None:
    changes = {"data.source.level": "char", "data.target.level": "bpe", "data.target.max_size": 270}
    model = small(file, tmp_path / "run", **{k.replace(".", "__"): v for k, v in changes.items()})
    assets: TranslateAssets = model.assets
    assert (assets.source.tokenizer.level, assets.target.tokenizer.level) == ("char", "bpe")
    assert assets.target_size == 270
    assert not assets.joint
    assert assets.target.text(assets.target.ids("three five").tolist()) == "three five"


@pytest.mark.parametrize("joint", [True, False])
def test_joint_and_separate_pieces(joint: bool, file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", data__level="bpe", data__joint=joint)
    network: Any = model.network
    assert model.assets.joint == joint
    assert (network.encoder.embedding is network.embedding) == joint
    loaded = unrolled.load(tmp_path / "run")
    assert loaded.assets.joint == joint
    assert str(loaded.predict("3 5")) == str(model.predict("3 5"))


def test_what_a_token_is_is_found_out() -> None:
    assert translation_level(["가곡", "가공", "가극 어"]) == "char"
    assert translation_level(["k a̠ ɡ o̞ k̚", "n o̞", "t͡ɕ͈ i"]) == "symbols"
    assert translation_level(["one two", "three", "two one three"] * 9) == "symbols"
    assert translation_level(["Zwei Hunde laufen.", "Ein Mann schläft dort."]) == "bpe"
    many = [" ".join(f"{chr(0x4E00 + (i * 7 + j) % 900)}" for j in range(8)) for i in range(300)]
    assert translation_level(many) == "bpe"


def test_korean_syllables_are_read_as_letters_and_written_as_syllables(tmp_path: Path) -> None:
    path = tmp_path / "kor.tsv"
    path.write_text("가곡\tk a\n가공\tk o\n" * 4)
    assets = small(path, tmp_path / "run", data__valid=str(path)).assets
    assert assets.source.form == "NFD"
    assert len(assets.source.ids("가곡")) == 5
    assert assets.source.text(assets.source.ids("가곡").tolist()) == "가곡"
    turned = tmp_path / "turned.tsv"
    turned.write_text("k a\t가곡\nk o\t가공\n" * 4)
    assert small(turned, tmp_path / "turned").assets.target.form == ""
    plain = small(path, tmp_path / "plain", data__source__normalize="none")
    assert len(plain.assets.source.ids("가곡")) == 2
    assert unicodedata.normalize("NFC", "가곡") == "가곡"


def test_in_lower_case_scores_ignore_case(tmp_path: Path) -> None:
    path = tmp_path / "upper.tsv"
    path.write_text("A B C\tX Y Z\nB A C\tY X Z\n" * 4)
    model = small(path, tmp_path / "run", data__lowercase=True)
    assert "case:lc" in model.evaluate(path)["bleu_signature"]
    assert str(model.predict("A b C")) == str(model.predict("a B c")).lower()


def test_two_files_line_by_line(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.src").write_text("".join(f"{s}\n" for s, _ in numbers()))
    (tmp_path / "a.tgt").write_text("".join(f"{t}\n" for _, t in numbers()))
    files = {"data.train_source": str(tmp_path / "a.src"), "data.train_target": str(tmp_path / "a.tgt")}
    settings = {**SMALL, "train.max_steps": 3}
    model = api.train("translate", out=tmp_path / "run", set={**settings, **files}, quiet=True)
    other = api.train("translate", train=file, out=tmp_path / "other", set=settings, quiet=True)
    for a, b in zip(model.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert model.evaluate((tmp_path / "a.src", tmp_path / "a.tgt")) == other.evaluate(file)


def test_empty_sides_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "holes.tsv"
    path.write_text(table([("3", "three"), ("", "x"), ("5", " "), ("7", "seven"), ("8", "eight")]))
    said = notes_of(lambda: small(path, tmp_path / "run"))
    assert said == ["Pairs with nothing on one side are left out: 2 of them."]
    model = unrolled.load(tmp_path / "run")
    assert model.evaluate(path)["empty"] == 2
    assert model.evaluate(path)["pairs"] == 5


def test_long_pairs_can_be_left_out(file: Path, tmp_path: Path) -> None:
    said = notes_of(lambda: small(file, tmp_path / "run", data__max_source_length=2))
    assert len(said) == 1
    assert said[0].endswith("training pairs are longer than data.max_source_length=2, and are left out.")
    too_long = sum(len(line.split("\t")[0].split()) > 2 for line in file.read_text().splitlines())
    assert unrolled.load(tmp_path / "run").evaluate(file)["longer_than_training"] == too_long > 0
    long = tmp_path / "long.tsv"
    long.write_text("3 5\ta\n5 3\tb\n3 3\tc\n")
    with pytest.raises(UserError, match=r"All training pairs are longer than data.max_source_length"):
        small(long, tmp_path / "none", data__max_source_length=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data.train_source": "a.src"},
            "Both data.train and data.train_source are given. Give one table, or two files.",
        ),
        ({"data.valid_source": "a.src"}, "data.valid_target is missing: sources and targets are two files. Give both."),
        ({"data.level": "bpe", "data.max_size": 100}, "data.max_size=100 is too small for bpe. It needs 256 bytes"),
    ],
)
def test_configs_that_cannot_be(changes: dict[str, Any], message: str, file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        api.train("translate", train=file, out=tmp_path / "run", set={**SMALL, **changes}, quiet=True)
    assert str(error.value).startswith(message)
    assert not (tmp_path / "run").exists()


def test_a_model_without_attention_shows_none(file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", **{k.replace(".", "__"): v for k, v in KINDS["plain"].items()})
    answer: Translation = model.predict("3 5")
    assert answer.attention is None
    assert answer.alignment is None
    with pytest.raises(
        UserError, match=r"This model has no attention to show: all it knows of the source is one state."
    ):
        model.trace("3 5").figure("attention")
    with pytest.raises(UserError, match=r"Unknown words are replaced by attention, and this model has none."):
        model.predict("3", unknown="replace")
    with pytest.raises(UserError, match=r"This model has no attention, so there is no coverage."):
        model.predict("3", coverage=0.2)
