"""A tagger that reads in one direction, fed word by word or frame by frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.test_generate import call
from tests.tasks.tag.conftest import network_of, run, small
from tests.tasks.tag.test_tag_frames import gestures
from unrolled import Model, UserError
from unrolled.tasks import Request

FORWARD: dict[str, Any] = {"model__bidirectional": False, "model__output": "softmax"}
KINDS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"model__cell": "gru", "model__num_layers": 2},
    "transformer": {"model__kind": "transformer", "model__num_layers": 2, "model__feedforward": 16},
}
SENTENCE = ["Ada", "saw", "Grace", "Hopper", "in", "New", "York", "."]


@pytest.fixture(scope="module", params=KINDS)
def words(request: Any, chunks: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return small(chunks, tmp_path_factory.mktemp("words") / "run", **FORWARD, **KINDS[request.param])


@pytest.fixture(scope="module", params=KINDS)
def frames(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("frames")
    np.savez(folder / "gestures.npz", **gestures())
    return small(folder / "gestures.npz", folder / "run", **FORWARD, **KINDS[request.param])


def cuts(length: int) -> Iterator[list[slice]]:
    """All at once, one by one, and uneven pieces."""
    for ends in ([length], list(range(1, length + 1)), [2, 3, length]):
        yield [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def test_words_however_they_are_cut(words: Model) -> None:
    expected = words.predict([SENTENCE], probabilities=True)[0]
    stream, answers = words.stream(probabilities=True), []
    for pieces in cuts(len(SENTENCE)):
        stream.restart()
        answers.append([answer for piece in pieces for answer in stream.feed(SENTENCE[piece])])
        assert [answer[:2] for answer in answers[-1]] == [answer[:2] for answer in expected]
        np.testing.assert_allclose([p for *_, p in answers[-1]], [p for *_, p in expected], atol=1e-5)
    assert answers[0] == answers[1] == answers[2]  # to the bit
    with words.stream() as other:
        assert other.feed("Ada saw Grace Hopper in New York.") == [answer[:2] for answer in expected]


def test_frames_however_they_are_cut(frames: Model) -> None:
    given = gestures(seed=4)["frames"][:17]
    expected = frames.predict(given, probabilities=True)
    stream, answers = frames.stream(probabilities=True), []
    for pieces in cuts(len(given)):
        stream.restart()
        found = [stream.feed(given[piece]) for piece in pieces]
        assert tuple(tag for one in found for tag in one) == expected.tags
        answers.append([p for one in found for p in one.probabilities])
        np.testing.assert_allclose(answers[-1], expected.probabilities, atol=1e-5)
    assert answers[0] == answers[1] == answers[2]
    stream.restart()
    assert [stream.feed(torch.from_numpy(row)).tags[0] for row in given] == list(expected.tags)


def test_later_words_change_no_earlier_score(words: Model) -> None:
    network = network_of(words).eval()
    short, long = (words.assets.collate([sentence(text)]) for text in (SENTENCE[:4], SENTENCE))
    torch.testing.assert_close(network(short)[0], network(long)[0, :4], atol=1e-5, rtol=0)


def sentence(words: list[str]) -> Any:
    from unrolled.data.readers.tagged.sentences import Sentence

    return Sentence(tuple(words))


def test_features_stream_too(chunks: Path, tmp_path: Path) -> None:
    model = small(chunks, tmp_path / "run", data__feature_columns=2, **FORWARD)
    whole = {"tokens": ["Ada", "saw", "Rome"], "2": ["NNP", "VB", "NNP"]}
    stream = model.stream()
    parts = [stream.feed({key: values[at : at + 1] for key, values in whole.items()}) for at in range(3)]
    assert [answer for part in parts for answer in part] == model.predict(whole)


def test_lines_are_answered_as_they_come(words: Model) -> None:
    """Each answer is there before the next line is read."""
    asked: list[str] = []

    def lines() -> Iterator[str]:
        for line in ("Ada saw\n", "Rome\n", "\n", "Ada\n"):
            asked.append(line)
            yield line

    found, tags = [], words.predict([["Ada", "saw", "Rome"], ["Ada"]])
    for piece in words.runner.run(Request(lines=lines()), stream=True):
        found.append((piece, len(asked)))
    first, second, third = (f"{word}/{tag}" for word, tag in tags[0])
    fourth = "/".join(tags[1][0])
    assert found == [("", 0), (f"{first} {second}\n", 1), (f"{third}\n", 2), ("\n", 3), (f"{fourth}\n", 4)]
    rows = "".join(words.runner.run(Request(lines=lines(), format="csv"), stream=True)).splitlines()
    assert rows[0] == "sentence,token,tag,probability"
    assert rows[4].startswith(f"2,Ada,{tags[1][0][1]},")
    record = json.loads("".join(words.runner.run(Request(lines=["Ada saw\n"], format="jsonl"), stream=True)))
    assert record["tokens"] == ["Ada", "saw"]


def test_frames_on_lines(frames: Model, tmp_path: Path) -> None:
    given = gestures(seed=4)["frames"][:6].astype(np.float32)
    lines = [", ".join(map(repr, row)) + "\n" for row in given.tolist()]
    tags = list(frames.predict(given))
    assert "".join(frames.runner.run(Request(lines=lines), stream=True)).split() == tags
    records = "".join(frames.runner.run(Request(lines=[*lines, "\n", *lines], format="jsonl"), stream=True))
    last = json.loads(records.splitlines()[-1])
    assert (last["sequence"], last["frame"], last["tag"]) == (2, 5, tags[-1])
    rows = "".join(frames.runner.run(Request(lines=lines, format="csv"), stream=True)).splitlines()
    assert rows[2].startswith(f"1,1,{tags[1]},")
    for line, message in (
        ("1,x,2\n", "Standard input, line 1: '1,x,2' are not numbers. Expected 3, with commas between."),
        ("1,2\n", "Standard input, line 1 has 2 numbers. Expected 3 finite ones, with commas between."),
        ("1,2,nan\n", "Standard input, line 1 has 3 numbers. Expected 3 finite ones, with commas between."),
    ):
        with pytest.raises(UserError) as error:
            list(frames.runner.run(Request(lines=[line]), stream=True))
        assert str(error.value) == message


def test_what_needs_the_end_does_not_stream(model: Model, chunks: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        model.stream()
    assert str(error.value) == (
        "This model reads from both ends, and needs the end of its input. Train with model.bidirectional=false."
    )
    forward = small(chunks, tmp_path / "run", model__bidirectional=False)
    with pytest.raises(UserError) as error:
        forward.stream()
    assert str(error.value) == (
        "A CRF decides on all tags at the end of the sequence. "
        "Train with model.output=softmax, which decides at every step."
    )


def test_the_command_streams(words: Model, tmp_path: Path) -> None:
    words.save(tmp_path / "model.safetensors")
    code, out, _ = call("run", tmp_path / "model.safetensors", "--stream", given="Ada saw\n\nRome\n")
    assert code == 0
    assert [len(line.split()) for line in out.splitlines()] == [2, 0, 1]
    code, _, said = call("run", tmp_path / "model.safetensors", "--stream", "--text", "Ada")
    assert said == ("unrolled: --stream reads standard input. Leave the files and texts out, or leave --stream out.\n")
    assert run(words, lines=["Ada\n"]) != ""
