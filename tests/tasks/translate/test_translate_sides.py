"""Vocabularies and levels of both sides of translate."""

from __future__ import annotations

import unicodedata
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import unrolled
from tests.tasks.translate.conftest import KINDS, SMALL, numbers, real_scores, small, table
from unrolled import Model, UserError, api
from unrolled.data import Pair
from unrolled.errors import Note
from unrolled.tasks import Request
from unrolled.tasks.contract import Training
from unrolled.tasks.shared.levels import translation_level
from unrolled.tasks.shared.targets import with_guesses
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.config import TranslateConfig
from unrolled.tasks.translate.predict import Translation
from unrolled.tasks.translate.task import Translate


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


def test_the_best_model_is_the_best_at_what_can_be_told_apart(model: Model, file: Path, tmp_path: Path) -> None:
    traits = Translate().traits
    assert isinstance(model.config, TranslateConfig)
    assert traits(model.config, model.assets).goal.metric == "exact_match"
    path = tmp_path / "sentences.tsv"
    names = ("Ada", "Grace", "Emmy", "Alan", "Kurt")
    path.write_text("".join(f"{n} geht mit dem Hund\t{n} is walking with the little dog\n" for n in names))
    assert traits(model.config, small(path, tmp_path / "bpe").assets).goal.metric == "bleu"
    assert traits(model.config, small(path, tmp_path / "char", data__level="char").assets).goal.metric == "chrf"


def test_the_level_of_tokens_is_detected() -> None:
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


