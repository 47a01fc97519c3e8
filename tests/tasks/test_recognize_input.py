"""Messages of `recognize` about training data and settings that it cannot use, or only in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from tests.fitting import fitting
from tests.tasks.recognition import (
    RATE,
    SMALL,
    frames,
    manifest,
    marks,
    tone,
    words,
    write_frames,
    write_lines,
    write_recordings,
)
from unrolled import UserError, api
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.tasks.recognize.features import InputReader
from unrolled.tasks.recognize.run import RecognizeRunner
from unrolled.tasks.recognize.search import Piece, RecognitionOptions, joined


def job(file: Path, **changes: Any) -> TrainingJob:
    kind = "frames" if file.suffix == ".npz" else "line" if ".png" in file.read_text().split("\n")[0] else "audio"
    given = {key.replace("__", "."): value for key, value in changes.items()}
    settings = {**fitting("recognize", SMALL, data__kind=kind), "data.train": str(file), **given}
    return TrainingJob(api.configure("recognize", [], settings))


def test_two_kinds_in_one_manifest(tmp_path: Path) -> None:
    file = write_recordings(tmp_path, ["a", "b"])
    write_lines(tmp_path, ["c"], "line")
    file.write_text(file.read_text() + "line0.png\tc\n")
    with pytest.raises(
        UserError, match=r"train\.tsv:3 is a picture; most are a recording\. Train a model for each kind"
    ):
        job(file, data__valid=str(file))
    both = tmp_path / "both.tsv"
    both.write_text("train0.wav\ta\ntrain1.wav\tb\n")
    with pytest.raises(UserError, match=r"train\.tsv:3: .*line0\.png is a picture\. This model expects a recording"):
        job(both, data__valid=str(file)).trainer()


def test_empty_transcripts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"All transcripts are empty\. Give examples that say something"):
        job(write_frames(tmp_path / "a.npz", [" ", " "]))


def test_one_example(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds one example\. Give more, or a file with data\.valid"):
        job(write_lines(tmp_path, ["abc"]))


def test_examples_too_short_for_their_transcripts_are_left_out_and_listed(tmp_path: Path) -> None:
    """CTC needs a frame for each label, and one more between two equal ones."""
    file = write_recordings(tmp_path, ["abc", "ab c", "c", "a"])
    long = ["abc" * 20, "a" * 30]
    file.write_text(file.read_text() + "".join(f"train{i}.wav\t{text}\n" for i, text in enumerate(long, 2)))
    listed = tmp_path / "short.tsv"
    with pytest.warns(Note) as notes:
        trainer = job(file, data__valid=str(file), data__too_short=str(listed)).trainer()
    assert len(trainer.batches) == 1
    assert len(trainer.batches[0].inputs) == 4
    # 0.2 s of sound: 1 + (200 - 25) // 10 = 18 windows of 25 ms every 10 ms, which the stride halves
    rows = [
        f"{tmp_path}/train2.wav\t9\t60\t{file}:5",
        f"{tmp_path}/train3.wav\t9\t59\t{file}:6",
    ]
    assert listed.read_text().splitlines() == ["file\tframes\tneeded\tplace", *rows]
    named = (
        f"\n  {file}:5 ({tmp_path}/train2.wav): 9 frames, 60 needed"
        f"\n  {file}:6 ({tmp_path}/train3.wav): 9 frames, 59 needed"
    )
    assert [str(one.message) for one in notes] == [
        f"2 training examples are too short for their transcripts and left out:{named}",
        f"2 validation examples are too short for their transcripts; no loss is counted there:{named}",
    ]


def test_a_long_list_of_short_examples_is_cut_in_the_message(tmp_path: Path) -> None:
    file = write_recordings(tmp_path, ["abc", "c"])
    file.write_text(file.read_text() + f"train1.wav\t{'abc' * 20}\n" * 13)
    with pytest.warns(Note, match="13 training examples") as notes:
        job(file, data__valid=str(file)).trainer()
    lines = str(notes[0].message).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  … and 3 more. --too-short FILE.tsv lists all of the training examples."
    with pytest.raises(UserError, match=r"could not be written: No such file or directory"):
        job(file, data__valid=str(file), data__too_short=str(tmp_path / "none" / "a.tsv")).trainer()


def test_a_long_recording_is_left_out_of_training(tmp_path: Path) -> None:
    file = write_recordings(tmp_path, ["abc", "ab", "c"])
    soundfile.write(tmp_path / "long.wav", np.zeros(61 * RATE, dtype=np.float32), RATE)
    file.write_text(file.read_text() + "long.wav\tabc\n")
    with pytest.warns(UserWarning, match=r"1 training examples have more than 6,000 steps .*train\.tsv:4\. Cut them"):
        batches = job(file, data__valid=str(file)).trainer().batches
    assert len(batches[0].inputs) == 3
    with (
        pytest.warns(UserWarning, match="4 training examples have more than 3 steps"),
        pytest.raises(
            UserError, match=r"No training example is left\. Cut them into shorter ones, or raise data\.max_s"
        ),
    ):
        job(file, data__valid=str(file), data__max_steps=3).trainer()


def test_unusual_recordings_are_told(tmp_path: Path) -> None:
    file = write_recordings(tmp_path, ["abc", "ab", "c"])
    soundfile.write(tmp_path / "train1.wav", np.stack([tone("ab", 16_000)] * 2, axis=1), 16_000)
    with (
        pytest.warns(UserWarning, match="1 of 3 recordings have several channels: their mean is read"),
        pytest.warns(UserWarning, match=r"different rates, 8,000 Hz \(2\), 16,000 Hz \(1\): all are read at one"),
    ):
        made = job(file, data__valid=str(file))
    assert made.assets.reader.rate == RATE


def test_frames_of_different_shapes(tmp_path: Path) -> None:
    for i, width in enumerate((4, 4, 5)):
        np.save(tmp_path / f"{i}.npy", np.zeros((30, width)))
    file = manifest(tmp_path / "a.tsv", [(f"{i}.npy", "ab") for i in range(3)])
    with pytest.raises(UserError, match=r"a\.tsv:3 has frames of shape \(5,\), the first of \(4,\)"):
        job(file, data__valid=str(file))
    (tmp_path / "2.npy").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"a\.tsv:3: .*2\.npy is not a readable array: "):
        job(file, data__valid=str(file))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__strides": [2, 2]}, r"model\.strides=\[2, 2\] has 2 numbers for 1 convolutions"),
        (
            {"model__channels": [0]},
            r"model\.channels=\[0\] and model\.strides=\[2\] are not valid convolutions\. Give channels",
        ),
        (
            {"model__kind": "transformer", "model__heads": 5},
            r"model\.hidden_size=24 is not divisible by model\.heads=5\. U",
        ),
        (
            {"data__center_bands": True, "model__bidirectional": False},
            r"data\.center_bands=true needs the whole recording",
        ),
        (
            {"model__kind": "mdlstm"},
            r"model\.kind=mdlstm reads pictures of lines, not recordings: it adds up the rows of a column, and the "
            r"bands of a sound must stay apart\. Use model\.kind=recurrent\.",
        ),
    ],
)
def test_settings_that_do_not_go_together(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = write_recordings(tmp_path, ["abc", "ab", "c"])
    with pytest.raises(UserError, match=message):
        job(file, data__valid=str(file), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model__bidirectional": False},
            r"model\.kind=mdlstm reads a line from all four directions, so it cannot have model\.bidirectional=false\. "
            r"Use model\.bidirectional=true, or model\.kind=recurrent\.",
        ),
        (
            {"model__peephole": "previous"},
            r"model\.peephole=previous is not for model\.kind=mdlstm\. Its output gate reads the new state: use",
        ),
    ],
)
def test_settings_that_do_not_go_with_planes(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path, ["abc", "ab", "c"])
    with pytest.raises(UserError, match=message):
        job(file, data__valid=str(file), model__kind="mdlstm", **changes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lm": "x.arpa"}, "A language model of words needs a list of them"),
        ({"beam": 1, "n_best": 2}, "beam=1 is the best path, without lexicon, hotwords, scorers or n-best list"),
        ({"window": 0.0}, "window=0.0 is not above 0"),
        ({"lexicon": ["a"], "lm_weight": 2.0}, "lm_weight is for a language model, and there is none"),
        ({"word_bonus": 1.0}, "word_bonus is for words of a lexicon, and there is none"),
        ({"beam": 10, "unknown_penalty": -1.0}, "unknown_penalty is for words of a lexicon, and there is none"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RecognitionOptions(**given)


def test_windows_that_read_the_same_together_are_one_reading() -> None:
    def window(**scores: float) -> list[Piece]:
        return [Piece(text.strip("_").replace("_", " "), score, [], []) for text, score in scores.items()]

    pieces = [window(a=-1, a_b=-2, _=-3), window(b_c=-1, c=-1.5, a_b_c=-4), window(d=-1, e=-9)]
    found = joined(pieces, " ", "seconds", 5)
    assert [(one.text, one.score) for one in (found, *found.others)] == [
        ("a b c d", -3),
        ("a c d", -3.5),
        ("a b b c d", -4),
        ("b c d", -5),
        ("c d", -5.5),
    ]
    assert [part.others for part in found.others] == [()] * 4


def test_inputs_of_the_wrong_kind(tmp_path: Path) -> None:
    listener = job(write_recordings(tmp_path / "a", words(3))).model
    reader = job(write_lines(tmp_path / "b", words(3))).model
    viewer = job(write_frames(tmp_path / "c.npz", words(3))).model
    with pytest.raises(
        UserError, match=r"train0\.png is a picture\. This model expects a recording: a path, or an array"
    ):
        listener.predict(str(tmp_path / "b" / "train0.png"))
    with pytest.raises(UserError, match=r"The input has shape \(16, \d+\)\. Expected samples \(N,\) at 8000 Hz"):
        listener.predict(marks("a"))
    with pytest.raises(UserError, match=r"The input holds samples that are not finite"):
        listener.predict(np.array([np.nan]))
    with pytest.raises(UserError, match=r"The input holds float32\. Expected grey from 0"):
        reader.predict(frames("a"))
    with pytest.raises(UserError, match=r"The input has frames of shape \(3,\)\. Expected \(4,\), as in training"):
        viewer.predict(np.zeros((9, 3)))
    with pytest.raises(UserError, match=r"The input is int\. Expected an array of frames \(steps, 4\)"):
        viewer.predict(7)
    with pytest.raises(UserError, match=r"train\.tsv:1: .*train0\.png is a picture\. This model expects a recording"):
        listener.evaluate(tmp_path / "b" / "train.tsv")
    for numbers in ([0.0, 0.5], tuple(np.zeros(9, np.float32))):
        what = type(numbers).__name__
        with pytest.raises(
            UserError, match=rf"^The input is a {what} of numbers\. Make a NumPy array of it: np\.array"
        ):
            listener.predict(numbers, rate=RATE)
    with pytest.raises(UserError, match=r"^Input 1 is list\. Expected .* Make a NumPy array of it: np\.array"):
        listener.predict([[0.0, 0.5]], rate=RATE)
    with pytest.raises(UserError, match="a picture shows 4,000 at the most"):
        RecognizeRunner(listener).drawing(np.ones(60 * RATE, dtype=np.float32), rate=RATE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros(800, np.int16), r"holds int16\. Expected floats from −1 to 1: divide 16-bit integers by 32768"),
        (np.zeros(800, np.int32), r"holds int32\. Expected floats from −1 to 1: divide by 2147483648\."),
        (np.zeros(800, np.uint8), r"holds uint8\. Expected floats from −1 to 1: take 128 from 8-bit .*divide by 128\."),
        (np.zeros(800, complex), r"holds complex128\. Expected floats from −1 to 1\.$"),
        (np.zeros(800, np.bool_), r"holds bool\. Expected floats from −1 to 1"),
        (np.array([0.0, np.inf]), r"holds samples that are not finite\. Expected numbers from −1 to 1"),
        (np.full(800, 1e30), r"holds samples as large as 1e\+30\. Expected numbers from −1 to 1"),
        (np.full(800, -1e300), r"holds samples as large as 1e\+300\. Expected numbers from −1 to 1"),
    ],
)
def test_samples_that_cannot_be(given: NDArray[Any], message: str) -> None:
    reader = InputReader("audio", (4,), RATE, 4)
    with pytest.raises(UserError, match=f"^The input {message}"):
        reader.samples(given)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_samples_somewhat_above_one_are_read(kind: type[np.floating[Any]]) -> None:
    found = InputReader("audio", (4,), RATE, 4).samples(np.array([-1.5, 0.0, 1.25], dtype=kind))
    assert found.dtype == np.float32
    assert found.tolist() == [-1.5, 0.0, 1.25]


def test_streams_that_cannot_be(tmp_path: Path) -> None:
    file = write_recordings(tmp_path, words(3))
    slopes = job(file, model__bidirectional=False, data__deltas=1).model
    with pytest.raises(UserError, match=r"reads slopes, which look 2 frames ahead\. Train with data\.deltas=0"):
        slopes.stream()
    looking = job(file, model__bidirectional=False, model__kind="transformer", model__heads=4).model
    with pytest.raises(UserError, match="looks at all steps at once"):
        looking.stream()
    line = job(write_lines(tmp_path / "l", words(3)), model__bidirectional=False).model
    with pytest.raises(UserError, match=r"A line is read whole\. Streams are for recordings and frames"):
        line.stream()


def test_slopes_and_features_made_anew(tmp_path: Path) -> None:
    """Three numbers for each band; and what does not fit into memory gives the same batches."""
    file = write_recordings(tmp_path, words(6))
    kept = job(file, data__deltas=2, train__augment=True)
    anew = job(file, data__deltas=2, train__augment=True, data__memory=0.0)
    assert kept.assets.reader.shape == (60,)
    for batches in (kept.trainer().batches, anew.trainer().batches):
        batches.order(1)
    first, second = kept.trainer().batches[0], anew.trainer().batches[0]
    assert first.inputs.equal(second.inputs)
    assert first.inputs.shape[2] == 60
