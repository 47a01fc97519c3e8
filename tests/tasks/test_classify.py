"""`classify` from Python: it learns, answers, scores and refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import unrolled
from tests.fitting import fitting
from tests.tolerances import assert_close
from unrolled import Model, UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.tasks import Request
from unrolled.tasks.classify.predict import Classified
from unrolled.tasks.shared.levels import classifier_level
from unrolled.tasks.shared.reader import Reader

SMALL: dict[str, Any] = {
    "model.hidden_size": 12,
    "model.embedding_size": 10,
    "model.letter_hidden": 6,
    "model.ngrams": 256,
    "model.dropout": 0.1,
    "train.batch_size": 8,
    "train.lr": 0.02,
    "train.average": 0.9,
    "train.max_steps": 60,
    "train.eval_every": 30,
    "train.threads": 1,
}


def sentences(number: int, seed: int = 0) -> list[tuple[str, str]]:
    """A word decides, wherever it stands."""
    draw = random.Random(seed)
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    result = []
    for _ in range(number):
        label = draw.choice(["good", "bad"])
        text = draw.choices(words, k=draw.randint(1, 6))
        text.insert(draw.randint(0, len(text)), {"good": "fine", "bad": "poor"}[label])
        result.append((label, " ".join(text)))
    return result


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "train.tsv", sentences(120))


@pytest.fixture(scope="module")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return unrolled.train("classify", train=table, out=tmp_path_factory.mktemp("runs") / "a", set=SMALL, quiet=True)


def train(path: Path, folder: Path, **changes: Any) -> Model:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    inputs = "frames" if path.suffix == ".npz" else "text"
    settings = fitting("classify", {**SMALL, **keys}, inputs=inputs)
    return api.train("classify", train=path, out=folder, set=settings, quiet=True)


def test_it_learns(model: Model, tmp_path: Path) -> None:
    scores = model.evaluate(write(tmp_path / "test.tsv", sentences(100, seed=1)))
    assert scores["accuracy"] > 0.95
    assert scores["macro_f1"] > 0.95
    assert scores["examples"] == 100
    assert sum(sum(row.values()) for row in scores["confusion"].values()) == 100
    assert json.loads(json.dumps(scores)) == scores


@pytest.mark.parametrize(
    "changes",
    [
        {"model__pool": "last"},
        {"model__pool": "mean", "model__cell": "gru"},
        {"model__pool": "attention", "model__bidirectional": False},
        {"model__pool": "max+last", "model__cell": "rnn", "train__lr": 0.005},
        {"data__level": "char", "model__ngrams": 0},
        {"data__level": "bpe", "data__max_size": 300},
        {"data__level": "symbols"},
        {"model__letter_hidden": 0, "model__num_layers": 2, "model__combine": "concat"},
    ],
)
def test_it_overfits_eight_examples(changes: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path / "eight.tsv", sentences(8, seed=3))
    keys = {"model__dropout": 0.0, "model__word_dropout": 0.0, "data__min_count": 1, "train__max_steps": 80}
    model = api.train(
        "classify",
        train=path,
        valid=path,
        out=tmp_path / "run",
        set=fitting("classify", {**SMALL, **{k.replace("__", "."): v for k, v in {**keys, **changes}.items()}}),
        quiet=True,
    )
    assert model.scores["accuracy"] == 1.0


def test_batched_equals_single(model: Model) -> None:
    texts = [text for _, text in sentences(20, seed=2)] + [""]
    together = model.predict(texts)
    for text, answer in zip(texts, together, strict=True):
        alone = model.predict(text)
        assert isinstance(alone, Classified)
        assert alone.label == answer.label
        for label, probability in alone.probabilities.items():
            assert abs(probability - answer.probabilities[label]) < 1e-5


def test_probabilities_add_up(model: Model) -> None:
    answer = model.predict("one fine two")
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert answer.probabilities[answer.label] == max(answer.probabilities.values())
    assert str(answer) == answer.label == "good"


def test_saved_and_loaded_it_is_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    again = unrolled.load(tmp_path / "m.safetensors")
    texts = [text for _, text in sentences(5, seed=4)]
    assert again.predict(texts) == model.predict(texts)


@pytest.mark.parametrize("ngrams", [256, 0])  # without them there is a wide path
def test_resumed_it_ends_with_the_same_bits(
    ngrams: int, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"train__max_steps": 12, "train__eval_every": 4, "model__ngrams": ngrams}
    whole = train(table, tmp_path / "whole", **keys)
    stopped = tmp_path / "stopped"
    evaluations = 0
    from unrolled.training.run import Run

    save = Run.checkpoint

    def stop_after_two(self: Run) -> None:
        nonlocal evaluations
        save(self)
        evaluations += 1
        if evaluations == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "checkpoint", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        train(table, stopped, **keys)
    monkeypatch.undo()
    api.resume(stopped, quiet=True)
    for name in ("best.safetensors", "last.safetensors"):
        first, second = (safetensors.torch.load_file(tmp_path / run / name) for run in ("whole", "stopped"))
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert unrolled.load(stopped).assets.to_json() == whole.assets.to_json()
    assert whole.scores


def test_the_kept_model_has_the_mean_weights(table: Path, tmp_path: Path) -> None:
    """Trained twice, with and without the mean: the same steps, other weights kept."""
    mean = train(table, tmp_path / "mean", train__max_steps=10, train__average=0.9)
    last = train(table, tmp_path / "last", train__max_steps=10, train__average=0.0)
    rows = [[json.loads(line) for line in (tmp_path / run / "metrics.jsonl").open()] for run in ("mean", "last")]
    assert rows[0][0]["train_loss"] == rows[1][0]["train_loss"]
    weights = [dict(m.network.named_parameters())["scores.weight"] for m in (mean, last)]
    assert not torch.equal(*weights)


def test_embed(model: Model) -> None:
    texts = [text for _, text in sentences(6, seed=5)]
    vectors = model.embed(texts)
    assert vectors.shape == (6, 24)
    assert_close(torch.from_numpy(model.embed(texts[3])), vectors[3])


def test_several_labels(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = []
    for _ in range(150):
        chosen = [word for word in ("red", "big", "old") if draw.random() < 0.4]
        text = " ".join(draw.sample([*chosen, "a", "thing", "here"], k=len(chosen) + 3))
        rows.append((";".join(chosen), text))
    path = write(tmp_path / "several.tsv", rows)
    model = train(path, tmp_path / "run", data__multi_label=True, data__label_separator=";", train__max_steps=150)
    assert model.scores["micro_f1"] > 0.9
    assert model.predict("a big red thing").labels == ("big", "red")
    assert model.predict("a thing").labels == ()
    scores = model.evaluate(path)
    assert scores["classes"]["red"]["f1"] > 0.9
    assert "confusion" not in scores
    with pytest.warns(Note, match="There are 1, the first at"):
        scores = model.evaluate(write(tmp_path / "new.tsv", [("red;new", "a red thing"), ("big", "a big thing")]))
    assert scores["accuracy"] == 0.5  # of whole examples
    assert scores["micro_f1"] == pytest.approx(0.8)  # two of three labels are found, and nothing else
    record = json.loads("".join(model.runner.run(Request(texts=["a big red thing"], format="jsonl"))))
    assert record["labels"] == ["big", "red"]


def test_balanced_weights_help_the_rare_class(tmp_path: Path) -> None:
    """Noise decides nothing: with equal weight for both classes the answer is no longer always the frequent one."""
    draw = random.Random(0)
    rows = [("often", draw.choice("abcdef") + " x y") for _ in range(190)]
    rows += [("seldom", draw.choice("abcdef") + " x y") for _ in range(10)]
    path = write(tmp_path / "rare.tsv", rows)
    plain = train(path, tmp_path / "plain", train__max_steps=40)
    even = train(path, tmp_path / "even", train__max_steps=40, train__class_weights="balanced")
    assert plain.predict("a x y").probabilities["seldom"] < 0.2
    assert 0.3 < even.predict("a x y").probabilities["seldom"] < 0.8


def frames(number: int, shape: tuple[int, ...], seed: int) -> tuple[list[Any], list[str]]:
    """Noise in which one class has a bright step somewhere."""
    random = np.random.default_rng(seed)
    arrays, labels = [], []
    for _ in range(number):
        array = random.normal(size=(int(random.integers(3, 9)), *shape)).astype(np.float32)
        label = "flash" if random.random() < 0.5 else "dark"
        if label == "flash":
            array[random.integers(len(array))] += 4
        arrays.append(array)
        labels.append(label)
    return arrays, labels


def test_a_sequence_of_frames_has_one_label(tmp_path: Path) -> None:
    np.savez(tmp_path / "hot.npz", frames=np.zeros((4, 5, 2)), labels=np.eye(4, 3))
    with pytest.raises(UserError, match=r"hot\.npz: sequence 1 has 3 labels\. Expected `labels` to have one for each"):
        train(tmp_path / "hot.npz", tmp_path / "run")
    (tmp_path / "odd.jsonl").write_text('{"label": {"name": "x"}, "text": "y"}\n')
    with pytest.raises(UserError, match=r"odd\.jsonl:1 has a label that is dict\. Expected a text or a number\."):
        train(tmp_path / "odd.jsonl", tmp_path / "run")


@pytest.mark.parametrize("shape", [(5,), (8, 8), (8, 8, 3)])
def test_frames_and_small_images(shape: tuple[int, ...], tmp_path: Path) -> None:
    arrays, labels = frames(120, shape, 0)
    lengths = [len(array) for array in arrays]
    np.savez(tmp_path / "train.npz", frames=np.concatenate(arrays), lengths=lengths, labels=labels)
    model = train(tmp_path / "train.npz", tmp_path / "run", train__max_steps=120, model__front=[8])
    fresh, truth = frames(60, shape, 1)
    answers = [answer.label for answer in model.predict(fresh)]
    assert np.mean([a == t for a, t in zip(answers, truth, strict=True)]) > 0.9
    assert model.embed(fresh).shape == (60, 24)
    with pytest.raises(UserError, match=r"Input 1 has frames of shape \(2,\)"):
        model.predict(np.zeros((4, 2)))
    with pytest.raises(UserError, match=r"Input 1 has (frames of )?shape"):
        model.predict([np.zeros((4, 2, 2, 2))[:, :1, :1]])


def test_vectors_are_taken_and_kept(table: Path, tmp_path: Path) -> None:
    words = ["fine", "poor", "one", "superb"]
    (tmp_path / "v.txt").write_text("".join(f"{word} {n} {n + 1} {n + 2}\n" for n, word in enumerate(words)))
    frozen = train(table, tmp_path / "frozen", data__vectors=str(tmp_path / "v.txt"), model__tune_vectors=False)
    vectors = frozen.word_vectors()
    assert vectors["superb"].tolist() == [3, 4, 5]  # never in the training texts
    assert vectors["fine"].tolist() == [0, 1, 2]
    tuned = train(table, tmp_path / "tuned", data__vectors=str(tmp_path / "v.txt"))
    assert tuned.word_vectors()["fine"].tolist() != [0, 1, 2]
    with pytest.raises(
        UserError, match=r"data\.vectors=.* does nothing here: it belongs to data\.level=word, and data\."
    ):
        api.train("classify", train=table, set={"data.vectors": str(tmp_path / "v.txt"), "data.level": "char"})


def test_from_a_model(model: Model, table: Path, tmp_path: Path) -> None:
    """New words and a new label join; what was known stays."""
    model.save(tmp_path / "m.safetensors")
    path = write(tmp_path / "more.tsv", [*sentences(40, seed=6), *([("odd", "strange thing indeed")] * 20)])
    more = api.train(
        "classify", train=path, out=tmp_path / "run", init=tmp_path / "m.safetensors", set={**SMALL}, quiet=True
    )
    assert more.assets.labels == ("bad", "good", "odd")
    assert more.predict("strange thing indeed").label == "odd"
    assert more.predict("fine").label == "good"
    with pytest.raises(UserError, match=r"^model\.hidden_size=13 differs from the initial model, which has 12\."):
        TrainingJob(api.configure("classify", [], {**SMALL, "model.hidden_size": 13}), init=tmp_path / "m.safetensors")


def test_a_label_never_seen_is_counted(model: Model, tmp_path: Path) -> None:
    path = write(tmp_path / "new.tsv", [("good", "fine one"), ("strange", "fine two")])
    with pytest.warns(Note, match=r"There are 1, the first at .*new\.tsv:2: strange"):
        scores = model.evaluate(path)
    assert scores["unknown_labels"] == 1
    assert scores["accuracy"] == 0.5
    assert scores["macro_f1"] == pytest.approx(1 / 3)  # as scikit-learn has it: good 2/3, strange 0
    assert scores["classes"]["strange"] == {"precision": 0, "recall": 0, "f1": 0, "count": 1}
    assert scores["confusion"]["strange"] == {"bad": 0, "good": 1, "strange": 0}


def test_validation_knows_a_label_of_training(table: Path, tmp_path: Path) -> None:
    valid = write(tmp_path / "valid.tsv", [("strange", "fine two")])
    with pytest.raises(UserError, match=r"^No validation example has a label of the training examples.*: bad, good\.$"):
        api.train("classify", train=table, valid=valid, out=tmp_path / "run", set=SMALL, quiet=True)


def test_settings_are_no_text(table: Path) -> None:
    with pytest.raises(UserError, match=r"set is str 'model\.cell=gru'\. Expected \{\"model\.cell\": \"gru\"\} or"):
        api.train("classify", train=table, set="model.cell=gru", quiet=True)


def test_very_long_and_empty_texts(model: Model, tmp_path: Path) -> None:
    answers = model.predict(["fine " * 100_000, "", "poor"])
    assert [answer.label for answer in answers][::2] == ["good", "bad"]
    path = write(tmp_path / "long.tsv", [*sentences(20), ("good", "fine " * 20_000), ("bad", "")])
    assert train(path, tmp_path / "run", train__max_steps=6, train__eval_every=6).scores


def test_the_level_is_chosen() -> None:
    assert classifier_level(["Smith", "van Dyke", "O'Neil"]) == "char"
    assert classifier_level(["我不喜欢这部电影", "很好看"]) == "word"  # every character is a token
    assert classifier_level(["it was a fine film", "a poor one indeed", "good"]) == "word"


def test_a_reader_survives_json() -> None:
    for reader in (
        Reader.train(api.configure("classify").data, ["one two three", "two three four"]),  # type: ignore[attr-defined]
        Reader.train(api.configure("classify", ["data.level=bpe"]).data, ["one two", "two three"] * 9),  # type: ignore[attr-defined]
        Reader(frames=(3, 4)),
    ):
        again = Reader.from_json(json.loads(json.dumps(reader.to_json())))
        assert again.to_json() == reader.to_json()
        assert str(again) == str(reader)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tone\nb\n", "bad.tsv:2 has no tab: 'b'."),
        ("a\tone\na\ttwo\n", "All training examples have one label: 'a'."),
        ("a\tone\n\ttwo\n", "bad.tsv:2 has no label."),
        ("a\tone\n", "bad.tsv holds one example."),
    ],
)
def test_bad_files(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text(content)
    with pytest.raises(UserError) as error:
        train(tmp_path / "bad.tsv", tmp_path / "run")
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


def test_bad_inputs(model: Model) -> None:
    for bad, message in (
        ([3], "Input 1 is int. Expected a text."),
        ({"a": 1}, "The input is dict. Expected a text, or a list of them."),
    ):
        with pytest.raises(UserError) as error:
            model.predict(bad)
        assert str(error.value) == message
    with pytest.raises(UserError, match=r"Unknown predict option 'temperature'\. Choices: explain, min_p"):
        model.predict("x", temperature=1.0)
    with pytest.raises(UserError, match="needs its whole input"):
        model.stream()


def test_the_embedded_data() -> None:
    from unrolled.data.demo.docstrings import embedded_labels

    examples = embedded_labels()
    assert len(examples) > 2000
    assert len({label for label, _ in examples}) > 10
    assert len({text for _, text in examples}) == len(examples)
