"""Alignment of a known text: places against where the tones and marks are, files against other people's readers."""

from __future__ import annotations

import csv
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pysubs2
import pytest
import soundfile
from praatio import textgrid

from tests.cli.test_generate import call
from tests.tasks.recognition import RATE, frames, manifest, marks, tone
from tests.tasks.recognize.test_symbols import phones
from unrolled import Model, UserError
from unrolled.errors import Note
from unrolled.kernels.ctc.alignment import align, align_native
from unrolled.kernels.ctc.pronounced import pronounce
from unrolled.kernels.native_module import NATIVE
from unrolled.tasks.recognize.alignment import Aligned

__all__ = ["phones"]
TEXT = "ab ca b"


def true_times(text: str) -> list[tuple[float, float]]:
    """The start and end of each word of a tone, in seconds."""
    at, letters = 0.05, []
    for letter in text:
        end = at + (0.1 if letter != " " else 0.05)
        letters.append((letter, at, end))
        at = end + 0.05
    parts = [list(part) for space, part in itertools.groupby(letters, lambda one: one[0] == " ") if not space]
    return [(part[0][1], part[-1][2]) for part in parts]


@pytest.mark.skipif(NATIVE is None, reason="the C++ core was not built")
def test_parts_give_the_path_of_one_pass() -> None:
    """Also with ties and with labels of probability 0; `at_once` decides how much is kept."""
    random = np.random.default_rng(0)
    for trial in range(150):
        steps, size, length = random.integers(1, 45), int(random.integers(2, 5)), random.integers(0, 12)
        log_probs = -random.integers(0, 3, (steps, size)).astype(np.float32)
        log_probs[random.random((steps, size)) < 0.1] = -np.inf if trial % 2 else -1
        target = random.integers(1, size, length).tolist()
        score, path = align(log_probs.tolist(), target, 0)
        found = np.full(steps, -1, dtype=np.int32)
        labels = np.array(target, dtype=np.int64)
        native = NATIVE.ctc_align(
            log_probs.ctypes.data, steps, size, size, 0, labels.ctypes.data, length, found.ctypes.data,
            int(random.integers(1, 40)),
        )  # fmt: skip
        assert native == score
        if np.isfinite(score):
            assert found.tolist() == path
            assert (score, path) == align_native(log_probs, target, 0)


def test_the_best_of_all_pronunciations() -> None:
    """Every combination is aligned on its own; some words have no path, some scores are equal."""
    random = np.random.default_rng(1)
    for trial in range(120):
        steps, size = int(random.integers(1, 14)), int(random.integers(3, 5))
        log_probs = -random.integers(0, 4 if trial % 2 else 400, (steps, size)).astype(np.float32)
        words = [
            [random.integers(1, size, random.integers(1, 4)).tolist() for _ in range(random.integers(1, 4))]
            for _ in range(random.integers(1, 4))
        ]
        right = [align(log_probs.tolist(), list(itertools.chain(*some)), 0)[0] for some in itertools.product(*words)]
        score, chosen = pronounce(log_probs, words, 0, at_once=int(random.integers(1, 60)))
        assert score == max(right)
        if np.isfinite(score):
            spelt = itertools.chain(*(said[number] for said, number in zip(words, chosen, strict=True)))
            assert align(log_probs.tolist(), list(spelt), 0)[0] == score


def test_words_stand_where_they_are_said(listener: Model) -> None:
    found = listener.align(tone(TEXT), TEXT, rate=RATE)
    assert [word.text for word in found.words] == TEXT.split()
    assert [label.text for label in found.labels] == list(TEXT.replace(" ", ""))
    for word, (start, end) in zip(found.words, true_times(TEXT), strict=True):
        assert start - 0.03 <= word.start < word.end <= end + 0.06
        assert 0.5 < word.confidence <= 1
    assert found.unit == "seconds"
    assert found.end == round(len(tone(TEXT)) / RATE, 3)
    wrong = listener.align(tone(TEXT), "ab cb b", rate=RATE)
    assert wrong.score < found.score
    assert wrong.words[1].confidence < 0.1 < wrong.words[0].confidence  # the word that is not said


def test_a_prior_widens_labels(listener: Model) -> None:
    narrow, wide = (listener.align(tone(TEXT), TEXT, rate=RATE, prior=prior) for prior in (0.0, 0.7))

    def width(found: Aligned) -> float:
        return sum(label.end - label.start for label in found.labels)

    assert width(wide) > width(narrow)


