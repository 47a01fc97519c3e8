"""`recognize` as a user types it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests import warm
from tests.fitting import fitting
from tests.tasks.recognition import RATE, SMALL, manifest, tone, words, write_lines, write_recordings
from unrolled import load
from unrolled.cli.app import main
from unrolled.data.readers.media.archives import Medium
from unrolled.errors import Note
from unrolled.tasks.recognize.predict import hear
from unrolled.tasks.recognize.run import RecognizeRunner


def run(*parts: str, text: str | bytes = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in this process: starting Python anew takes seconds."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always", Note)
        patch.setattr(sys, "argv", ["unrolled", *parts])
        patch.setattr(
            sys,
            "stdin",
            io.TextIOWrapper(io.BufferedReader(io.BytesIO(text if isinstance(text, bytes) else text.encode()))),
        )
        patch.chdir(folder or ".")
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(parts, code, out.getvalue(), err.getvalue())


def test_the_command_itself(folder: Path) -> None:
    result = warm.unrolled("run", "m", "test0.wav", "missing.wav", folder=folder)
    assert result.returncode == 2
    assert result.stdout == f"{words(10, seed=1)[0]}\n\n"
    assert result.stderr == (
        "Note: missing.wav does not exist. Give the path of a recording or picture.\n"
        "unrolled: 1 of 2 inputs could not be read. The others are above.\n"
    )


def test_one_bad_file_among_good_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("run", "m", "test0.wav", "text.txt", "test1.wav", "--json", folder=folder)
    first, bad, last = map(json.loads, result.stdout.splitlines())
    assert [first["text"], last["text"]] == words(10, seed=1)[:2]
    assert bad["input"] == "text.txt"
    assert bad["error"].startswith("text.txt is not a readable recording: Format not recognised.")
    assert result.returncode == 2
    assert "1 of 3 inputs could not be read." in result.stderr
    monkeypatch.setattr(RecognizeRunner, "at_once", 1)  # read one after the other
    later = run("run", "m", "test0.wav", "text.txt", "test1.wav", folder=folder)
    assert later.stdout.splitlines() == [words(10, seed=1)[0], "", words(10, seed=1)[1]]
    assert "1 of 3 inputs could not be read." in later.stderr
    nothing = run("run", "m", "text.txt", "missing.wav", folder=folder)
    assert (nothing.stdout, nothing.returncode) == ("", 2)
    assert "text.txt is not a readable recording" in nothing.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained model in it, m, and recordings in an archive."""
    place = tmp_path_factory.mktemp("work")
    write_recordings(place, words(80))
    write_recordings(place, words(10, seed=1), "test")
    with zipfile.ZipFile(place / "sounds.zip", "w") as archive:
        for file in place.glob("train*.wav"):
            archive.write(file, f"some/{file.name}")
            file.unlink()
    rows = [(f"sounds.zip/some/train{i}.wav", text) for i, text in enumerate(words(80))]
    manifest(place / "train.tsv", rows)
    keys = fitting("recognize", SMALL, data__kind="audio")
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    result = run(
        "train", "recognize", "--train", "train.tsv", "--valid", "test.tsv", "--out", "m", *settings, folder=place
    )
    assert result.returncode == 0, result.stderr
    assert "Done: best cer" in result.stderr
    assert "became" in result.stderr
    (place / "words.txt").write_text("".join(f"{word}\n" for word in sorted({w for t in words(80) for w in t.split()})))
    (place / "text.txt").write_text("".join(f"{text}\n" for text in words(80)))
    assert run("lm", "train", "text.txt", "--order", "2", "--out", "lm.arpa", folder=place).returncode == 0
    return place


def test_files_are_recognised_in_their_order(folder: Path) -> None:
    expected = words(10, seed=1)
    assert run("run", "m", "test0.wav", "test1.wav", folder=folder).stdout.splitlines() == expected[:2]
    assert run("run", "m", text="test2.wav\ntest1.wav\n", folder=folder).stdout.splitlines() == expected[2:0:-1]
    assert run("run", "m", "sounds.zip/some/train0.wav", folder=folder).stdout.splitlines() == words(80)[:1]


def test_json_has_n_best_lists_and_times(folder: Path) -> None:
    result = run("run", "m", "test0.wav", "--json", "--beam", "20", "--n-best", "2", folder=folder)
    record = json.loads(result.stdout)
    text = words(10, seed=1)[0]
    assert record["text"] == text
    assert len(record["n_best"]) == 2
    assert record["unit"] == "seconds"
    assert [word["text"] for word in record["words"]] == text.split()
    assert "".join(label["label"] for label in record["labels"]).strip() == text
    seconds = soundfile.info(folder / "test0.wav").duration
    times = [(label["start"], label["end"]) for label in record["labels"]]
    assert all(0 <= start < end <= seconds for start, end in times)
    assert times == sorted(times)