@pytest.mark.parametrize("forcing", ["never", "linear", "exponential", "inverse_sigmoid"])
def test_own_words_are_read_as_the_schedule_says(forcing: str, file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run")
    task = Translate()
    assert isinstance(model.config, TranslateConfig)
    config = TranslateConfig.model_validate({"train": {"teacher_forcing": forcing}})
    pairs = [Pair(s, t) for s, t in numbers()]
    batch = task.batches(model.config, model.assets, pairs, training=False)[0]
    truth = batch.more["target_inputs"]
    late = with_guesses(model.network, batch, Training(config.train, 1.0)).more["target_inputs"]
    assert torch.equal(late[:, 0], truth[:, 0])
    assert float((late != truth).float().mean()) > 0.2
    if forcing != "never":
        early = with_guesses(model.network, batch, Training(config.train, 0.0)).more["target_inputs"]
        assert float((early != truth).float().mean()) < 0.05


def test_the_exposure_gap_is_in_the_scores(model: Model) -> None:
    scores = model.scores
    assert scores["exposure_gap"] == pytest.approx(scores["forced_accuracy"] - scores["free_accuracy"])
    assert 0.9 < scores["forced_accuracy"] <= 1


def test_label_smoothing_is_torchs_and_only_in_training(file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", train__label_smoothing=0.2, train__batch_size=200)
    assert isinstance(model.config, TranslateConfig)
    task, pairs = Translate(), [Pair(s, t) for s, t in numbers()]
    train = task.batches(model.config, model.assets, pairs, training=True)[0]
    valid = task.batches(model.config, model.assets, pairs, training=False)[0]
    scores, targets = real_scores(model.network.eval(), valid)
    for batch, smoothing, training in ((train, 0.2, Training(model.config.train)), (valid, 0.0, None)):
        loss = task.loss(model.network, batch, None, training)
        wanted = torch.nn.functional.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
        assert float(loss.sum.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
        assert int(loss.count) == sum(len(t.split()) + 1 for _, t in numbers())


def test_a_model_can_be_trained_further(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "first.safetensors")
    path = tmp_path / "more.tsv"
    path.write_text("3 9\tnine three\n9 9\tnine nine\n" * 4)
    settings = {**SMALL, "train.max_steps": 2}
    further = api.train(
        "translate", train=path, out=tmp_path / "run", init=tmp_path / "first.safetensors", set=settings, quiet=True
    )
    assert len(further.assets.target.tokenizer) == len(model.assets.target.tokenizer) + 1
    assert further.assets.source.tokenizer.unknowns("9") == 0


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


def test_a_vector_for_a_source(model: Model) -> None:
    assert model.embed("3 5").shape == (48,)
    assert model.embed(["3 5", "8"]).shape == (2, 48)


def test_pictures(model: Model, tmp_path: Path) -> None:
    model.trace("3 5 8").figure("attention").savefig(tmp_path / "attention.svg")
    assert "<svg" in (tmp_path / "attention.svg").read_text()
    with pytest.raises(UserError, match="There is no text to show"):
        model.trace("")
    with pytest.raises(UserError, match=r"^The prefix has 'nine', which the model does not know."):
        model.trace("3 5", prefix="nine")


def notes_of(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if issubclass(w.category, Note)]


def test_empty_sides_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "holes.tsv"
    path.write_text(table([("3", "three"), ("", "x"), ("5", " "), ("7", "seven"), ("8", "eight")]))
    said = notes_of(lambda: small(path, tmp_path / "run"))
    assert said == ["Pairs with nothing on one side are left out: 2 of them."]
    model = unrolled.load(tmp_path / "run")
    assert model.evaluate(path)["empty"] == 2
    assert model.evaluate(path)["pairs"] == 5


def test_sources_too_long_or_never_seen_are_said(model: Model) -> None:
    request = Request(texts=["3 5 7 8 3 5", "3 what 5"])
    said = notes_of(lambda: list(model.runner.run(request)))
    assert said == [
        "Tokens never seen in training are read as <unk>. There are 1.",
        "Sources longer than any in training (3 tokens) may be translated poorly. There are 1.",
    ]


def test_targets_that_never_end_are_said(model: Model, file: Path) -> None:
    request = Request(texts=["3 5 8", "7"])
    said = notes_of(lambda: list(model.runner.run(request, max_tokens=1, beam=1)))
    assert said == ["2 translations had not ended after the most tokens allowed, and were cut."]


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unknown": "drop"}, "Unknown unknown 'drop'. Choices: auto, forbid, keep, replace."),
        ({"precision": "bf8"}, "Unknown precision 'bf8'. Choices: auto, bf16, fp32."),
        ({"beams": 3}, "Unknown predict option 'beams'. Did you mean 'beam'?"),
        ({"beam": 2, "n_best": 3}, "n_best=3 is more than the beam's size=2. Use a beam of 3."),
        ({"beam": 0}, "beam=0 is not a whole number from 1 up. Use 1."),
        ({"beam": "5"}, "beam='5' is not a whole number from 1 up. Use 1."),
        ({"n_best": 0}, "n_best=0 is not a whole number from 1 up. Use 1."),
        ({"n_best": None}, "n_best=None is not a whole number from 1 up. Use 1."),
        ({"n_best": 0, "temperature": 1.0}, "n_best=0 is not a whole number from 1 up. Use 1."),
        ({"max_tokens": 0}, "max_tokens=0 is not a whole number from 1 up. Use 1."),
        ({"min_tokens": 2.5}, "min_tokens=2.5 is not a whole number from 0 up. Use 1."),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens=3 is more than max_tokens=2. Use fewer."),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram=-1 is not a whole number from 0 up. Use 1."),
        ({"temperature": 1.0, "seed": -1}, "seed=-1 is not a whole number from 0 up. Use 1."),
        ({"temperature": -1}, "temperature=-1 is not a number from 0 to 1e6."),
        ({"temperature": "hot"}, "temperature='hot' is not a number from 0 to 1e6."),
        ({"temperature": 1.0, "top_k": 0.5}, "top_k=0.5 is not a whole number from 0 up."),
        ({"temperature": 1.0, "top_p": 0}, "top_p=0 is not a number above 0 and at most 1."),
        ({"alpha": "x"}, "alpha='x' is not a number from 0 to 100."),
        ({"coverage": -1}, "coverage=-1 is not a number from 0 to 100."),
        ({"alpha": 0.5, "length_penalty": "none"}, "alpha is for length_penalty=gnmt, and length_penalty=none."),
        ({"prefix": 3}, "prefix=3 is not a text. Use what every output begins with."),
        ({"words": 3}, "words=3 are not words. Use a list of texts, or the path of a file."),
        ({"words": [3]}, "words=[3] are not words."),
        ({"prefix": "five nine ten"}, "The prefix has 'nine', which the model does not know. Use what was in its "),
        ({"prefix": "five <eos>"}, "The prefix has '<eos>', which the model does not know."),
        ({"prefix": "five five", "max_tokens": 2}, "The prefix has 2 tokens, and max_tokens=2 leaves none to write."),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str, model: Model) -> None:
    with pytest.raises(UserError) as error:
        model.predict("3", **options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("option", [{"seed": 1}, {"seed": 0}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_sampling_options_are_errors_in_a_search(option: dict[str, Any], model: Model) -> None:
    (name,) = option
    with pytest.raises(UserError) as error:
        model.predict("3", **option)
    assert str(error.value) == (
        f"{name} is for drawing, and without a temperature outputs are searched for. "
        "Give a temperature too (--temperature 1), or leave it out."
    )


@pytest.mark.parametrize(
    "option", [{"beam": 5}, {"length_penalty": "gnmt"}, {"alpha": 1.0}, {"coverage": 0.0}, {"search_stop": "safe"}]
)
def test_search_options_are_errors_in_sampling(option: dict[str, Any], model: Model) -> None:
    (name,) = option
    with pytest.raises(UserError) as error:
        model.predict("3", temperature=1.0, **option)
    assert str(error.value) == (
        f"{name} is for a search, and with a temperature outputs are drawn. Leave out one of the two."
    )


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


def test_inputs_that_are_no_text(model: Model) -> None:
    with pytest.raises(UserError, match=r"The input is int. Expected a text or a list of texts."):
        model.predict(3)