def test_a_long_recording_is_aligned_in_windows(listener: Model) -> None:
    """The best path is also the best path of its own text. Silent windows have no frames; times go on after them."""
    noise = 0.003 * np.random.default_rng(0).standard_normal(2 * RATE)
    samples = np.concatenate([tone(TEXT), np.zeros(5 * RATE), noise, tone("b cab"), noise]).astype(np.float32)
    heard = listener.predict(samples, rate=RATE, window=1.5)
    found = listener.align(samples, heard.text, rate=RATE, window=1.5)
    assert [word[:3] for word in found.words] == [word[:3] for word in heard.words]
    assert [label[:3] for label in found.labels] == [label[:3] for label in heard.labels if label.text != " "]
    assert found.words[0].start < 0.2
    assert found.labels[-1].start > 5


def test_pixels_of_a_line(reader: Model) -> None:
    found = reader.align(marks("ab c"), "ab c")
    assert found.unit == "pixels"
    (a, b) = found.words
    assert 0 <= a.start < a.end <= 26
    assert 30 <= b.start < b.end <= marks("ab c").shape[1]


def test_the_likeliest_pronunciations(phones: Model) -> None:
    """All combinations of pronunciations, each aligned on its own, find nothing better."""
    said = {"x": [["AH", "B"], ["B", "AH"], ["SH"]], "y": [["SH", "AH"], ["B"]]}
    for number, heard in enumerate(["abca", "bab", "cbca", "babca"]):
        found = phones.align(frames(heard, number), "x y x"[: 3 + 2 * (number == 3)], lexicon=said)
        spoken = [word.text for word in found.words]
        scores = [
            phones.align(frames(heard, number), " ".join(itertools.chain(*some))).score
            for some in itertools.product(*(said[word] for word in spoken))
            if sum(map(len, some)) <= 6
        ]
        assert found.score == pytest.approx(max(scores))