def test_a_lexicon_and_a_language_model(folder: Path) -> None:
    options = ("--lexicon", "words.txt", "--lm", "lm.arpa", "--beam", "50", "--lm-weight", "0.1")
    assert run("run", "m", "test1.wav", *options, folder=folder).stdout.strip() == words(10, seed=1)[1]
    shown = run("eval", "m", "test.tsv", *options, folder=folder).stdout
    assert "search           CER     WER  exact match" in shown
    assert "lexicon + lm" in shown
    scores = json.loads(run("eval", "m", "test.tsv", "--json", folder=folder).stdout)
    assert scores["cer"] < 0.05
    assert {"cer", "wer", "exact_match", "searches", "unknown_symbols"} <= set(scores)


def test_a_picture_is_drawn(folder: Path) -> None:
    result = run("run", "m", "test0.wav", "--picture", "seen.png", folder=folder)
    assert result.returncode == 0, result.stderr
    assert (folder / "seen.png").stat().st_size > 10_000


def test_check_and_info(folder: Path) -> None:
    shown = run("check", "recognize", "--train", "train.tsv", folder=folder).stdout
    assert "recordings at 8,000 Hz, 80 mel bands" in shown
    assert "steps, mean / longest" in shown
    assert "recognize" in run("info", "m", folder=folder).stdout


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("run", "m", "missing.wav"), "missing.wav does not exist. Give the path of a recording or picture."),
        (("run", "m", "text.txt"), "text.txt is not a readable recording: Format not recognised."),
        (("run", "m", "picture.png"), "picture.png is a picture. This model expects a recording: a path"),
        (("run", "m", "sounds.zip/none.wav"), "sounds.zip has no member 'none.wav'. It has 80, the first 'some/train"),
        (("run", "m", "test0.wav", "--lm", "lm.arpa"), "A language model of words needs a list of them."),
        (("run", "m", "test0.wav", "--temperature", "1"), "--temperature is not for a model of recognize."),
        (("run", "m", "test0.wav", "test1.wav", "--picture", "x.png"), "A picture shows one input, and there are 2."),
        (("eval", "m", "bare.tsv"), "bare.tsv:1 has no tab: 'test0.wav'."),
        (("train", "recognize", "--train", "gone.tsv"), "gone.tsv:2: gone.wav does not exist."),
    ],
)
def test_mistakes_end_with_one_line(parts: tuple[str, ...], message: str, folder: Path) -> None:
    write_lines(folder, ["a"], "line")
    (folder / "line0.png").rename(folder / "picture.png")
    (folder / "bare.tsv").write_text("test0.wav\n")
    (folder / "gone.tsv").write_text("test0.wav\ta\ngone.wav\tb\ntest1.wav\ta\n")
    result = run(*parts, folder=folder)
    assert message in result.stderr
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_other_tasks_have_no_such_options(folder: Path) -> None:
    (folder / "labels.tsv").write_text("".join(f"{'xy'[i % 2]}\ttext {i}\n" for i in range(12)))
    result = run(
        "train", "classify", "--train", "labels.tsv", "--out", "c", "--set", "train.max_steps=1", folder=folder
    )
    assert result.returncode == 0, result.stderr
    result = run("eval", "c", "labels.tsv", "--lexicon", "words.txt", folder=folder)
    assert result.returncode == 2
    assert "--lexicon is not for a model of classify. It takes --min-probability." in result.stderr


def test_notes_tell_what_is_unusual(folder: Path) -> None:
    soundfile.write(folder / "stereo.wav", np.stack([tone("ab", 4000)] * 2, axis=1), 4000)
    result = run("run", "m", "stereo.wav", folder=folder)
    assert result.returncode == 0
    assert "Note: stereo.wav has 2 channels: their mean is read." in result.stderr
    assert "Note: stereo.wav has 4,000 samples a second; the model learnt from 8,000." in result.stderr
    soundfile.write(folder / "strange.wav", tone("ab"), RATE)
    (folder / "strange.tsv").write_text("strange.wav\täb\n")
    result = run("eval", "m", "strange.tsv", folder=folder)
    assert (
        "Note: Symbols never seen in training cannot be recognised. There are 1, the first at strange.tsv:1: 'ä'."
        in (result.stderr)
    )


def test_a_table_keeps_what_could_not_be_read(folder: Path) -> None:
    result = run("run", "m", "missing.wav", "test0.wav", "text.txt", "--format", "csv", folder=folder)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["input"] for row in rows] == ["missing.wav", "test0.wav", "text.txt"]
    assert [row["text"] for row in rows] == ["", words(10, seed=1)[0], ""]
    assert rows[0]["error"] == "missing.wav does not exist. Give the path of a recording or picture."
    assert rows[1]["error"] == ""
    assert rows[2]["error"].startswith("text.txt is not a readable recording")
    assert all(None not in row and None not in row.values() for row in rows)  # every row has every column
    assert result.returncode == 2


