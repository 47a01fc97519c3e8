"""`translate` from Python: it learns, searches, scores, and what goes in broken is said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

import unrolled
from tests.fitting import fitting
from tests.tasks.translate.conftest import KINDS, SMALL, numbers, real_scores, small, table
from unrolled import Model
from unrolled.data import Pair
from unrolled.search import BeamResult, Hypothesis, Limits, Ranking, score_targets
from unrolled.tasks.shared.side import Reading
from unrolled.tasks.shared.writing import WritingOptions
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch, source_batch
from unrolled.tasks.translate.predict import Translation, answers_of


def every(answer: Translation) -> list[Translation]:
    return [answer, *answer.others]


def test_it_learns_and_says_how_well(model: Model, file: Path) -> None:
    scores = model.evaluate(file)
    assert scores["exact_match"] > 0.95
    assert scores["bleu"] == 0  # no output has the four words that BLEU needs
    assert scores["chrf"] > 95
    assert scores["ter"] < 5
    assert scores["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:")
    assert scores["pairs"] == len(numbers())
    assert scores["empty"] == scores["not_ended"] == scores["unknown_tokens"] == scores["longer_than_training"] == 0
    assert list(scores["by_length"]) == ["1", "2", "3"]
    assert json.loads(json.dumps(scores)) == scores
    assert str(model.predict("3 5 8")) == "eight five three"
    assert [str(t) for t in model.predict(["7", "", "8 3"])] == ["seven", "", "three eight"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_overfits_eight_pairs(kind: str, tmp_path: Path) -> None:
    """Targets drawn at random: nothing but learning by heart gets them right."""
    random = np.random.default_rng(0)
    pairs = [(" ".join(f"s{i}{j}" for j in range(4)), " ".join(random.choice(list("abcd"), 5))) for i in range(8)]
    path = tmp_path / "eight.tsv"
    path.write_text(table(pairs))
    settings = {**SMALL, "data.level": "symbols", "train.max_steps": 200, "train.eval_every": 200, **KINDS[kind]}
    settings = fitting("translate", settings)
    model = unrolled.train("translate", train=path, valid=path, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(path)["exact_match"] == 1.0


def test_one_network_that_writes_while_it_reads_fails(file: Path, tmp_path: Path) -> None:
    """The last word comes first: a network that has read one digit cannot know it."""
    settings = fitting("translate", {**SMALL, "model.kind": "stepwise", "model.encoder.bidirectional": False})
    model = unrolled.train("translate", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    by_length = model.evaluate(file)["by_length"]
    assert by_length["1"]["exact_match"] == 1.0
    assert by_length["3"]["exact_match"] < 0.5


def test_bleu_is_sacrebleus(model: Model, tmp_path: Path) -> None:
    pairs = [(s, t.replace("five", "nine")) for s, t in numbers()]
    path = tmp_path / "wrong.tsv"
    path.write_text(table(pairs))
    scores = model.evaluate(path)
    outputs = [str(t) for t in model.predict([s for s, _ in pairs])]
    assert scores["bleu"] == sacrebleu.corpus_bleu(outputs, [[t for _, t in pairs]], tokenize="none").score
    assert scores["chrf"] == sacrebleu.corpus_chrf(outputs, [[t for _, t in pairs]]).score
    assert scores["ter"] == sacrebleu.corpus_ter(outputs, [[t for _, t in pairs]]).score
    assert scores["exact_match"] == np.mean([o == t for o, (_, t) in zip(outputs, pairs, strict=True)])


@pytest.mark.parametrize("kind", KINDS)
def test_batched_is_single_and_the_search_says_what_the_loss_says(kind: str, file: Path, tmp_path: Path) -> None:
    model = small(file, tmp_path / "run", train__max_steps=30, **KINDS[kind])
    assets: TranslateAssets = model.assets
    texts = [source for source, _ in numbers()][::7]
    together = model.predict(texts, beam=4, n_best=3)
    for text, answer in zip(texts, together, strict=True):
        alone = model.predict(text, beam=4, n_best=3)
        assert [str(t) for t in (alone, *alone.others)] == [str(t) for t in (answer, *answer.others)]
        assert alone.score == pytest.approx(answer.score, abs=1e-4)
        if not answer.ended:
            continue
        ids = (assets.source.ids(text), assets.target.ids(str(answer)))
        with torch.no_grad():
            scores, targets = real_scores(model.network.eval(), pair_batch(assets, [ids]))
        loss = torch.nn.functional.cross_entropy(scores, targets, reduction="sum")
        assert answer.log_prob == pytest.approx(-float(loss), abs=1e-3)
        network: Any = model.network
        (scored,) = score_targets(
            network,
            [ids[1].tolist()],
            Limits(end=assets.target.end),
            start=assets.target.begin,
            memory=network.encode(source_batch(assets, [ids[0]])),
            ranking=Ranking("gnmt", 1.0),
        )
        assert scored.score == pytest.approx(answer.score, abs=1e-4)


def test_saved_and_loaded_it_says_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    loaded = unrolled.load(tmp_path / "model.safetensors")
    one, two = model.predict("5 7 3", attention=True), loaded.predict("5 7 3", attention=True)
    assert (one.text, one.score) == (two.text, two.score)
    assert np.array_equal(one.attention, two.attention)


def test_attention_is_on_the_source_and_gives_an_alignment(model: Model) -> None:
    answer = model.predict("3 5 8", attention=True)
    assert answer.source_tokens == ["3", "5", "8"]
    assert answer.target_tokens == ["eight", "five", "three"]
    assert answer.attention.shape == (3, 3)
    assert answer.attention.sum(axis=1).max() <= 1 + 1e-5
    assert [place for _, place in answer.alignment] == [0, 1, 2]


def test_n_best_are_different_and_in_order(model: Model) -> None:
    answer = model.predict("3 5 8", beam=6, n_best=4)
    assert len({str(t) for t in every(answer)}) == 4
    assert [t.score for t in every(answer)] == sorted((t.score for t in every(answer)), reverse=True)


def test_products_in_bfloat16_find_the_same(model: Model) -> None:
    sources = [source for source, _ in numbers()]
    exact, near = model.predict(sources), model.predict(sources, precision="bf16")
    assert sum(str(a) == str(b) for a, b in zip(exact, near, strict=True)) > 0.98 * len(sources)
    assert any(a.score != b.score for a, b in zip(exact, near, strict=True))
    for a, b in zip(exact, near, strict=True):
        assert str(a) != str(b) or b.log_prob == pytest.approx(a.log_prob, abs=0.1)


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_training_in_bfloat16_is_near(file: Path, tmp_path: Path, kind: str) -> None:
    sizes = {"model__kind": kind, "model__encoder__hidden_size": 16}
    exact, near = (
        small(file, tmp_path / precision, train__precision=precision, train__seed=1, **sizes)
        for precision in ("fp32", "bf16")
    )
    assert near.scores["nats_per_token"] == pytest.approx(exact.scores["nats_per_token"], rel=0.02)
    assert near.scores["nats_per_token"] != exact.scores["nats_per_token"]


def test_options_of_the_search(model: Model) -> None:
    assert str(model.predict("3 5 8", prefix="five")).startswith("five")
    assert len(model.predict("3", min_tokens=3).target_tokens) >= 3
    cut = model.predict("3 5 8", max_tokens=2, beam=1)
    assert not cut.ended
    assert len(cut.target_tokens) == 2
    drawn = [str(t) for t in model.predict(["3 5 8"] * 4, temperature=2.0, seed=3)]
    assert drawn == [str(t) for t in model.predict(["3 5 8"] * 4, temperature=2.0, seed=3)]
    assert len(set(drawn)) > 1
    mixed = model.predict(["3 5 8", "3", "3 5 8"], temperature=2.0, seed=3)
    assert [str(mixed[0]), str(mixed[2])] == [drawn[0], drawn[2]]
    assert str(model.predict("3 5 8", beam=3, coverage=0.2, length_penalty="average")) == "eight five three"


def test_samples_obey_the_options(model: Model) -> None:
    texts = ["3", "3 5 8", "7 7"] * 4
    drawing: dict[str, Any] = {"temperature": 2.0, "seed": 1}
    for answer in model.predict(texts, prefix="five seven", **drawing):
        assert answer.target_tokens[:2] == ["five", "seven"]
    for answer in model.predict(texts, words=("three", "seven"), **drawing):
        assert set(answer.target_tokens) <= {"three", "seven"}
    assert all(len(a.target_tokens) >= 6 for a in model.predict(texts, min_tokens=6, **drawing))
    assert all(len(a.target_tokens) >= 40 for a in model.predict(texts, min_tokens=40, **drawing))
    for answer in model.predict(texts, prefix="five", max_tokens=3, **drawing):
        assert len(answer.target_tokens) == 3 if not answer.ended else len(answer.target_tokens) < 3
    for answer in model.predict(texts, no_repeat_ngram=1, prefix="five", **drawing):
        assert len(set(answer.target_tokens)) == len(answer.target_tokens)


def test_draws_are_so_many_and_the_same_in_any_batch(model: Model) -> None:
    answers = model.predict(["3 5 8", "3 5 8"], temperature=3.0, seed=4, n_best=5)
    for answer in answers:
        assert len(every(answer)) == 5
        assert len({str(one) for one in every(answer)}) > 1
        assert [one.score for one in every(answer)] == sorted((one.score for one in every(answer)), reverse=True)
    assert [str(one) for one in every(answers[0])] != [str(one) for one in every(answers[1])]
    alone = model.predict("3 5 8", temperature=3.0, seed=4, n_best=5)
    assert [str(one) for one in every(alone)] == [str(one) for one in every(answers[0])]


@pytest.mark.parametrize("prefix", [None, "five"])
def test_a_draw_has_the_score_and_the_attention_of_a_search(model: Model, prefix: str | None) -> None:
    drawn = model.predict(["3 5 8", "7"] * 5, temperature=1.5, seed=2, prefix=prefix, attention=True)
    compared = 0
    for source, answer in zip(["3 5 8", "7"] * 5, drawn, strict=True):
        again = model.predict(source, prefix=str(answer), beam=1, attention=True, max_tokens=20)
        assert answer.score == answer.log_prob
        assert answer.attention.shape == (len(answer.target_tokens), len(answer.source_tokens))
        if again.target_tokens == answer.target_tokens and again.ended == answer.ended:
            compared += 1
            assert answer.log_prob == pytest.approx(again.log_prob, abs=1e-4)
            assert np.allclose(answer.attention, again.attention, atol=1e-5)
    assert compared


def test_a_long_prefix_is_written_whole(model: Model) -> None:
    prefix = " ".join(["five"] * 40)  # longer than an output would be by itself
    for options in ({}, {"temperature": 1.0}):
        assert str(model.predict("3", prefix=prefix, **options)).startswith(prefix)


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
    shown = assets.source.shown(assets.source.ids("Call  Ada! now").tolist())
    attention = torch.zeros(3, 4)
    attention[:, 3] = 0.1  # the end of the source is no word
    attention[1, place] = 1.0
    hypothesis = Hypothesis(assets.target.ids("now what").tolist(), -1.0, -1.0, True, attention)
    (answer,) = answers_of(
        assets, ["Call  Ada! now"], [shown], [BeamResult([hypothesis])], replacing=True, options=WritingOptions()
    )
    assert answer.text == f"now {word}"
