"""`translate` from Python: it learns, searches, scores, and what goes in broken is said."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from torch import Tensor

import unrolled
from unrolled import Model, UserError, api
from unrolled.data import Batch, Pair
from unrolled.errors import Note
from unrolled.search import BeamResult, Hypothesis, Limits, Ranking, score_targets
from unrolled.tasks import Request
from unrolled.tasks.contract import Training
from unrolled.tasks.shared.levels import translation_level
from unrolled.tasks.shared.side import Reading
from unrolled.tasks.shared.targets import real_tokens, with_guesses
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch, source_batch
from unrolled.tasks.translate.config import TranslateConfig
from unrolled.tasks.translate.predict import Translation, answer_of
from unrolled.tasks.translate.task import Translate

SMALL: dict[str, Any] = {
    "model.embedding_size": 24,
    "model.encoder.hidden_size": 24,
    "model.decoder.hidden_size": 24,
    "model.encoder.dropout": 0.0,
    "model.decoder.dropout": 0.0,
    "train.batch_size": 16,
    "train.max_steps": 250,
    "train.warmup_steps": 10,
    "train.lr": 0.01,
    "train.average": 0.9,
    "train.label_smoothing": 0.0,
    "train.eval_every": 125,
}
WORDS = {"3": "three", "5": "five", "7": "seven", "8": "eight"}
KINDS: dict[str, dict[str, Any]] = {
    "luong": {},
    "bahdanau": {"model.decoder.attention": "bahdanau", "model.decoder.cell": "gru", "model.decoder.score": "additive"},
    "plain": {"model.decoder.attention": "none", "model.encoder.reverse": True, "model.encoder.bidirectional": False},
    "transformer": {
        "model.kind": "transformer",
        "model.encoder.blocks": 1,
        "model.decoder.blocks": 1,
        "model.encoder.feedforward": 48,
        "model.decoder.feedforward": 48,
    },
}


def real_scores(network: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Scores (N, V) and targets (N,) of the real target tokens, the true ones read."""
    real = real_tokens(batch)
    return network.scores(network(batch).features[real]), batch.targets[real]


def numbers() -> list[tuple[str, str]]:
    """Digits, and the words for them from the last to the first."""
    found = []
    for length in (1, 2, 3):
        for digits in itertools.product(WORDS, repeat=length):
            found.append((" ".join(digits), " ".join(WORDS[d] for d in reversed(digits))))
    return found


def table(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "numbers.tsv"
    path.write_text(table(numbers()))
    return path


@pytest.fixture(scope="module")
def model(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("runs") / "numbers"
    return unrolled.train("translate", train=file, valid=file, out=folder, set=SMALL, quiet=True)


def small(file: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return api.train("translate", train=file, out=folder, set={**SMALL, "train.max_steps": 3, **keys}, quiet=True)


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
    model = unrolled.train("translate", train=path, valid=path, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(path)["exact_match"] == 1.0


def test_one_network_that_writes_while_it_reads_fails(file: Path, tmp_path: Path) -> None:
    """The last word comes first: a network that has read one digit cannot know it."""
    settings = {**SMALL, "model.kind": "stepwise", "model.encoder.bidirectional": False}
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


def test_what_is_drawn_keeps_to_what_was_asked(model: Model) -> None:
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


def test_the_best_model_is_the_best_at_what_can_be_told_apart(model: Model, file: Path, tmp_path: Path) -> None:
    traits = Translate().traits
    assert isinstance(model.config, TranslateConfig)
    assert traits(model.config, model.assets).goal.metric == "exact_match"
    path = tmp_path / "sentences.tsv"
    names = ("Ada", "Grace", "Emmy", "Alan", "Kurt")
    path.write_text("".join(f"{n} geht mit dem Hund\t{n} is walking with the little dog\n" for n in names))
    assert traits(model.config, small(path, tmp_path / "bpe").assets).goal.metric == "bleu"
    assert traits(model.config, small(path, tmp_path / "char", data__level="char").assets).goal.metric == "chrf"


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
    for batch, smoothing in ((train, 0.2), (valid, 0.0)):
        loss = task.loss(model.network, batch, None)
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
        ({"precision": "bf8"}, "Unknown precision 'bf8'. Choices: bf16, fp32."),
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
        ({"prefix": 3}, "prefix=3 is no text. Use what every output begins with."),
        ({"words": 3}, "words=3 are no words. Use a list of texts, or the path of a file."),
        ({"words": [3]}, "words=[3] are no words."),
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
def test_what_is_for_drawing_is_not_for_a_search(option: dict[str, Any], model: Model) -> None:
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
def test_what_is_for_a_search_is_not_for_drawing(option: dict[str, Any], model: Model) -> None:
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
