"""Tables as users have them, in `train`, `check`, `eval` and `run`: columns, what is kept, what is given twice."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import unrolled
from tests.cli.test_generate import call
from tests.tasks.test_classify import SMALL, sentences, write
from unrolled import Model, api
from unrolled.cli import app as command
from unrolled.cli.verb import Verb
from unrolled.data.readers.tables.standard_input import piped_texts
from unrolled.errors import Note
from unrolled.jobs import TrainingJob
from unrolled.tasks import TASKS

SET = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
ROWS = sentences(40, seed=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose header has other names, in another order."""
    path = tmp_path_factory.mktemp("tables") / "train.tsv"
    path.write_text("sentence\tid\tclass\n" + "".join(f"{t}\t{i}\t{x}\n" for i, (x, t) in enumerate(sentences(120))))
    with pytest.warns(Note, match=r"train\.tsv:1 is a header; columns: label 'class', text 'sentence'\."):
        assert call("train", "classify", "--train", path, "--out", path.parent / "run", *SET)[0] == 0
    return path.parent / "run"


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return unrolled.load(folder)


def answered(model: Model) -> list[str]:
    return [answer.label for answer in model.predict([text for _, text in ROWS])]


def test_a_header_in_any_order(folder: Path, model: Model, tmp_path: Path) -> None:
    assert model.assets.labels == ("bad", "good")
    path = tmp_path / "test.tsv"
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in ROWS))
    with pytest.warns(Note, match="is a header"):
        assert json.loads(call("eval", folder, path, "--json")[1])["accuracy"] > 0.9
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for label, text in ROWS))
    with pytest.warns(Note, match=r"test\.tsv:1 is a header; columns: text 'text'\."):
        code, out, _ = call("run", folder, path)
    assert code == 0
    assert out.splitlines() == answered(model)
    with pytest.warns(Note, match="is a header"):
        out = call("check", "classify", "--train", path, *SET)[1]
    assert "labels                       2: " in out


def test_columns_of_another_name(folder: Path, model: Model, tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps({"doc": {"said": t}, "mark": x}) + "\n" for x, t in ROWS))
    code, _, said = call("run", folder, path)
    assert code == 2
    assert said == (
        f"unrolled: {path}:1 has no 'text'. It has: doc.said, mark. Say which it is: --set data.text_column=…\n"
    )
    keys = ["--set", "data.text_column=doc.said"]
    assert call("run", folder, path, *keys)[1].splitlines() == answered(model)
    code, out, _ = call("eval", folder, path, *keys, "--set", "data.label_column=mark", "--json")
    assert code == 0
    same = write(tmp_path / "same.tsv", ROWS)
    assert json.loads(out) == model.evaluate(same)
    columns = {"data.text_column": "doc.said", "data.label_column": "mark"}
    assert model.evaluate(path, set=columns) == model.evaluate(same)
    assert model.evaluate(path, set=[f"{key}={value}" for key, value in columns.items()]) == model.evaluate(same)
    assert getattr(model.config, "data").text_column is None  # noqa: B009
    for key in ("model.cell=gru", "data.level=char", "data.text_colum=x", "nonsense"):
        code, _, said = call("run", folder, path, "--set", key)
        assert code == 2
        assert said == (
            f"unrolled: {key.partition('=')[0]} of a trained model cannot be set: only keys about reading a file can. "
            "For this file: data.text_column, data.label_column, data.label_separator.\n"
        )


