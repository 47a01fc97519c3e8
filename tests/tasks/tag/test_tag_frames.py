"""A class for every frame: `tag` of vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import unrolled
from tests.tasks.tag.conftest import network_of, run, small
from tests.tolerances import assert_close
from unrolled import Model, UserError
from unrolled.data.readers.tagged.frame_tables import FrameColumns
from unrolled.data.readers.tagged.frames import read_tagged_frames
from unrolled.metrics.spans import overlap_f1, runs_of, spans_of
from unrolled.models.inputs import FrameInput
from unrolled.tasks.tag.batches import tag_batches
from unrolled.tasks.tag.predict import FrameTags
from unrolled.tasks.tag.task import Tag

CENTRES = {"sil": (0.0, 0.0, 50.0), "wave": (4.0, 0.0, 50.0), "point": (0.0, 4.0, 50.0)}  # the third tells nothing
FEW: dict[str, Any] = {"model__hidden_size": 12, "model__dropout": 0.0}


def gestures(number: int = 24, seed: int = 0) -> dict[str, Any]:
    """Frames (T, 3) and a label for each, in runs of several frames, with ragged lengths."""
    random = np.random.default_rng(seed)
    lengths = random.integers(9, 20, number)
    labels = np.concatenate([np.repeat(random.choice([*CENTRES], n), 4)[:n] for n in lengths])
    frames = np.array([CENTRES[label] for label in labels]) + random.normal(0, 1, (len(labels), 3))
    return {"frames": frames, "labels": labels, "lengths": lengths}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "gestures.npz"
    np.savez(path, **gestures())
    return path


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    keys = {"model.hidden_size": 12, "train.max_steps": 60, "train.lr": 0.02, "train.batch_size": 8}
    return unrolled.train("tag", train=data, out=tmp_path_factory.mktemp("runs") / "g", set=keys, quiet=True)


def sequences(given: dict[str, Any]) -> list[tuple[Any, list[str]]]:
    cuts = np.cumsum(given["lengths"])[:-1]
    parts = zip(np.split(given["frames"], cuts), np.split(given["labels"], cuts), strict=True)
    return [(frames, labels.tolist()) for frames, labels in parts]


def test_it_learns_and_scores_as_counted_by_hand(model: Model, tmp_path: Path) -> None:
    new = gestures(20, seed=7)
    np.savez(tmp_path / "new.npz", **new)
    scores = model.evaluate(tmp_path / "new.npz")
    pairs = sequences(new)
    answers = model.predict([frames for frames, _ in pairs])
    said = [tag for answer in answers for tag in answer]
    right = [a == b for a, b in zip(said, new["labels"], strict=True)]
    assert scores["accuracy"] == pytest.approx(np.mean(right))
    assert scores["accuracy"] > 0.85
    true = [runs_of(labels) for _, labels in pairs]
    found = [answer.segments for answer in answers]
    both = sum(len({*a} & {*b}) for a, b in zip(found, true, strict=True))
    assert scores["segment_f1"] == pytest.approx(2 * both / (sum(map(len, found)) + sum(map(len, true))))
    assert scores["frames"] == len(right)
    assert sum(row["count"] for row in scores["segments"].values()) == sum(map(len, true))
    assert "overlap_f1" in model.runner.report(scores)


def test_the_loss_is_the_cross_entropy_of_torch_over_scaled_frames(data: Path, tmp_path: Path) -> None:
    """The whole network in plain torch: scaling, LSTM in both directions, linear scores, mean over real frames."""
    model = small(data, tmp_path / "run", **FEW)
    network, examples = network_of(model), read_tagged_frames(data)[:5]
    batch = tag_batches(model.assets, examples)[0]
    theirs = torch.nn.LSTM(3, 12, batch_first=True, bidirectional=True)
    weights = {name: value for name, value in network.layer.state_dict().items() if name in theirs.state_dict()}
    theirs.load_state_dict(weights)
    total, count = 0.0, 0
    inputs = network.input
    assert isinstance(inputs, FrameInput)
    for one in examples:
        x = (torch.from_numpy(one.frames) - inputs.mean) / inputs.deviation
        scores = network.scores(theirs(x[None])[0])[0]
        wanted = torch.tensor([model.assets.tags.id(tag) for tag in one.tags or ()])
        total, count = total + F.cross_entropy(scores, wanted, reduction="sum").item(), count + len(wanted)
    loss = Tag().loss(network.eval(), batch, None)
    assert int(loss.count) == count
    assert_close(loss.sum.detach(), torch.tensor(total))


def test_features_are_scaled_by_the_training_frames(data: Path, tmp_path: Path) -> None:
    model = small(data, tmp_path / "run", data__valid=str(data), **FEW)
    frames, inputs = gestures()["frames"].astype(np.float32), network_of(model).input
    assert isinstance(inputs, FrameInput)
    np.testing.assert_allclose(inputs.mean, frames.mean(0), rtol=1e-5)
    np.testing.assert_allclose(inputs.deviation, frames.std(0), rtol=1e-4)


def test_neither_padding_nor_neighbours_change_an_answer(model: Model) -> None:
    inputs = [frames for frames, _ in sequences(gestures(9, seed=3))]
    together = model.predict(inputs, probabilities=True)
    for one, answer in zip(inputs, together, strict=True):
        alone = model.predict(torch.from_numpy(one), probabilities=True)
        assert alone.tags == answer.tags
        np.testing.assert_allclose(alone.probabilities, answer.probabilities, atol=1e-5)


def test_every_form_of_a_file_holds_the_same(data: Path, tmp_path: Path) -> None:
    """End to end with lengths; a folder of single sequences; equally long ones side by side; whole numbers."""
    given = gestures()
    for number, (frames, labels) in enumerate(sequences(given)):
        (tmp_path / "each").mkdir(exist_ok=True)
        np.savez(tmp_path / "each" / f"{number:03}.npz", frames=frames, labels=labels)
    expected = read_tagged_frames(data)
    for one, other in zip(expected, read_tagged_frames(tmp_path / "each"), strict=True):
        assert one.content == other.content
    square = {"frames": given["frames"][:30].reshape(5, 6, 3), "labels": given["labels"][:30].reshape(5, 6)}
    np.savez(tmp_path / "square.npz", **square)
    assert [len(one) for one in read_tagged_frames(tmp_path / "square.npz")] == [6] * 5
    names = sorted(CENTRES)
    numbers = np.array([names.index(label) for label in given["labels"]])
    np.savez(tmp_path / "numbers.npz", frames=given["frames"], labels=numbers, lengths=given["lengths"])
    assert (
        read_tagged_frames(tmp_path / "numbers.npz", FrameColumns(tag_names=tuple(names)))[0].tags == expected[0].tags
    )


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_run_writes_segments_frames_and_records(model: Model, data: Path, tmp_path: Path) -> None:
    frames, _ = sequences(gestures())[0]
    np.save(tmp_path / "one.npy", frames)
    answer = model.predict(frames, probabilities=True)
    line = run(model, files=[str(tmp_path / "one.npy")])
    assert line == " ".join(f"{kind}:{start}-{end}" for kind, start, end in runs_of(answer.tags)) + "\n"
    record = json.loads(run(model, files=[str(data)], format="jsonl").splitlines()[0])
    assert record["input"] == f"{data}: sequence 1"
    assert record["tags"] == list(answer.tags)
    assert record["segments"][0] == dict(zip(("kind", "start", "end"), answer.segments[0], strict=True))
    rows = run(model, files=[str(tmp_path / "one.npy")], format="csv").splitlines()
    assert rows[0] == "sequence,frame,tag,probability"
    assert rows[3] == f"1,2,{answer.tags[2]},{answer.probabilities[2]:.6g}"
    from unrolled.tasks import Request

    short = "".join(model.runner.run(Request(files=[str(tmp_path / "one.npy")], format="csv"), segments=True))
    assert short.splitlines()[1] == f"1,0,{answer.segments[0].end},{answer.tags[0]}"


def test_spans_of_frames_take_the_crf(tmp_path: Path) -> None:
    """B-… and I-… mark events; segments are those events, and their ends are scored."""
    given = gestures()
    events = ["O" if tag == "sil" else f"{'I' if i and given['labels'][i - 1] == tag else 'B'}-{tag}"
              for i, tag in enumerate(given["labels"])]  # fmt: skip
    np.savez(tmp_path / "events.npz", **{**given, "labels": np.array(events)})
    model = small(tmp_path / "events.npz", tmp_path / "run", **FEW)
    assert network_of(model).crf is not None
    answer = model.predict(given["frames"][:12])
    assert answer.segments == spans_of(answer.tags)
    assert {"span_f1", "overlap_f1"} <= {*model.evaluate(tmp_path / "events.npz")}


def test_overlap_f1_is_that_of_lea_et_al() -> None:
    """Three of four answered segments cover at least half of a true one; the second b covers none."""
    truth, answer = "aaaabbbbcc", "aabbbbbbcb"
    # answered: a 0-2 (2/4 of a), b 2-8 (4/6 of b), c 8-9 (1/2 of c), b 9-10 (0)
    assert overlap_f1([truth], [answer]) == pytest.approx(2 * 3 / (3 + 4))
    assert overlap_f1([truth], [answer], least=0.6) == pytest.approx(2 * 1 / (3 + 4))


def test_a_trace_shows_states_and_the_loss_of_each_frame(model: Model, data: Path) -> None:
    one = read_tagged_frames(data)[0]
    trace = model.trace(one)
    assert trace.tokens == [str(t) for t in range(len(one))]
    assert trace.gates["l0"]["f"].shape == (len(one), 12)
    chances = model.predict(one, probabilities=True)
    if trace.right:
        np.testing.assert_allclose(trace.losses, -np.log(chances.probabilities), atol=1e-4)
    assert model.embed([one.frames, one.frames[:4]]).shape == (2, 24)


def test_more_training_takes_new_labels(model: Model, data: Path, tmp_path: Path) -> None:
    given = gestures()
    np.savez(tmp_path / "more.npz", **{**given, "labels": np.where(given["labels"] == "sil", "rest", given["labels"])})
    keys = {"train.max_steps": 2, "train.batch_size": 8}
    model.save(tmp_path / "old.safetensors")
    longer = unrolled.train(
        "tag",
        train=tmp_path / "more.npz",
        init=tmp_path / "old.safetensors",
        out=tmp_path / "run",
        set=keys,
        quiet=True,
    )
    assert set(longer.assets.tags.tokens) == {*CENTRES, "rest"}


def stored(tmp_path: Path, **arrays: Any) -> Path:
    np.savez(tmp_path / "bad.npz", **arrays)
    return tmp_path / "bad.npz"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "one label each": (
        {"frames": np.zeros((2, 3, 4)), "labels": np.array(["a", "b"])},
        "bad.npz: sequence 1 has one label for 3 frames. Expected `labels` to have one for each frame: names, or whole "
        "numbers. For one label per sequence: unrolled train classify.",
    ),
    "too few": (
        {"frames": np.zeros((4, 2)), "labels": np.array(["a", "b"]), "lengths": np.array([3, 1])},
        "sequence 1 has one label for 3 frames.",
    ),
    "decimals": (
        {"frames": np.zeros((4, 2)), "labels": np.zeros(4)},
        "sequence 1: labels have the type float64. Expected `labels` to have one for each frame",
    ),
    "no name": (
        {"frames": np.zeros((2, 2)), "labels": np.array(["a", " "])},
        "sequence 1 has no label at frame 1.",
    ),
    "NaN": (
        {"frames": np.array([[0.0, 1], [np.nan, 0]]), "labels": np.array(["a", "b"])},
        "sequence 1 holds nan at step 1, position [0]. Replace it.",
    ),
    "no labels": ({"frames": np.zeros((2, 2))}, "bad.npz has no array 'labels'. It has: frames."),
    "nothing": ({"frames": np.zeros((0, 2)), "labels": np.zeros(0, int)}, "bad.npz holds no frame."),
    "text": ({"frames": np.array([["a"]]), "labels": np.array(["a"])}, "sequence 1 holds <U1. Expected numbers."),
}


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    arrays, message = BAD[name]
    with pytest.raises(UserError) as error:
        read_tagged_frames(stored(tmp_path, **arrays))
    assert message in str(error.value)


def test_mistakes_with_a_trained_model(model: Model, data: Path, chunks: Path, tmp_path: Path) -> None:
    narrow = stored(tmp_path, frames=np.zeros((4, 2)), labels=np.array(["sil"] * 4))
    shape = "Expected an array of frames (steps, 3)."
    for given, message in (
        (lambda: model.predict(np.zeros((4, 2))), f"The input has frames of shape (2,). {shape}"),
        (lambda: model.predict("text"), "An input is str. Expected an array of frames (steps, 3), or a list of them."),
        (lambda: model.evaluate(narrow), f"{narrow}: sequence 1 has frames of shape (2,). {shape}"),
        (lambda: model.evaluate(chunks), f"{chunks}:1 holds words. {shape}"),
        (lambda: run(model, lines=["text\n"]), "This model reads frames, not text."),
        (lambda: run(model, files=[str(chunks)]), f"{chunks} does not hold frames."),
        (lambda: model.word_vectors(), "A model of tag has no word vectors."),
    ):
        with pytest.raises(UserError) as error:
            given()
        assert message in str(error.value)


@pytest.mark.parametrize("key", ["data.word_column", "data.vectors", "data.feature_columns", "data.column"])
def test_keys_about_words_do_not_apply(key: str, data: Path, tmp_path: Path) -> None:
    value = "xpos" if key == "data.column" else "2"
    with pytest.raises(UserError, match=f"holds frames: {key}='{value}' does not apply"):
        unrolled.train("tag", train=data, out=tmp_path / "run", set={key: value}, quiet=True)


def test_words_and_frames_do_not_mix(data: Path, chunks: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds words\. Expected an array of frames"):
        unrolled.train("tag", train=data, valid=chunks, out=tmp_path / "run", quiet=True)


def test_an_answer_is_a_sequence_of_tags() -> None:
    answer = FrameTags(("a", "a", "b"))
    assert list(answer) == ["a", "a", "b"]
    assert len(answer) == 3
    assert str(answer) == "a:0-2 b:2-3"
