"""Data in memory: what objects become, and what is said about those that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from unrolled.data.memory.held import given, held
from unrolled.data.memory.objects import source_of
from unrolled.data.memory.sources import HeldArrays, HeldRows, HeldTexts
from unrolled.data.readers.labelled import read_labelled
from unrolled.data.readers.pairs import read_pairs
from unrolled.data.readers.text import read_lines, read_text
from unrolled.errors import UserError

COLUMNS = {"text": ["a fine film", "poor", "so, so"], "label": ["good", "bad", "bad"]}


class Dataset:
    """A Hugging Face Dataset, as far as it is read here."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, columns: dict[str, list[Any]], features: dict[str, Any] | None = None) -> None:
        self.columns, self.features = columns, features or dict.fromkeys(columns)

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def with_format(self, kind: None) -> Dataset:
        return self

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


def examples(data: Any) -> list[tuple[Any, tuple[str, ...]]]:
    with given(train=data) as names:
        return [(one.input, one.labels) for one in read_labelled(names["train"])]


FORMS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "synonyms": lambda: pd.DataFrame({"Review": COLUMNS["text"], "sentiment": COLUMNS["label"], "id": [1, 2, 3]}),
    "categories": lambda: pd.DataFrame(COLUMNS).astype({"label": "category", "text": "string"}),
    "without names": lambda: pd.DataFrame(list(zip(*COLUMNS.values(), strict=True))),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars, lazy": lambda: pl.LazyFrame(COLUMNS),
    "pyarrow": lambda: pa.table(COLUMNS),
    "datasets": lambda: Dataset(
        {"text": COLUMNS["text"], "label": [1, 0, 0]}, {"text": None, "label": ClassLabel(["bad", "good"])}
    ),
    "columns": lambda: COLUMNS,
    "dictionaries": lambda: [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)],
    "pairs": lambda: list(zip(*COLUMNS.values(), strict=True)),
    "lists": lambda: [list(row) for row in zip(*COLUMNS.values(), strict=True)],
    "an iterator": lambda: iter(list(zip(*COLUMNS.values(), strict=True))),
    "inputs, answers": lambda: (COLUMNS["text"], COLUMNS["label"]),
    "arrays": lambda: (np.array(COLUMNS["text"]), pd.Series(COLUMNS["label"])),
    "a data set of torch": lambda: type(
        "Reviews",
        (torch.utils.data.Dataset,),
        {"__len__": lambda self: 3, "__getitem__": lambda self, i: (COLUMNS["text"][i], COLUMNS["label"][i])},
    )(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gives_the_examples_of_the_file(form: str, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    pd.DataFrame(COLUMNS).to_csv(file, index=False)
    expected = [(one.input, one.labels) for one in read_labelled(file)]
    assert examples(FORMS[form]()) == expected


def test_equal_contents_have_one_digest_and_others_another() -> None:
    found = {form: source_of(make(), "train").digest for form, make in FORMS.items() if form not in ("synonyms",)}
    tables = {found[form] for form in ("pandas", "categories", "polars", "pyarrow", "columns", "dictionaries")}
    assert len(tables) == 1
    changed = pd.DataFrame(COLUMNS)
    changed.loc[2, "text"] = "so; so"
    assert source_of(changed, "train").digest not in tables
    assert source_of(pd.DataFrame(COLUMNS)[::-1], "train").digest not in tables


def test_labels_keep_their_texts_whatever_their_type() -> None:
    for labels, texts in (
        ([1, 0, 1], ["1", "0", "1"]),
        ([True, False, True], ["True", "False", "True"]),
        (np.array([3, 4, 3]), ["3", "4", "3"]),
        ([1.5, 2.0, 1.5], ["1.5", "2.0", "1.5"]),
    ):
        assert [one[1] for one in examples((COLUMNS["text"], labels))] == [(text,) for text in texts]


def test_frames_are_arrays_and_tensors() -> None:
    frames: list[Any] = [np.ones((4, 2), np.float32), np.zeros((3, 2))]
    for data in (
        list(zip(frames, ["a", "b"], strict=True)),
        [(torch.from_numpy(one), label) for one, label in zip(frames, ["a", "b"], strict=True)],
        {"frames": np.concatenate(frames), "labels": ["a", "b"], "lengths": [4, 3]},
        pd.DataFrame({"frames": frames, "label": ["a", "b"]}),
    ):
        found = examples(data)
        assert [one[1] for one in found] == [("a",), ("b",)]
        assert all(np.array_equal(one[0], frame) for one, frame in zip(found, frames, strict=True))
        assert all(one[0].dtype == np.float32 for one in found)


def test_texts_are_lines_of_a_file() -> None:
    lines = ["one", "two\n", "", "three\r\n"]
    for data in (lines, tuple_of := iter(lines), (line for line in lines), pd.Series(lines), pl.Series(lines)):
        with given(train=data) as names:
            assert read_text(names["train"]) == "one\ntwo\n\nthree\n"
            assert read_lines(names["train"]) == ["one", "two", "", "three"]
    assert next(tuple_of, None) is None


def test_texts_beyond_the_bound_go_to_a_file_that_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrolled.data.memory.spool.IN_MEMORY", 100)
    monkeypatch.setattr("unrolled.data.memory.spool.BUFFER", 50)
    lines = [f"line {i}" for i in range(1000)]
    whole = source_of(lines, "train")
    with given(train=(line for line in lines)) as names:
        source = held(names["train"])
        assert isinstance(source, HeldTexts)
        assert source.path is not None
        assert source.path.read_text() == "".join(f"{line}\n" for line in lines)
        assert isinstance(whole, HeldTexts)
        assert source.digest == whole.digest
        assert read_lines(names["train"]) == lines
    assert not source.path.exists()
    whole.close()

    def broken() -> Iterator[str]:
        yield from lines
        raise KeyError("no more")

    import tempfile

    before = set(Path(tempfile.gettempdir()).glob("unrolled-*.txt"))
    with pytest.raises(KeyError):
        source_of(broken(), "train")
    assert set(Path(tempfile.gettempdir()).glob("unrolled-*.txt")) == before


def test_numbers_are_series() -> None:
    for data in ([1.0, 2.0, 3.0], np.array([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0])):
        source = source_of(data, "train")
        assert isinstance(source, HeldArrays)
        assert [one.tolist() for one in source.sequences] == [[1.0, 2.0, 3.0]]
    table = source_of([[1, 2], [3, 4]], "train")
    assert isinstance(table, HeldArrays)
    assert table.sequences[0].shape == (2, 2)


def test_an_index_of_times_or_with_a_name_is_a_column() -> None:
    times = pd.date_range("2024-01-01", periods=3, freq="h")
    for frame, names in (
        (pd.DataFrame({"y": [1.0, 2, 3]}, index=times), ("time", "y")),
        (pd.DataFrame({"y": [1.0, 2, 3]}, index=times.rename("day")), ("day", "y")),
        (pd.DataFrame({"y": [1.0, 2, 3]}, index=[5, 6, 7]), ("y",)),
        (pd.DataFrame({"y": [1.0, 2, 3]}, index=pd.PeriodIndex(times, freq="D")), ("time", "y")),
    ):
        source = source_of(frame, "train")
        assert isinstance(source, HeldRows)
        assert source.names == names
        assert len(names) == 1 or source.get(0)[0] == pd.Timestamp("2024-01-01")


def test_nested_values_and_further_targets() -> None:
    data = [{"translation": {"de": "Haus", "en": "house"}}, {"translation": {"de": "Hund", "en": "dog"}}]
    with given(train=data) as names:
        pairs = read_pairs(names["train"], source_column="translation.de", target_column="translation.en")
    assert [(one.source, one.target) for one in pairs] == [("Haus", "house"), ("Hund", "dog")]
    with given(train=pd.DataFrame({"source": ["a"], "target": ["b"], "target2": ["c"]})) as names:
        assert read_pairs(names["train"])[0].targets == ("b", "c")


def test_a_name_means_something_only_inside_its_block() -> None:
    with given(train=COLUMNS) as names:
        name = names["train"]
        assert name.startswith("memory:dictionary of 2 columns, 3 rows#")
    with pytest.raises(UserError, match=r"^The data was given from Python \(dictionary of 2 columns, 3 rows\)"):
        read_text(name)


def _pairs() -> list[tuple[str, str]]:
    return [("a", "b")]


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no column": (
        lambda: pd.DataFrame({"text": ["a"], "grade": ["b"]}),
        "DataFrame with 1 row has no column 'label'. It has: text, grade. Say which it is: --set data.label_column=…",
    ),
    "a missing text": (
        lambda: pd.DataFrame({"text": ["a", None, "c"], "label": [1, 2, 3]}),
        "DataFrame with 3 rows, row 1 has no text. Give one, or leave the row out.",
    ),
    "a label that is NaN": (
        lambda: pd.DataFrame({"text": ["a", "b"], "label": ["x", float("nan")]}),
        "DataFrame with 2 rows, row 1 has no label. Give one, or leave the row out.",
    ),
    "mixed kinds": (
        lambda: [("a", "b"), "c"],
        "train, row 1 is a str, and the first is a pair. Give elements of one kind.",
    ),
    "mixed types": (
        lambda: [("a", "x"), (7, "y")],
        "list of 2 pairs, row 1: the text is int. Expected a string.",
    ),
    "a triple": (
        lambda: [("a", "x"), ("b", "y", "z")],
        "list of 2 pairs, row 1 has 3 values. Expected 2 in each: (input, answer).",
    ),
    "texts alone": (
        lambda: ["a", "b"],
        "list of 2 texts has no rows with label and text. Give a DataFrame, a list of dictionaries or of pairs.",
    ),
    "frames alone": (
        lambda: np.zeros((3, 4, 2)),
        "ndarray of 3×4×2 numbers has frames and no labels. Give a list of pairs (frames, labels), or a dictionary "
        "{'frames': …, 'labels': …}.",
    ),
    "a wrong shape": (
        lambda: [(np.zeros(3), "a")],
        "list of 1 pair, row 0 has shape (3,). Expected (steps, features), (steps, height, width) or with colours.",
    ),
    "not finite": (
        lambda: [(np.array([[1.0], [np.inf]]), "a")],
        "list of 1 pair, row 0 holds inf at step 1, position [0]. Replace it.",
    ),
    "a missing key": (
        lambda: [{"text": "a", "label": "x"}, {"text": "b"}],
        "list of 2 dictionaries, row 1 has no 'label'. It has: text.",
    ),
    "an empty list": (
        list,
        "train is an empty list. Expected a path, a DataFrame, a list of pairs or dictionaries, texts, or arrays "
        "(docs/data.md).",
    ),
    "an empty DataFrame": (
        lambda: pd.DataFrame({"text": [], "label": []}),
        "train holds no example: DataFrame with 0 rows. Give data with at least one row.",
    ),
    "an iterator at its end": (
        lambda: iter([]),
        "train is a list_iterator without elements: it is at its end. It may have been read before. Make a new one, or "
        "a list: list(…).",
    ),
    "a set": (lambda: {("a", "b")}, "train is a set, which has no order. Make a list of it: sorted(…)."),
    "a function": (lambda: _pairs, "train is a function. Call it."),
    "a number": (
        lambda: 3,
        "train is an int. Expected a path, a DataFrame, a list of pairs or dictionaries, texts, or arrays "
        "(docs/data.md).",
    ),
    "unequal halves": (lambda: (["a", "b"], ["x"]), "train has 2 inputs and 1 answers. Expected one for each."),
    "a tuple of paths": (
        lambda: ("a.txt", "b.txt"),
        "train is a tuple of 2. A tuple is (inputs, answers), two lists or arrays of one length. Give examples as a "
        "list: [(input, answer), …].",
    ),
    "unequal columns": (
        lambda: {"text": ["a"], "label": ["x", "y"]},
        "train has columns of different lengths, {'text': 1, 'label': 2}. Expected a value in each for every row.",
    ),
    "several parts": (
        lambda: {"train": pd.DataFrame(COLUMNS), "test": pd.DataFrame(COLUMNS)},
        "train is a dict of DataFrames: train, test. Give one of them: train=…['train']",
    ),
    "two columns of one name": (
        lambda: pd.DataFrame([["a", "b"]], columns=["text", "text"]),
        "The DataFrame has two columns 'text'. Give each a different name.",
    ),
    "a tensor without values": (
        lambda: [(torch.zeros(3, 2, device="meta"), "a")],
        "list of 1 pair, row 0 is a tensor that NumPy cannot read: Cannot copy out of meta tensor; no data!. Give a "
        "dense tensor of numbers: .float().cpu()",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_said_with_its_row(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(UserError) as caught:
        examples(make())
    assert str(caught.value) == message


def test_one_iterator_cannot_be_two_sets() -> None:
    items = iter([("a", "b")])
    with pytest.raises(UserError) as caught, given(train=items, valid=items):
        pass
    assert str(caught.value) == (
        "train and valid are the same list_iterator, which can be read only once. Make a list of it: list(…), or give "
        "each its own."
    )