def test_kept_columns(folder: Path, model: Model, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("when|id|text|label\n" + "".join(f"2020-01-{i + 1}|{i}|{t}|{x}\n" for i, (x, t) in enumerate(ROWS)))
    out = call("run", folder, path, "--keep", "id, when,label", "--json")[1]
    records = [json.loads(line) for line in out.splitlines()]
    assert [one["id"] for one in records] == [str(i) for i in range(len(ROWS))]
    assert records[1]["when"] == "2020-01-2"
    assert [one["given_label"] for one in records] == [label for label, _ in ROWS]
    assert [one["label"] for one in records] == answered(model)
    out = call("run", folder, path, "--keep", "id", "--format", "csv")[1]
    table = list(csv.DictReader(io.StringIO(out)))
    assert [(row["id"], row["label"]) for row in table] == [(one["id"], one["label"]) for one in records]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("in.csv", "--keep", "id"), "--keep is for records. Ask for them with --format jsonl or csv."),
        (("in.csv", "--keep", "no", "--json"), "in.csv has no column 'no' to keep. It has: id, text."),
        (("--text", "x", "--keep", "id", "--json"), "--keep is for the columns of tables, and there is no file."),
        (("in.csv", "--keep", ",", "--json"), "--keep names no column. Give names with commas between: --keep id,date"),
        (("lines", "--keep", "id", "--json"), "lines is not a table: it has no columns to keep."),
    ],
)
def test_nothing_to_keep(words: tuple[str, ...], message: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n1,one fine\n")
    (tmp_path / "lines").write_text("one fine\n")
    code, _, said = call("run", folder, *(tmp_path / word if word in ("in.csv", "lines") else word for word in words))
    assert code == 2
    assert message in said


def test_translate_keeps_columns_too(run_of: Any, tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("target\tid\tsource\nno\ta\t3 5\nno\tb\t8\n")
    with pytest.warns(Note, match=r"in\.tsv:1 is a header; columns: source 'source'\."):
        out = call("run", run_of("translate-luong"), tmp_path / "in.tsv", "--keep", "id,target", "--json")[1]
    records = [json.loads(line) for line in out.splitlines()]
    assert [(one["id"], one["target"], one["source"]) for one in records] == [("a", "no", "3 5"), ("b", "no", "8")]
    with pytest.warns(Note, match=r"Standard input, line 1 is a header; columns: source 'en'\."):
        out = call("run", run_of("translate-luong"), "--json", given="id\ten\tde\na\t3 5\tno\nb\t8\tno\n")[1]
    assert [json.loads(line) for line in out.splitlines()] == [
        {name: value for name, value in one.items() if name not in ("id", "target")} for one in records
    ]
    code, _, said = call("run", run_of("generate-lstm"), tmp_path / "in.tsv", "--keep", "id", "--json")
    assert (code, said) == (2, "unrolled: --keep is not for a model of generate. Leave it out.\n")


def test_swapped_columns_are_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "swapped.tsv"
    path.write_text("".join(f"this is number {i}: {t}\t{x}\n" for i, (x, t) in enumerate(ROWS)))
    fix = "If they are: --set data.label_column=2 --set data.text_column=1\n"
    for words in (
        ("train", "classify", "--train", path),
        ("check", "classify", "--train", path),
        ("eval", folder, path),
    ):
        code, _, said = call(*words)
        assert code == 2
        assert f"The columns of {path} look swapped: 40 labels in 40 rows" in said
        assert said.endswith(fix)
    assert call("check", "classify", "--train", path, *SET, *fix.split()[3:])[0] == 0
    code, _, said = call("run", folder, path)
    assert (code, said) == (
        2,
        f"unrolled: The texts of {path} are the labels themselves: bad, good. "
        "Say which column holds the texts: --set data.text_column=1\n",
    )
    assert call("run", folder, path, "--set", "data.text_column=1")[0] == 0
    path.write_text("".join(f"this is sentence {i % 20}, once more\t{'pos' if i % 2 else 'neg'}\n" for i in range(60)))
    code, _, said = call("check", "classify", "--train", path)
    assert (code, said.endswith(fix)) == (2, True)
    assert "look swapped: 20 labels in 60 rows" in said


@pytest.mark.parametrize("labels", [("1.0", "0.0"), ("1", "1.5", "4", "4.5")])
def test_labels_with_decimals_point_to_regression(labels: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,rating\n" + "".join(f"it was {i},{x}\n" for i, x in enumerate(labels * 8)))
    with pytest.warns(Note, match=rf"read as {len(labels)} classes\. To predict a number, use data\.kind=number"):
        assert call("check", "classify", "--train", tmp_path / "t.csv", *SET)[0] == 0


def test_a_run_of_no_use_says_so(tmp_path: Path) -> None:
    """Every label is its own: nothing is learnt, and that is said at the start, the first evaluation and the end."""
    path = write(tmp_path / "ids.tsv", [(f"id{i}", text) for i, (_, text) in enumerate(ROWS)])
    with pytest.warns(Note) as notes:
        api.train("classify", train=path, out=tmp_path / "run", set={**SMALL, "train.max_steps": 2}, quiet=True)
    said = "\n".join(str(one.message) for one in notes)
    assert "40 of 40 training examples have a label that no other example has" in said
    assert "The nll is exactly 0 at the first evaluation, step 2" in said
    assert "The accuracy is exactly 0 at the first evaluation, step 2" in said
    assert "The best accuracy is 0: no validation example is right" in said


def test_empty_inputs_are_said(folder: Path, tmp_path: Path) -> None:
    with pytest.warns(Note, match=r"1 inputs are empty"):
        assert len(call("run", folder, given="one fine\n\n")[1].splitlines()) == 2
    path = write(tmp_path / "t.tsv", [("good", "fine"), ("bad", "")])
    with pytest.warns(Note, match=r"Empty inputs count like all others\. There are 1, the first at .*t\.tsv:2\."):
        call("eval", folder, path)


PIPED = {
    "tabs": "id\tReview\tSentiment\n" + "".join(f"{i}\t{t}\t{x}\n" for i, (x, t) in enumerate(ROWS)),
    "quoted tabs": '"label"\t"text"\n' + "".join(f'"{x}"\t"{t}"\n' for x, t in ROWS),
    "commas": "label,text,id\r\n" + "".join(f'{x},"{t}",7\r\n' for x, t in ROWS),
    "bars": "text|label\n" + "".join(f"{t}|{x}\n" for x, t in ROWS),
    "JSON": "".join(json.dumps({"id": 1, "label": x, "sentence": t}) + "\n" for x, t in ROWS),
}


@pytest.mark.parametrize("kind", PIPED)
def test_a_table_on_standard_input(kind: str, folder: Path, model: Model) -> None:
    """It is read as the file would be, with a note."""
    with pytest.warns(Note, match=r"^Standard input(, line 1)? is (a header|JSON).* text '(Review|text|sentence)'\.$"):
        code, out, _ = call("run", folder, given=PIPED[kind])
    assert (code, out.splitlines()) == (0, answered(model))


def test_plain_lines_on_standard_input(folder: Path, model: Model) -> None:
    """Sentences with commas, names of columns among them, empty lines and JSON of other things stay lines."""
    lines = ["great content, body", "", "a fine film; comment", "{not JSON}", "text"]
    for first in range(len(lines)):
        turned = lines[first:] + lines[:first]
        out = call("run", folder, "--json", given="".join(f"{line}\n" for line in turned))[1]
        assert [json.loads(line)["input"] for line in out.splitlines()] == turned
    for line, kind in (("good\ta fine film", "columns between tabs"), ('{"mood": "fine"}', "JSON")):
        with pytest.warns(Note, match=f"Standard input, line 1 looks like {kind}, but names no text: each line is"):
            out = call("run", folder, "--json", given=f"{line}\n")[1]
        assert json.loads(out)["input"] == line


@pytest.mark.parametrize(
    ("given", "keys", "message"),
    [
        ("text\tlabel\na\n", (), "Standard input, line 2 has 1 tab-separated columns. Expected 2, as in the header."),
        ('{"text": "a"}\nb\n', (), "Standard input, line 2 is not a JSON object."),
        ('{"text": "a"}\n{"body": "b"}\n', (), "Standard input, line 2 has no column 'text'. It has: body."),
        ('{"text": 7}\n', (), "Standard input, line 1: the text is int. Expected a text."),
        ("review\tbody\na\tb\n", (), "2 columns that may hold the text: 'review' or 'body'."),
        (
            "review\tlabel\na\tb\n",
            ("--set", "data.text_column=said"),
            "line 1 has no column 'said'. It has: review, label",
        ),
    ],
)
def test_bad_tables_on_standard_input(given: str, keys: tuple[str, ...], message: str, folder: Path) -> None:
    code, _, said = call("run", folder, *keys, given=given)
    assert code == 2
    assert message in said


def test_lines_are_answered_as_they_come() -> None:
    """No line is read before the one that it follows was given away, in tables neither."""
    read: list[str] = []

    def lines(*given: str) -> Iterator[str]:
        for line in given:
            read.append(line)
            yield line

    for first in ("plain\n", "text\tlabel\n", "text,label\n", '{"text": "a"}\n'):
        second = {"p": "b\n", "t": "b\tx\n" if "\t" in first else "b,x\n", "{": '{"text": "b"}\n'}[first[0]]
        read.clear()
        texts = piped_texts(lines(first, second, second), None, "text", "label")
        next(texts)
        assert len(read) == (2 if first.startswith("text") else 1)


def test_a_plain_text_that_begins_like_a_table(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bars.txt"
    for line, ending in (("id|text|label", "csv"), ("text,label", "csv"), ('{"text": "fine"}', "jsonl")):
        path.write_text(f"{line}\n1|fine|good\n")
        with pytest.warns(Note, match=rf"bars\.txt:1 looks like .* give it a name that ends in \.{ending}\.$"):
            out = call("run", folder, path)[1]
        assert len(out.splitlines()) == 2
    path.write_text("a fine film, all in all\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call("run", folder, path)[0] == 0


def test_fasttext_lines_are_answered_without_their_labels(folder: Path, model: Model, tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_text("".join(f"__label__{label} {text}\n" for label, text in ROWS))
    assert call("run", folder, path)[1].splitlines() == answered(model)
    assert call("run", folder, given=path.read_text())[1].splitlines() == answered(model)


def test_labels_that_are_gone(model: Model, tmp_path: Path) -> None:
    """--init keeps them and says so; data.old_labels=drop takes the scores of the others along."""
    model.save(tmp_path / "m.safetensors")
    path = write(tmp_path / "more.tsv", [(x if x == "good" else "odd", text) for x, text in ROWS])

    def job(**changes: Any) -> TrainingJob:
        config = api.configure("classify", [], {**SMALL, "data.train": str(path), **changes})
        return TrainingJob(config, init=tmp_path / "m.safetensors")

    with pytest.warns(Note) as notes:
        kept = job()
    assert kept.assets.labels == ("bad", "good", "odd")
    assert [str(n.message) for n in notes if "start from" in str(n.message)] == [
        "1 labels of the model to start from are not in the new examples, and can still be answered: bad. "
        "To leave them out: --set data.old_labels=drop"
    ]
    with pytest.warns(Note, match=r"1 labels of the model to start from are dropped: bad\."):
        dropped = job(**{"data.old_labels": "drop"})
    assert dropped.assets.labels == ("good", "odd")
    old, new = model.network.state_dict(), dropped.model.network.state_dict()
    assert new["scores.weight"].shape[0] == new["ngrams.weight"].shape[1] == 2
    assert (new["scores.weight"][0] == old["scores.weight"][1]).all()
    assert (new["scores.bias"][0] == old["scores.bias"][1]).all()
    assert (new["ngrams.weight"][:, 0] == old["ngrams.weight"][:, 1]).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("train", "classify", "--train", "a", "--train", "b"),
            "--train is given twice. Give one file with the rows of all.",
        ),
        (("train", "generate", "--out", "a", "--out=b", "--out", "c"), "--out is given 3 times. Give it once."),
        (("check", "classify", "--valid", "a", "--valid", "b"), "--valid is given twice."),
        (("run", "m", "--beam", "1", "--beam", "2"), "--beam is given twice."),
        (("eval", "m", "f", "--picture", "a.png", "--picture", "b.png"), "--picture is given twice."),
        (("lm", "train", "--out", "a", "--order", "2", "--order", "3"), "--order is given twice."),
        (("run", "m", "--set", "data.text_column=1", "--set", "data.label_column=2"), "m does not exist."),  # a list
    ],
)
def test_an_option_given_twice(words: tuple[str, ...], message: str) -> None:
    code, _, said = call(*words)
    assert code == 2
    assert message in said


def test_every_command_refuses_options_given_twice() -> None:
    def commands(group: Any) -> list[Any]:
        inner = getattr(group, "commands", None)
        return [group] if inner is None else [one for part in inner.values() for one in commands(part)]

    found = commands(typer.main.get_command(command.app))
    assert len(found) > 10
    assert all(isinstance(one, Verb) for one in found)


@pytest.mark.parametrize(
    ("kind", "file", "names", "keys"),
    [
        ("recognize", "sounds/train.tsv", "a\tb", ["data.input_column=a", "data.text_column=b"]),
        ("caption", "pictures/train.tsv", "a\tb", ["data.image_column=a", "data.caption_column=b"]),
        ("translate-luong", "numbers.tsv", "a\tb", ["data.source_column=a", "data.target_column=b"]),
        ("tag-crf", "spans.txt", "", ["data.word_column=1", "data.tag_column=2"]),
    ],
)
def test_other_tasks_take_the_keys_of_their_files(
    kind: str, file: str, names: str, keys: list[str], run_of: Any, data: Path
) -> None:
    path = data / file
    other = path.with_name(f"named-{path.name}")
    other.write_text((f"{names}\n" if names else "") + path.read_text())
    words = [word for key in keys for word in ("--set", key)]
    assert call("eval", run_of(kind), other, *words, "--json")[1] == call("eval", run_of(kind), path, "--json")[1]


def test_keys_of_files_exist() -> None:
    for task in TASKS.values():
        data = task.config_class.model_fields["data"].annotation
        assert set(task.file_keys) <= set(getattr(data, "model_fields")), task.name  # noqa: B009
