"""The wide path of a classifier: its n-grams and its fit against scikit-learn's, and training that starts from it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import unrolled
from tests.tasks.test_classify import SMALL, sentences, write
from unrolled import Model, UserError
from unrolled.data.batching.ngrams import NgramCounts
from unrolled.models.linear_fit import LinearProblem, Link, SparseRows, fit_linear
from unrolled.models.wide import LinearClassifier, WidePath
from unrolled.tasks.classify.wide import Answers, WideTexts, fit_wide, fold_of
from unrolled.text import split_words
from unrolled.text.ngrams import NgramKinds, letter_runs, run_hash, spelt_hash

TEXTS = ["a fine film", "A dull, dull film !", "", "fine fine fine music", "the cat sat on the mat", "O o"]
MIXED: dict[str, Any] = {**SMALL, "model.ngrams": 0}
LINEAR: dict[str, Any] = {"model.kind": "linear", "train.threads": 1}


def dense(entries: dict[str, NDArray[Any]], buckets: int) -> NDArray[np.float64]:
    """The weights of each text by bucket."""
    table = np.zeros((len(entries["wide_starts"]), buckets))
    ends = np.append(entries["wide_starts"][1:], len(entries["wide_ngrams"]))
    for row, (start, end) in enumerate(zip(entries["wide_starts"], ends, strict=True)):
        np.add.at(table[row], entries["wide_ngrams"][start:end], entries["wide_weights"][start:end])
    return table


@pytest.mark.parametrize("apart", [True, False])
def test_ngrams_weigh_as_in_scikit_learn(apart: bool) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    buckets, kinds = 2**20, NgramKinds(2, (2, 4), 2**20, apart)

    def runs(text: str) -> list[int]:
        words = [word.lower() for word in split_words(text)]
        pairs = [run_hash(*pair) for pair in pairwise(words)]
        return [one % buckets for one in (*map(run_hash, words), *pairs)]

    def letters(text: str) -> list[int]:
        return [spelt_hash(r) % buckets for word in split_words(text) for r in letter_runs(word.lower(), 2, 4)]

    analyzers = [runs, letters] if apart else [lambda text: [*runs(text), *letters(text)]]
    expected = np.zeros((len(TEXTS), buckets))
    for analyzer in analyzers:
        vectors = TfidfVectorizer(analyzer=analyzer, sublinear_tf=True, use_idf=False)
        found = vectors.fit_transform(TEXTS).toarray()
        expected[:, [*vectors.vocabulary_]] += found[:, [*vectors.vocabulary_.values()]]
    entries = NgramCounts([split_words(text) for text in TEXTS], kinds).gather(np.arange(len(TEXTS)))
    assert np.abs(dense(entries, buckets) - expected).max() < 1e-6


def test_letters_are_those_of_scikit_learn() -> None:
    """Its char_wb marks both ends of a word by a blank."""
    from sklearn.feature_extraction.text import CountVectorizer

    cut = CountVectorizer(analyzer="char_wb", ngram_range=(2, 5)).build_analyzer()
    for word in ("telephone", "ox", "naïve", "don't"):
        assert {run.replace("^", " ").replace("$", " ") for run in letter_runs(word, 2, 5)} == set(cut(word))


def test_some_rows_are_those_of_all() -> None:
    counts = NgramCounts([split_words(text) for text in TEXTS], NgramKinds(3, (1, 3), 500, True))
    every = dense(counts.gather(np.arange(len(TEXTS))), 500)
    rows = np.array([4, 2, 0])
    assert np.array_equal(dense(counts.gather(rows), 500), every[rows])


def sparse(random: np.random.Generator) -> tuple[NDArray[np.float64], SparseRows]:
    """A sparse matrix, as it is and by rows."""
    table = random.normal(size=(120, 30)) * (random.random((120, 30)) < 0.2)
    table[7] = 0
    rows, columns = np.nonzero(table)
    starts = np.searchsorted(rows, np.arange(120))
    return table, SparseRows.of(columns, starts, table[rows, columns], 30, torch.float64)


@pytest.mark.parametrize("link", ["softmax", "sigmoid", "squared"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_fit_is_scikit_learns_optimum(link: Link, weighted: bool) -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    random = np.random.default_rng(0)
    table, rows = sparse(random)
    weights = random.uniform(0.5, 3, size=120) if weighted else np.ones(120)
    target = table[:, :3] @ random.normal(size=(3, 3)) + random.normal(size=(120, 3))
    strength = 2.0
    if link == "softmax":
        targets: Any = target.argmax(1)
        peer = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(table, targets, weights)
        expected = np.vstack([peer.coef_.T, peer.intercept_])
    elif link == "sigmoid":
        targets = (target > 0).astype(float)
        peers = [
            LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(table, one, weights) for one in targets.T
        ]
        expected = np.array([[*one.coef_[0], *one.intercept_] for one in peers]).T
    else:
        targets = target
        ridge = Ridge(alpha=1 / strength, tol=1e-12).fit(table, target, weights)
        expected = np.vstack([ridge.coef_.T, ridge.intercept_])
    problem = LinearProblem(rows, torch.from_numpy(targets), link, 3, torch.from_numpy(weights)[:, None])
    found = fit_linear(problem, 1 / (strength * 120), tolerance=1e-9, most=2000).numpy()
    if link == "softmax":  # a constant added to all biases changes nothing
        found[-1] -= found[-1].mean() - expected[-1].mean()
    assert np.abs(found - expected).max() < 1e-4


def test_the_gradient_is_autograds() -> None:
    table, rows = sparse(np.random.default_rng(1))
    targets = torch.randint(0, 3, (120,), generator=torch.Generator().manual_seed(0))
    point = torch.randn(31, 3, dtype=torch.float64, requires_grad=True)
    scores = torch.from_numpy(table) @ point[:-1] + point[-1]
    loss = torch.nn.functional.cross_entropy(scores, targets) + 0.05 * point[:-1].square().sum()
    (expected,) = torch.autograd.grad(loss, [point])
    value, gradient = LinearProblem(rows, targets, "softmax", 3).at(point.detach(), 0.1)
    assert value == pytest.approx(loss.item())
    assert torch.allclose(gradient, expected, atol=1e-12)


def test_equal_texts_are_in_one_fold() -> None:
    texts = [f"text number {i % 40}" for i in range(120)]
    folds = fold_of(WideTexts.of(NgramCounts([text.split() for text in texts], NgramKinds(2, (), 1000, True)), 1))
    assert np.array_equal(folds[:40], folds[40:80])
    assert len(set(folds)) == 5


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Model:
    place = tmp_path_factory.mktemp("linear")
    write(place / "train.tsv", sentences(150))
    return unrolled.train("classify", train=place / "train.tsv", out=place / "run", set=LINEAR, quiet=True)


def test_the_wide_path_alone_is_a_model(linear: Model, tmp_path: Path) -> None:
    assert isinstance(linear.network, LinearClassifier)
    test = write(tmp_path / "test.tsv", sentences(100, seed=1))
    assert linear.evaluate(test)["accuracy"] > 0.97
    linear.save(tmp_path / "m.safetensors")
    texts = [text for _, text in sentences(5, seed=4)] + [""]
    answers = linear.predict(texts)
    assert unrolled.load(tmp_path / "m.safetensors").predict(texts) == answers
    assert [linear.predict(text).label for text in texts] == [answer.label for answer in answers]


def test_it_has_no_layers_to_look_into(linear: Model) -> None:
    with pytest.raises(UserError, match=r"This model is a wide path alone \(model\.kind=linear\): it has no layers"):
        linear.trace("fine one")


def test_training_starts_from_the_wide_path(tmp_path: Path) -> None:
    """The first evaluation is that of the wide path alone, and the kept model is never worse on the validation part."""
    path = write(tmp_path / "train.tsv", sentences(80))
    alone = unrolled.train("classify", train=path, out=tmp_path / "alone", set=LINEAR, quiet=True)
    model = unrolled.train("classify", train=path, out=tmp_path / "both", set=MIXED, quiet=True)
    rows = [json.loads(line) for line in (tmp_path / "both" / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["step"] == 0
    for name in ("accuracy", "nll"):
        assert rows[0][name] == pytest.approx(alone.scores[name], abs=1e-6)
    assert model.scores["accuracy"] >= rows[0]["accuracy"]


def test_a_network_that_adds_nothing_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "train.tsv", sentences(80))
    harmful = {**MIXED, "train.lr": 30.0, "train.clip_norm": None, "train.average": 0.0, "train.max_steps": 2}
    model = unrolled.train("classify", train=path, out=tmp_path / "run", set=harmful, quiet=True)
    (said,) = model.task.description.remarks(model)
    assert said.startswith("The recurrent part adds nothing: on the validation part no update was better")


def test_labels_that_texts_do_not_tell(tmp_path: Path) -> None:
    """Every text is the same: no n-gram helps, and the answers are the shares of the labels."""
    rows = [(("often", "seldom")[i % 4 == 3], f"one {'two' * (i % 7)}") for i in range(200)]
    path = write(tmp_path / "train.tsv", rows)
    model = unrolled.train("classify", train=path, out=tmp_path / "run", set=LINEAR, quiet=True)
    assert model.predict("one two").label == "often"
    assert isinstance(model.network, LinearClassifier)


def test_texts_without_words() -> None:
    """The shares of the labels are all there is to fit."""
    counts = NgramCounts([[]] * 30, NgramKinds(2, (2, 5), 100, True))
    texts = WideTexts.of(counts, 1)
    path = WidePath(100, len(texts.seen), 2)
    targets = torch.tensor([i % 3 // 2 for i in range(30)])
    fit_wide(path, texts, counts, Answers(targets, targets, "softmax"), None, unseen=True)
    assert path.is_silent
    assert path.bias.softmax(0).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_numbers_are_fitted_too(tmp_path: Path) -> None:
    """A number is the sum of its words: ridge regression finds that."""
    worth = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
    texts = [text for _, text in sentences(300, seed=2)]
    rows = [(str(sum(worth.get(word, 0) for word in text.split()) / len(text.split())), text) for text in texts]
    path = write(tmp_path / "train.tsv", rows)
    model = unrolled.train(
        "classify", train=path, out=tmp_path / "run", set={**LINEAR, "data.kind": "number"}, quiet=True
    )
    assert model.scores["r2"] > 0.8


def test_several_labels(tmp_path: Path) -> None:
    rows = [
        (",".join({"fine": "good", "poor": "bad"}.get(w, w) for w in text.split()), text) for _, text in sentences(150)
    ]
    path = write(tmp_path / "train.tsv", rows)
    keys = {**LINEAR, "data.multi_label": True, "train.thresholds": "fitted"}
    model = unrolled.train("classify", train=path, out=tmp_path / "run", set=keys, quiet=True)
    assert model.scores["micro_f1"] > 0.9
    assert len(model.assets.calibration.thresholds) == len(model.assets.labels)
    again = unrolled.load(tmp_path / "run").predict("fine two")
    assert set(again.labels) == {"good", "two"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"model.wide": "off", "model.kind": "linear"},
            "model.kind=linear is the wide path alone, and model.wide=off.",
        ),
        ({"model.wide_letters": [5, 2]}, "expected the shortest and the longest from 1 to 10, such as [2, 5], or []"),
        (
            {"model.wide": "off", "model.wide_words": 3},
            "model.wide_words=3 does nothing here: it belongs to model.wide=on",
        ),
        ({"model.kind": "linear", "model.hidden_size": 8}, "model.hidden_size=8 does nothing here"),
        ({"train.class_weights": "fine"}, "Unknown label in train.class_weights 'fine'."),
        ({"train.class_weights": "good=0"}, "train.class_weights: good=0 is not a weight above 0."),
    ],
)
def test_mistakes(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "train.tsv", sentences(20))
    with pytest.raises(UserError) as error:
        unrolled.train("classify", train=path, out=tmp_path / "run", set=keys, quiet=True)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


def test_many_labels_leave_out_rare_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = NgramCounts([text.split() for _, text in sentences(200)], NgramKinds(2, (2, 5), 10_000, True))
    monkeypatch.setattr("unrolled.tasks.classify.wide.MOST_WEIGHTS", 3000)
    assert len(WideTexts.of(counts, 1, 3).seen) > 100
    assert len(WideTexts.of(counts, 1, 60).seen) == 50


def test_a_model_to_start_from_keeps_its_wide_path(tmp_path: Path) -> None:
    """Labels that are still there keep their weights; a new one has none."""
    path = write(tmp_path / "train.tsv", sentences(60))
    first = unrolled.train("classify", train=path, out=tmp_path / "first", set=MIXED, quiet=True)
    more = write(tmp_path / "more.tsv", [*sentences(60, seed=5), *[("new", f"seven six {i}") for i in range(20)]])
    keys = {"train.max_steps": 2, "train.batch_size": 8}
    second = unrolled.train(
        "classify", train=more, init=tmp_path / "first", out=tmp_path / "next", set=keys, quiet=True
    )
    assert second.assets.wide == first.assets.wide
    wide: Any = (first.network.wide, second.network.wide)
    rows = [second.assets.labels.index(label) for label in first.assets.labels]
    assert torch.equal(wide[0].weight, wide[1].weight[:, rows])
    assert not bool(wide[1].weight[:, second.assets.labels.index("new")].any())


def test_the_wide_path_alone_does_not_start_from_another(linear: Model, tmp_path: Path) -> None:
    linear.save(tmp_path / "m.safetensors")
    path = write(tmp_path / "train.tsv", sentences(60))
    with pytest.raises(
        UserError, match=r"A wide path alone \(model\.kind=linear\) does not start from another model\."
    ):
        unrolled.train("classify", train=path, init=tmp_path / "m.safetensors", out=tmp_path / "run", quiet=True)


def test_each_key_of_the_wide_path_changes_it(tmp_path: Path) -> None:
    """Keys that act where the shape of the wide path is decided."""
    from unrolled.models.classifier import ClassifierSettings
    from unrolled.tasks.classify.start import wide_shape
    from unrolled.tasks.corpus import Corpus

    def shape(**keys: Any) -> Any:
        texts = Corpus(unrolled.data.readers.labelled.Labelled(text, (label,), "") for label, text in sentences(50))
        return wide_shape(ClassifierSettings(**keys), texts, 2, None)

    usual = shape()
    assert shape(wide="off") is None
    assert shape(ngrams=64) is None
    assert shape(ngrams=64, wide="on") == usual
    changes: list[dict[str, Any]] = [
        {"wide_words": 3},
        {"wide_letters": []},
        {"wide_buckets": 64},
        {"wide_min_count": 3},
    ]
    for keys in changes:
        assert shape(**keys) != usual
