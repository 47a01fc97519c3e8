"""Frames in .csv files: the same examples as in .npz files, columns by name, and mistakes with their lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import unrolled
from tests.cli.test_generate import call
from tests.tasks.tag.conftest import run, small
from tests.tasks.tag.test_tag_frames import FEW, gestures, sequences
from unrolled import Model, UserError
from unrolled.data.readers.tagged.frame_tables import FrameColumns
from unrolled.data.readers.tagged.frames import read_tagged_frames

pytestmark = pytest.mark.filterwarnings("ignore::unrolled.errors.Note")


def written(path: Path, columns: str = "session,x,y,z,label", separator: str = ",", **others: str) -> Path:
    """Gestures as a table, a session for each sequence; `others` are names of columns in place of the usual ones."""
    given = gestures()
    sessions = np.repeat([f"s{i}" for i in range(len(given["lengths"]))], given["lengths"])
    values = {"session": sessions, "label": given["labels"], "w": np.ones(len(sessions))}
    values |= {name: given["frames"][:, place] for place, name in enumerate("xyz")}
    names = columns.split(",")
    rows = [",".join(others.get(name, name) for name in names)]
    rows += [",".join(str(values[name][row]) for name in names) for row in range(len(sessions))]
    text = "\n".join(rows) + "\n"
    if separator == ";":
        text = text.replace(",", ";").replace(".", ",")
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("tables")
    return small(written(folder / "gestures.csv"), folder / "run", **FEW)


def test_a_table_holds_what_arrays_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "gestures.npz", **gestures())
    expected = read_tagged_frames(tmp_path / "gestures.npz")
    for path in (
        written(tmp_path / "comma.csv"),
        written(tmp_path / "semicolon.csv", separator=";"),
        written(tmp_path / "packed.csv.gz"),
    ):
        found = read_tagged_frames(path)
        assert [one.content for one in found] == [one.content for one in expected]
        assert [one.place for one in found[:2]] == [f"{path}: sequence s0", f"{path}: sequence s1"]
        assert found[0].columns == ("x", "y", "z")


def test_rows_of_a_sequence_may_stand_anywhere(tmp_path: Path) -> None:
    (tmp_path / "mixed.csv").write_text("id,x,class\nb,1,up\na,2,down\nb,3,down\na,4,up\n")
    one, two = read_tagged_frames(tmp_path / "mixed.csv")
    assert (one.frames.tolist(), one.tags) == ([[1.0], [3.0]], ("up", "down"))
    assert (two.frames.tolist(), two.tags) == ([[2.0], [4.0]], ("down", "up"))


def test_columns_that_count_rows_are_left_out_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,time,x,tag\n1,0.1,5,a\n2,0.2,6,b\n")
    with pytest.warns(unrolled.errors.Note) as notes:
        (one,) = read_tagged_frames(tmp_path / "rows.csv")
    assert one.frames.tolist() == [[5.0], [6.0]]
    said = [str(note.message) for note in notes]
    assert any("each row has its own 'id', so it does not tell sequences apart and is left out." in one for one in said)
    assert any(
        "'time' is left out, since it counts the rows. To read it, set data.feature_columns." in one for one in said
    )


def test_training_evaluation_and_runs(model: Model, tmp_path: Path) -> None:
    """Other orders of columns, and further ones, change nothing: the model knows its columns by name."""
    assert model.assets.frame_columns == ("x", "y", "z")
    model.save(tmp_path / "model.safetensors")
    loaded = unrolled.load(tmp_path / "model.safetensors")
    assert loaded.assets.frame_columns == ("x", "y", "z")
    table, turned = written(tmp_path / "one.csv"), written(tmp_path / "turned.csv", "z,label,x,session,y")
    np.savez(tmp_path / "one.npz", **gestures())
    scores = loaded.evaluate(table)
    assert scores == loaded.evaluate(turned) == loaded.evaluate(tmp_path / "one.npz")
    written(tmp_path / "unlabelled.csv", "session,w,z,y,x")
    answers = loaded.predict([frames for frames, _ in sequences(gestures())])
    expected = "".join(f"{answer}\n" for answer in answers)
    assert run(loaded, files=[str(tmp_path / "unlabelled.csv")]) == expected == run(loaded, files=[str(table)])
    code, out, said = call("run", tmp_path / "model.safetensors", turned, "--json")
    assert code == 0, said
    record = json.loads(out.splitlines()[3])
    assert record["input"] == f"{turned}: sequence s3"
    assert record["tags"] == list(answers[3].tags)


def test_columns_by_name_and_number(tmp_path: Path) -> None:
    path = tmp_path / "named.csv"
    rows = [f"w{i % 6},{i},{i * i % 7},{'up' if i % 3 else 'down'},nobody" for i in range(60)]
    path.write_text("walk,a,b,what,who\n" + "\n".join(rows))
    for tags, sequence, features in (("what", "walk", "b"), (4, 1, "3")):
        keys = {"data__tag_column": tags, "data__sequence_column": sequence, "data__feature_columns": features}
        model = small(path, tmp_path / f"run-{tags}", **FEW, **keys)
        assert model.assets.frame_columns == ("b",)
        assert model.assets.frames == (1,)
    scores = model.evaluate(path)
    assert scores["frames"] == 60
    code, out, said = call(
        "check",
        "tag",
        "--train",
        path,
        "--set",
        "data.tag_column=what",
        "--set",
        "data.sequence_column=walk",
        "--set",
        "data.feature_columns=a,b",
    )
    assert code == 0, said
    assert "frames of a, b" in out


BAD = {
    "no header": ("1,2,a\n3,4,b\n", "bad.csv:1 is no header: 1, 2, a. Expected a first line with names of columns."),
    "empty": ("", "bad.csv is empty."),
    "blank": ("\n\n", "bad.csv is empty."),
    "no rows": ("x,label\n", "bad.csv holds no frame. Give a file with a header and at least one row."),
    "twice": ("x,x,label\n1,2,a\n", "bad.csv:1 has two columns 'x'. Give each a name of its own."),
    "width": ("x,label\n1,a\n1\n", "bad.csv:3 has 1 cells, and the header has 2."),
    "no class": ("x,z\n1,2\n", "bad.csv has no column with the class of each frame; it has x, z. Name it"),
    "empty class": ("x,label\n1,a\n2,\n", "bad.csv:3 has no class in the column 'label'. Every frame needs one."),
    "text": ("x,who,label\n1,ada,a\n", "bad.csv:2: 'ada' in the column 'who' is no number. Name the columns"),
    "missing": ("x,label\n1,a\n,b\n", "bad.csv:3: the column 'x' is empty. Give a number, or leave the row out."),
    "nan": ("x,label\n1,a\nnan,b\n", "bad.csv:3: the column 'x' holds nan. Give a number, or leave the row out."),
    "too large": ("x,label\n1,a\n1e300,b\n", "bad.csv:3: the column 'x' holds 1e300. Give a number, or leave"),
    "no numbers": ("label\na\n", "bad.csv has no column of numbers; it has label."),
    "two classes": ("x,class,tag\n1,a,b\n", "hold the tag: 'class' or 'tag'. Say which: --set data.tag_column=class"),
    "quote": ('x,label\n1,"a\n', "bad.csv:2: a quote is not closed."),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    text, message = BAD[name]
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(UserError) as error:
        read_tagged_frames(tmp_path / "bad.csv")
    assert message in str(error.value)


def test_mistakes_about_columns(model: Model, tmp_path: Path) -> None:
    path = written(tmp_path / "gestures.csv")
    np.savez(tmp_path / "gestures.npz", **gestures())
    (tmp_path / "words.conll").write_text("a X\nb Y\n\nc X\n\n" * 5)
    other = written(tmp_path / "other.csv", x="u")
    model.save(tmp_path / "start.safetensors")
    for given, message in (
        (
            lambda: small(path, tmp_path / "a", **FEW, data__tag_column="lable"),
            "Unknown column 'lable'. Did you mean 'label'",
        ),
        (lambda: small(path, tmp_path / "b", **FEW, data__feature_columns="x,v"), "Unknown column 'v'."),
        (lambda: small(path, tmp_path / "c", **FEW, data__sequence_column="walk"), "Unknown column 'walk'."),
        (
            lambda: small(path, tmp_path / "d", **FEW, data__word_column="x"),
            f"{path} holds frames: data.word_column='x' does not apply. Leave it out: the column of classes is what is",
        ),
        (
            lambda: small(tmp_path / "gestures.npz", tmp_path / "e", **FEW, data__sequence_column="session"),
            "gestures.npz holds frames: data.sequence_column='session' does not apply. Leave it out: `labels` are what",
        ),
        (
            lambda: small(tmp_path / "words.conll", tmp_path / "f", data__sequence_column="session"),
            "words.conll holds words: data.sequence_column='session' does not apply. Leave it out: it is for frames in",
        ),
        (lambda: model.evaluate(other), "Unknown column 'x'. Choices: label, session, u, y, z."),
        (
            lambda: unrolled.train(
                "tag", train=other, init=tmp_path / "start.safetensors", out=tmp_path / "g", quiet=True
            ),
            "The columns of the frames are u, y, z; the model to start from reads x, y, z. Give the same columns",
        ),
    ):
        with pytest.raises(UserError) as error:
            given()
        assert message in str(error.value)


def test_whole_numbers_as_classes(tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("x,label\n1,0\n2,1\n")
    (one,) = read_tagged_frames(tmp_path / "numbers.csv", FrameColumns(tag_names=("rest", "wave")))
    assert one.tags == ("rest", "wave")
    with pytest.warns(unrolled.errors.Note, match="label are whole numbers without names"):
        assert read_tagged_frames(tmp_path / "numbers.csv")[0].tags == ("0", "1")