@pytest.fixture
def sounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two recordings in folders of their own and a table of them; the texts."""
    monkeypatch.chdir(tmp_path)
    texts = [TEXT, "c ab"]
    for number, text in enumerate(texts):
        Path(f"{number}").mkdir()
        soundfile.write(f"{number}/said.wav", tone(text, seed=number), RATE)
    manifest(Path("table.tsv"), [(f"{number}/said.wav", text) for number, text in enumerate(texts)])
    return texts


def test_files_of_every_format(listener: Model, place: Path, sounds: list[str]) -> None:
    model = place / "run-listener"
    found = listener.align(["0/said.wav", "1/said.wav"], sounds)
    code, out, err = call("align", model, "table.tsv", "--format", "jsonl")
    assert (code, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    assert [one["input"] for one in records] == ["0/said.wav", "1/said.wav"]
    assert [(one["text"], one["start"], one["end"]) for one in records[0]["words"]] == [w[:3] for w in found[0].words]
    assert [one["label"] for one in records[1]["labels"]] == ["c", "a", "b"]

    assert call("align", model, "table.tsv", "--out", "all.csv")[0] == 0
    rows = list(csv.DictReader(Path("all.csv").read_text().splitlines()))
    assert [row["text"] for row in rows if row["tier"] == "word"] == " ".join(sounds).split()
    assert [float(row["start"]) for row in rows[:3]] == [word.start for word in found[0].words]

    assert call("align", model, "table.tsv", "--format", "textgrid", "--out", "grids")[0] == 0
    for number, one in enumerate(found):
        grid = textgrid.openTextgrid(f"grids/{number}/said.TextGrid", includeEmptyIntervals=False)
        assert grid.maxTimestamp == one.end
        assert [(i.label, i.start, i.end) for i in grid.getTier("words").entries] == [w[:3] for w in one.words]
        assert [(i.label, i.start, i.end) for i in grid.getTier("labels").entries] == [w[:3] for w in one.labels]

    code, out, _ = call("align", model, "table.tsv", "--format", "ctm")
    assert [line.split()[4] for line in out.splitlines()] == " ".join(sounds).split()
    for kind in ("srt", "vtt"):
        code, out, _ = call("align", model, "0/said.wav", "--text", TEXT, "--format", kind)
        (event,) = pysubs2.SSAFile.from_string(out)
        assert (event.text, event.start) == (TEXT, round(1000 * found[0].words[0].start))
    code, out, _ = call("align", model, "0/said.wav", "--text", TEXT)
    assert out.splitlines()[0] == "# 0/said.wav"
    assert [line.split("\t")[3] for line in out.splitlines()[1:]] == TEXT.split()


def test_a_text_beside_its_recording(place: Path, sounds: list[str]) -> None:
    Path("0/said.lab").write_text("ab\nca b\n")
    _, out, _ = call("align", place / "run-listener", "0/said.wav", "--format", "jsonl")
    assert json.loads(out)["text"] == TEXT


def test_an_exported_model_aligns(listener: Model, place: Path, sounds: list[str]) -> None:
    if not (place / "exported").exists():
        assert call("export", place / "run-listener", "--onnx", place / "exported", "--no-check")[0] == 0
    found = [json.loads(call("align", place / name, "table.tsv", "--format", "jsonl")[1].splitlines()[0])
             for name in ("run-listener", "exported")]  # fmt: skip
    ours, theirs = ([(one["text"], one["start"], one["end"]) for one in record["words"]] for record in found)
    assert ours == theirs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0/said.wav"], "There is no text for 0/said.wav. Give it: --text, --text-file, or a .txt of the same name."),
        (
            ["0/said.wav", "1/said.wav", "--text", "a"],
            "There is one text for 2 files. Give a table of files and texts.",
        ),
        (["table.tsv", "--text", "a"], "table.tsv is a table of files and texts, and there is a text beside it."),
        (["table.tsv", "--format", "vtt"], "A .vtt file holds one input, and there are 2. Give --out FOLDER."),
        (["table.tsv", "--format", "xml"], "Unknown format 'xml'."),
        (["0/said.wav", "--text", "a", "--out", "table.tsv"], "table.tsv exists already."),
        (["0/said.wav", "--text", "a", "--lexicon", "x"], "A lexicon is for models of symbols;"),
    ],
)
def test_mistakes(place: Path, sounds: list[str], words: list[str], message: str) -> None:
    code, out, err = call("align", place / "run-listener", *words)
    assert (code, out) == (2, "")
    assert message in err


def test_inputs_that_cannot_be_aligned_are_named(place: Path, sounds: list[str]) -> None:
    soundfile.write("silent.wav", np.zeros(RATE), RATE)
    rows = [("0/said.wav", TEXT), ("silent.wav", "a"), ("1/said.wav", "a" * 200), ("0/said.wav", "ab xylo")]
    manifest(Path("some.tsv"), [*rows, ("none.wav", "a")])
    with pytest.warns(Note) as notes:
        code, out, err = call("align", place / "run-listener", "some.tsv", "--format", "jsonl")
    assert code == 2
    assert [json.loads(line)["text"] for line in out.splitlines()] == [TEXT]
    assert err.endswith("unrolled: 4 of 5 inputs could not be aligned. The reasons are above.\n")
    err = "\n".join(str(one.message) for one in notes)
    assert "silent.wav: The input is silent or empty: no text can be aligned with it." in err
    assert re.search(r"1/said.wav: The text needs 399 frames, and the network puts out \d+\.", err)
    assert "0/said.wav: The model never saw 'x', 'y', 'l', 'o' in training; the word 'xylo' has it." in err
    assert "some.tsv:5: none.wav does not exist." in err
    code, out, _ = call("align", place / "run-listener", "0/said.wav", "--text", "ab xylo ca b", "--skip-unknown")
    assert code == 0
    assert "xylo" not in out


def test_places_of_lines_are_not_seconds(reader: Model, place: Path) -> None:
    code, _, err = call("align", place / "run-reader", "x.png", "--text", "a", "--format", "srt")
    assert code == 2
    assert "srt holds seconds, and this model's places are pixels. Use text, jsonl or csv." in err


def test_mistakes_in_python(listener: Model, phones: Model) -> None:
    with pytest.raises(UserError, match=r"There are 1 inputs and 2 texts. Give a text for each input"):
        listener.align([tone(TEXT)], [TEXT, TEXT], rate=RATE)
    with pytest.raises(UserError, match=r"prior=2 is not from 0 to 1"):
        listener.align(tone(TEXT), TEXT, rate=RATE, prior=2)
    with pytest.raises(UserError, match="There is no text to align"):
        listener.align(tone(TEXT), "  ", rate=RATE)
    with pytest.raises(UserError, match=r"'bush' is not a label of the model, which reads .*--lexicon"):
        phones.align(frames("bac"), "bush")
    with pytest.raises(UserError, match="The lexicon does not have the word 'ash'"):
        phones.align(frames("bac"), "ash", lexicon={"bush": [["B", "AH", "SH"]]})