def test_a_recording_that_ends_early_is_said(folder: Path) -> None:
    whole = (folder / "test0.wav").read_bytes()
    (folder / "cut.wav").write_bytes(whole[: 44 + 2 * RATE // 4])
    declared = (len(whole) - 44) / 2 / RATE
    result = run("run", "m", "cut.wav", folder=folder)
    assert result.returncode == 0
    assert f"Note: cut.wav ends early: it declares {declared:.2f} seconds, and has 0.25." in result.stderr
    assert "ends early" not in run("run", "m", "test0.wav", folder=folder).stderr
    piped = run("run", "m", "-", text=whole[: 44 + 2 * RATE // 4], folder=folder)
    assert (piped.stdout, piped.returncode) == (result.stdout, 0)
    assert f"Note: Standard input ends early: it declares {declared:.2f} seconds, and has 0.25." in piped.stderr
    (folder / "odd.wav").write_bytes(whole[:-1])
    last = run("run", "m", "odd.wav", folder=folder).stderr
    assert last == "Note: odd.wav ends early: its last sample is missing. The others are read.\n"
    (folder / "head.wav").write_bytes(whole[:44])
    none = run("run", "m", "head.wav", folder=folder).stderr
    assert none == f"Note: head.wav ends early: it declares {declared:.2f} seconds, and has none.\n"
    manifest(folder / "cut.tsv", [("cut.wav", "a"), ("test0.wav", "b")])
    result = run("check", "recognize", "--train", "cut.tsv", "--set", "data.valid=test.tsv", folder=folder)
    assert "1 of 2 recordings end before what they declare, the first at cut.tsv:1." in result.stderr


def test_a_recording_on_standard_input(folder: Path) -> None:
    expected, raw = words(10, seed=1)[0], (folder / "test0.wav").read_bytes()
    for parts, given in (
        (("-",), raw),
        ((), raw),  # what it is can be seen
        (("-",), raw[:40] + b"\xff\xff\xff\xff" + raw[44:]),  # a length that nobody knew
        (("-", "--rate", str(RATE)), raw[44:]),
        (("--rate", str(RATE)), raw[44:]),
    ):
        result = run("run", "m", *parts, text=given, folder=folder)
        assert (result.stdout, result.returncode) == (f"{expected}\n", 0), result.stderr
        assert "iconv" not in result.stderr
    (folder / "test0.raw").write_bytes(raw[44:])
    assert run("run", "m", "test0.raw", "--rate", str(RATE), folder=folder).stdout == f"{expected}\n"
    assert "test0.raw is samples, which do not say" in run("run", "m", "test0.raw", folder=folder).stderr
    both = run("run", "m", "-", "test0.wav", text=raw, folder=folder)
    assert "- is standard input, and there are files beside it. Give one or the other." in both.stderr
    record = json.loads(run("run", "m", "-", "--json", text=raw, folder=folder).stdout)
    assert (record["input"], record["text"]) == ("-", expected)


def test_run_and_decode_have_one_schema(folder: Path) -> None:
    model = load(folder / "m")
    np.savez(folder / "heard.npz", one=next(hear(model, [Medium.named(str(folder / "test0.wav"))]))[0].log_probs)
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in model.assets.labels.names))
    options = ("--lexicon", "words.txt", "--n-best", "2", "--json")
    ran = json.loads(run("run", "m", "test0.wav", *options, folder=folder).stdout)
    given = ("heard.npz", "--labels", "labels.txt", "--frame-seconds", "0.02")
    read = json.loads(run("decode", *given, *options, folder=folder).stdout)

    def keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: keys(one) for key, one in value.items()}
        return keys(value[0]) if isinstance(value, list) else type(value).__name__

    assert keys(ran) == keys(read)
    assert {**ran, "input": ""} == {**read, "input": ""}
    assert len(ran["n_best"]) == 2
    assert all(one["words"] and one["labels"] for one in ran["n_best"])


def test_weights_are_tuned(folder: Path) -> None:
    options = ("--lexicon", "words.txt", "--lm", "lm.arpa", "--tune")
    shown = run("eval", "m", "test.tsv", *options, folder=folder).stdout
    assert re.search(r"^tuned +--lm-weight [0-9.]+ --word-bonus [-0-9.]+$", shown, re.MULTILINE)
    said = run("eval", "m", "test.tsv", "--tune", folder=folder)
    assert (said.returncode, "tune is for lm_weight and word_bonus" in said.stderr) == (2, True)


@pytest.mark.parametrize("names", ["file\ttext", "File\tText"])
def test_a_manifest_may_have_a_header(names: str, folder: Path) -> None:
    (folder / "named.tsv").write_text(f"{names}\n" + (folder / "test.tsv").read_text())
    result = run("eval", "m", "named.tsv", "--json", folder=folder)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["examples"] == 10
