"""Columns are found by their names, in any order; what is ambiguous or swapped is refused with the key to set."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from unrolled.cli.run import standard_input
from unrolled.data import read_pairs, read_table
from unrolled.data.readers.label_checks import label_warnings, look_swapped
from unrolled.data.readers.labelled import Labelled, read_labelled
from unrolled.data.readers.media.captions import read_captions
from unrolled.data.readers.media.transcripts import read_transcripts
from unrolled.data.readers.series.read_series import read_series
from unrolled.data.readers.tables.column_names import ROLES
from unrolled.data.readers.tables.read_table import read_text_column
from unrolled.data.readers.tagged.read_sentences import read_sentences
from unrolled.data.readers.text import read_lines, read_text
from unrolled.errors import Note, UserError
from unrolled.search.ctc.files import read_labels
from unrolled.search.lexicon import Lexicon
from unrolled.search.ngram.texts import read_lines as ngram_lines
from unrolled.text.large import scan_text

ROWS = [("pos", "a fine film"), ("neg", "a poor film"), ("pos", "so, so fine")]
CLASSIFY = ["label", "text"]


def write(path: Path, names: list[str], rows: Sequence[tuple[str, ...]]) -> Path:
    """A table of any kind, by its ending."""
    if path.suffix in (".tsv", ".txt"):
        path.write_text("".join("\t".join(row) + "\n" for row in [names, *rows]))
    elif path.suffix == ".csv":
        path.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in [names, *rows]))
    elif path.suffix == ".parquet":
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    else:
        records = [dict(zip(names, row, strict=True)) for row in rows]
        text = json.dumps(records) if path.suffix == ".json" else "".join(json.dumps(r) + "\n" for r in records)
        path.write_text(text)
    return path


@pytest.mark.parametrize("kind", [".tsv", ".txt", ".csv", ".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize(
    "names", [("text", "label"), ("sentence", "label"), ("Review", "Class"), ("content", "target")]
)
def test_labels_and_texts_by_name(kind: str, names: tuple[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / f"t{kind}", ["id", *names], [(str(i), text, label) for i, (label, text) in enumerate(ROWS)])
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        examples = read_labelled(path)
        texts = read_text_column(path, None, "text", 2, beside=["label"])
    assert [(e.labels[0], e.input) for e in examples] == ROWS
    assert [row.values[0] for row in texts] == [text for _, text in ROWS]
    said = [str(one.message) for one in notes]
    told = f"columns: label '{names[1]}', text '{names[0]}'."
    if kind in (".tsv", ".txt"):
        assert f"{path}:1 is a header; {told}" in said
    elif names != ("text", "label"):
        assert any(text.endswith(told) for text in said)
    else:
        assert not said


@pytest.mark.parametrize("names", [("target", "source"), ("tgt", "src"), ("Output", "Input")])
@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl"])
def test_pairs_by_name(kind: str, names: tuple[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / f"t{kind}", list(names), [("one", "eins"), ("two", "zwei")])
    with pytest.warns(Note) if kind == ".tsv" or names[0] != "target" else warnings.catch_warnings():
        pairs = read_pairs(path)
    assert [(p.source, p.target) for p in pairs] == [("eins", "one"), ("zwei", "two")]


def test_manifests_by_name(tmp_path: Path) -> None:
    """Common Voice's, NeMo's and DeepSpeech's; captions after their pictures or before."""
    (tmp_path / "cv.tsv").write_text("client_id\tsentence\tpath\nx\tone two\ta.mp3\n")
    (tmp_path / "nemo.jsonl").write_text('{"audio_filepath": "a.mp3", "duration": 1.5, "text": "one two"}\n')
    (tmp_path / "ds.csv").write_text("wav_filename,wav_filesize,transcript\na.mp3,7,one two\n")
    for name in ("cv.tsv", "nemo.jsonl", "ds.csv"):
        with pytest.warns(Note, match=r"columns: file '.*', transcript '.*'"):
            (one,) = read_transcripts(tmp_path / name)
        assert one.text == "one two"
        assert getattr(one.input, "path", None) == tmp_path / "a.mp3"
    (tmp_path / "c.tsv").write_text("caption\tfilename\na dog\t1.png\na cat\t2.png\n")
    with pytest.warns(Note, match=r"columns: image 'filename', captions 'caption'"):
        named = read_captions(tmp_path / "c.tsv")
    assert [(one.image, one.captions) for one in named] == [("1.png", ("a dog",)), ("2.png", ("a cat",))]


def test_two_candidates_are_an_error_with_the_key(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ["review", "sentence", "label"], [("a", "b", "pos")])
    with pytest.raises(UserError) as error:
        read_labelled(path)
    assert str(error.value) == (
        f"{path}:1 has 2 columns that may hold the text: 'review' or 'sentence'. "
        "Say which: --set data.text_column=review"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what was said, and our own name, need no note
        (one,) = read_labelled(path, text_column="sentence")
    assert one.input == "b"
    path = write(tmp_path / "t.jsonl", ["text", "class", "category"], [("a", "b", "c")])
    with pytest.raises(UserError, match=r"may hold the label: 'class' or 'category'\. Say which: --set data\.label_"):
        read_labelled(path)


def test_our_own_name_comes_first(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ["category", "label", "sentence", "text"], [("c", "l", "s", "t")])
    (one,) = read_labelled(path)
    assert (one.labels, one.input) == (("l",), "t")


def test_half_a_header_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", ["sentence", "mark"], [("a fine film", "7"), ("a poor film", "2")])
    with pytest.raises(UserError) as error:
        read_labelled(path)
    assert str(error.value) == (
        f"{path}:1 looks like a header (sentence, mark), but no name fits the label column. "
        "Say it: --set data.label_column=NAME. If it is an example: --set data.label_column=1 --set data.text_column=2"
    )
    with pytest.warns(Note, match=r"is a header; columns: label 'mark', text 'sentence'"):
        assert read_labelled(path, label_column="mark")[0].labels == ("7",)
    path = write(tmp_path / "u.tsv", ["words of it", "label"], ROWS)
    with pytest.raises(UserError, match=r"looks like a header .* no name fits the text column\."):
        list(read_text_column(path, None, "text", 2, beside=["label"]))


@pytest.mark.parametrize(
    "rows",
    [
        [("review", "A fine film, all in all."), ("news", "Rain."), ("review", "Poor.")],  # a class of that name
        [("review", "Sun"), ("news", "Rain"), ("review", "Poor")],
        [("pos", "text"), ("neg", "nothing else"), ("pos", "text")],
        [("review", "comment"), ("news", "rain"), ("review", "message")],  # words to be classified
        [("English", "Post"), ("Greek", "Antonopoulos"), ("English", "Smith")],  # names
    ],
)
def test_examples_are_no_header(rows: list[tuple[str, str]], tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", list(rows[0]), list(rows[1:]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [(e.labels[0], e.input) for e in read_labelled(path)] == rows


def test_a_header_that_comes_again_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", ["text", "label"], [("a", "x"), ("text", "label"), ("b", "y")])
    with pytest.warns(Note, match=r"t\.tsv:3 repeats the header: 1 such rows are left out"):
        assert [e.input for e in read_labelled(path)] == ["a", "b"]


def test_numbers_are_taken_at_their_word(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", ["text", "label"], [("a", "x")])
    with pytest.warns(Note, match=r"t\.tsv:1 is a header; columns: label 'text', text 'label'"):
        (one,) = read_labelled(path, label_column="1", text_column="2")
    assert (one.labels, one.input) == (("a",), "x")


def test_roles_have_distinct_names_of_ours() -> None:
    assert all(len(set(role.names)) == len(role.names) for role in ROLES.values())
    assert "target" in ROLES["label"].names
    assert "target" in ROLES["target"].names  # the task decides


def test_names_reach_into_objects(tmp_path: Path) -> None:
    record = {"doc": {"body": "a text", "meta": {"kind": "x"}}, "id": 3}
    (tmp_path / "t.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "t.json").write_text(json.dumps([record], indent=2))
    (tmp_path / "lines.json").write_text(json.dumps(record) + "\n" + json.dumps(record) + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([record]), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.json", "lines.json", "t.parquet"):
        rows = read_table(tmp_path / name, ["doc.meta.kind", "doc.body"], CLASSIFY, keep=["id"])
        assert rows[0].values == ("x", "a text")
        assert rows[0].kept == {"id": 3}
    with pytest.raises(UserError, match=r"has no 'doc\.text'\. It has: doc\.body, doc\.meta\.kind, id\."):
        read_table(tmp_path / "t.jsonl", ["doc.meta.kind", "doc.text"], CLASSIFY)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "t.json, record 1 is int. Expected a list of objects"),
        ('[{"text": 1}', "t.json is not JSON: Expecting ',' delimiter"),
        (
            '{"text": {"0": "a"}, "label": {"0": "b"}}',
            't.json is one object. Expected a list of objects, [{"text": …}, …]',
        ),
        ('{\n"data": []}', "t.json is one object. Expected a list of objects"),
        ("[" * 100_000, "t.json is not JSON: it is nested too deeply."),
        ("{\n", "t.json:1 is not JSON"),
    ],
)
def test_bad_json(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(UserError) as error:
        read_table(tmp_path / "t.json", [None, None], CLASSIFY)
    assert message in str(error.value)


def test_bars_between_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id|label|text\n1|pos|fine, really\n2|neg|poor\n")
    assert [(e.labels[0], e.input) for e in read_labelled(tmp_path / "t.csv")] == [
        ("pos", "fine, really"),
        ("neg", "poor"),
    ]


def test_quoted_tabs(tmp_path: Path) -> None:
    """As pandas and spreadsheets write them: all cells in quotes, or those that need it."""
    path = tmp_path / "t.tsv"
    path.write_text('"good"\t"a ""fine"" film"\n"bad"\t"a poor\none"\n')
    with pytest.warns(Note, match=r"t\.tsv: cells are quoted"):
        examples = read_labelled(path)
    assert [(e.labels[0], e.input, e.place) for e in examples] == [
        ("good", 'a "fine" film', f"{path}:1"),
        ("bad", "a poor\none", f"{path}:2"),
    ]
    path.write_text('good\t"a ""fine"" film"\nbad\ta poor one\nbad\t"well, no"\n')
    with pytest.warns(Note, match=r"t\.tsv: cells are quoted"):
        assert [e.input for e in read_labelled(path)] == ['a "fine" film', "a poor one", "well, no"]


@pytest.mark.parametrize(
    "text",
    [
        'good\t"Fine," he said.\nbad\tPoor.\n',  # quotes inside a text
        'good\t"Fine."\nbad\tPoor.\n',  # a text that is speech
        'good\tso "fine"\nbad\t"a" ""b""\n',
        'good\t"it opens\nbad\tand closes"\n',  # two rows as they stand
        'good\t5" long\nbad\t"Poor."\n',
    ],
)
def test_quotes_that_are_characters(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        examples = read_labelled(tmp_path / "t.tsv")
    assert [e.input for e in examples] == [line.split("\t")[1] for line in text.splitlines()]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-8-sig"])
def test_byte_order_marks(encoding: str, tmp_path: Path) -> None:
    text = "gut\tdas Äußere 👍\nschlecht\tnaïve\n"
    mark = "\ufeff" if encoding.endswith(("-be", "-le")) else ""
    (tmp_path / "t.tsv").write_bytes((mark + text).encode(encoding))
    assert read_text(tmp_path / "t.tsv") == text
    assert read_lines(tmp_path / "t.tsv") == text.splitlines()
    assert [e.labels[0] for e in read_labelled(tmp_path / "t.tsv")] == ["gut", "schlecht"]
    (tmp_path / "bad.txt").write_bytes("ab".encode("utf-16") + b"\0")
    with pytest.raises(UserError, match=r"bad\.txt is not whole UTF-16, as its first bytes say: truncated data at"):
        read_text(tmp_path / "bad.txt")


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be"])
def test_utf16_without_a_mark_is_named(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes("text\tlabel\nschön\tgut\n".encode(encoding))
    with pytest.raises(UserError) as error:
        read_labelled(path)
    assert str(error.value).endswith(
        "It seems to be UTF-16 without a byte order mark. Convert it: "
        f"iconv -f {encoding} -t utf-8 {path} > converted.tsv"
    )
    with pytest.raises(UserError, match=f"It seems to be UTF-16 .* -f {encoding}"):
        scan_text(path)
    path.write_bytes(b"one zero\0 among letters\n")
    with pytest.raises(UserError, match=r"zero byte at offset 8\. Give a UTF-8 text file\.$"):
        read_labelled(path)


def test_a_file_is_converted_to_its_own_ending(tmp_path: Path) -> None:
    for name, converted in (("t.csv", "converted.csv"), ("t.jsonl", "converted.jsonl"), ("t", "converted.txt")):
        (tmp_path / name).write_bytes("text,label\ncafé,good\n".encode("latin1"))
        with pytest.raises(UserError, match=rf"iconv -f latin1 -t utf-8 \S+ > {converted}$"):
            read_text(tmp_path / name)


def test_utf16_where_other_texts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input, texts of n-gram models, lexicons and labels; a large text says what to do."""
    (tmp_path / "t.txt").write_bytes("a b\nb ä\n".encode("utf-16"))
    assert b"".join(ngram_lines(tmp_path / "t.txt")) == "a b\nb ä\n".encode()
    assert read_labels(tmp_path / "t.txt") == ["a b", "b ä"]
    (tmp_path / "words").write_bytes("ab\nba\n".encode("utf-16"))
    assert Lexicon.read(tmp_path / "words", ["-", "a", "b"]).words == ["ab", "ba"]
    with (tmp_path / "t.txt").open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        assert list(standard_input()) == ["a b\n", "b ä\n"]
    with pytest.raises(
        UserError, match=r"t\.txt is UTF-16, and a text of this size is read as UTF-8\. Convert it: iconv"
    ):
        scan_text(tmp_path / "t.txt")


@pytest.mark.parametrize("names", [("de", "en"), ("German", "English"), ("pt-BR", "en_US")])
@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_languages_are_a_header_of_pairs(kind: str, names: tuple[str, str], tmp_path: Path) -> None:
    """From left to right; to turn round, name the columns."""
    rows = [("eine Katze", "a cat"), ("ein Hund", "a dog")]
    path = write(tmp_path / f"t{kind}", list(names), rows)
    told = f"columns: source {names[0]!r}, target {names[1]!r}."
    with pytest.warns(Note) as notes:
        assert [(pair.source, pair.target) for pair in read_pairs(path)] == rows
    assert str(notes[0].message).endswith(told)
    with pytest.warns(Note, match=f"source {names[0]!r}"):
        assert [row.values for row in read_text_column(path, None, "source", 1, beside=["target"])] == [
            (a,) for a, _ in rows
        ]
    with pytest.warns(Note, match=f"source {names[1]!r}, target {names[0]!r}"):
        assert [pair.source for pair in read_pairs(path, source_column=names[1])] == ["a cat", "a dog"]


def test_pairs_that_only_look_like_languages(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("it\tes\nyes\tja\nit\tes\n")  # the first row comes again: an example
    assert [pair.source for pair in read_pairs(path)] == ["it", "yes", "it"]
    path.write_text("de\tde\na\tb\n")
    assert len(read_pairs(path)) == 2
    path.write_text("yes\tja\nit\tes\n")
    assert len(read_pairs(path)) == 2


def test_a_score_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,score\nfine,4.5\n")
    with pytest.warns(Note, match="columns: number 'score', text 'text'"):
        assert read_labelled(path, numbers=True)[0].labels == ("4.5",)
    with pytest.raises(UserError, match=r"no column 'label'\. .*--set data\.label_column="):
        read_labelled(path)
    path.write_text("text,label,score\nfine,1,4.5\n")
    assert read_labelled(path, numbers=True)[0].labels == ("1",)


def test_fasttext(tmp_path: Path) -> None:
    path = tmp_path / "reviews.train"
    path.write_text("__label__good a fine film\n\n__label__bad\ta poor one\n")
    with pytest.warns(Note, match="fastText's format"):
        examples = read_labelled(path)
    assert [(e.labels, e.input, e.place) for e in examples] == [
        (("good",), "a fine film", f"{path}:1"),
        (("bad",), "a poor one", f"{path}:3"),
    ]
    path.write_text("__label__good __label__short fine\nno label here\n")
    with pytest.raises(UserError, match=r"train:1 has 2 labels: .* Give one, or use data\.multi_label=true\."):
        read_labelled(path)
    with pytest.warns(Note, match="fastText's format"):
        several = read_labelled(path, separator=",")
    assert [(e.labels, e.input) for e in several] == [(("good", "short"), "fine"), ((), "no label here")]
    path.write_text("__label__good fine\nno label here\n")
    with pytest.raises(UserError, match=r"train:2 has no __label__…: 'no label here'"):
        read_labelled(path)


def labelled(labels: list[str], texts: list[str]) -> list[Labelled]:
    return [Labelled(text, (label,), "") for label, text in zip(labels, texts, strict=True)]


def test_swapped_columns_are_noticed() -> None:
    sentences = [f"the film of {number} hours" for number in range(20)]
    moods = ["good", "bad"] * 10
    assert look_swapped(labelled(sentences, moods)) is not None
    assert look_swapped(labelled(moods, sentences)) is None
    assert look_swapped(labelled(sentences, sentences)) is None
    names, tongues = [f"Name{number}" for number in range(20)], ["Italian", "Greek"] * 10
    assert look_swapped(labelled(tongues, names)) is None
    assert look_swapped(labelled(sentences[:3], moods[:3])) is None  # three rows say nothing
    assert look_swapped(labelled(sentences[:3], moods[:3]), known=["good", "bad"]) is not None
    assert look_swapped(labelled(moods[:2], ["good", "bad"]), known=["good", "bad"]) is None


def test_swapped_columns_with_sentences_that_repeat() -> None:
    """A few sentences come again and again, so that the labels do not all differ; long names of labels are no error."""
    words = [(a, b) for a in ("film", "song", "play", "book") for b in ("bad", "dull", "fine", "lovely")]
    rows = [(f"the {a} was {b} and more", "pos" if b in ("fine", "lovely") else "neg") for a, b in words * 6]
    sentences, moods = [sentence for sentence, _ in rows], [mood for _, mood in rows]
    assert look_swapped(labelled(sentences, moods)) == (
        "16 labels in 96 rows, such as 'the film was bad and more', and 2 texts, such as 'neg'"
    )
    assert look_swapped(labelled(moods, sentences)) is None
    intents = [f"card payment was refused for reason {number}" for number in range(20)]
    for texts in (
        [f"why {number}" for number in range(60)],  # short questions, none twice
        [f"why {number}" for number in range(60)][:30] * 2,  # each of them twice
        [f"why {number % 12}" for number in range(60)],  # few, but not many labels for each
    ):
        assert look_swapped(labelled(intents * 3, texts)) is None
    areas = ["the north of the country", "the south of the country"]
    assert look_swapped(labelled(areas * 20, ["rain", "sun", "snow", "fog"] * 10)) is None


def test_doubtful_labels() -> None:
    from collections import Counter

    floats = Counter(f"{number / 7:.3f}" for number in range(50))
    assert [text.split(":")[0] for text in label_warnings(floats, 200)] == [
        "The labels are numbers (0.000, 0.143, 0.286, …)"
    ]
    ratings = label_warnings(
        Counter({f"{number / 2}": 20 for number in range(2, 11)}), 180
    )  # 1.0 to 5.0: classes may be meant
    assert ratings == [
        "The labels are numbers with decimals (1.0, 1.5, 2.0, …), read as 9 classes. "
        "To predict a number, use data.kind=number."
    ]
    for few in (Counter({"1.0": 30, "0.0": 20}), Counter({"1": 9, "1.5": 8, "4": 7, "4.5": 6})):
        (one,) = label_warnings(few, sum(few.values()))
        assert one.endswith(f"read as {len(few)} classes. To predict a number, use data.kind=number.")
    assert label_warnings(Counter({"1": 30, "0": 20, "-1": 3}), 53) == []
    assert label_warnings(Counter({"1.0": 30, "none": 20}), 50) == []
    assert label_warnings(Counter({str(number): 90 for number in range(20)}), 1800) == []  # numbers for names
    assert len(label_warnings(Counter(str(number) for number in range(100)), 100)) == 1  # ids
    alone = label_warnings(Counter(f"a text of {number}" for number in range(30)), 30)
    assert len(alone) == 1
    assert alone[0].startswith("30 of 30 training examples have a label that no other example has")


def test_json_lists_of_sentences_and_series(tmp_path: Path) -> None:
    """Readers of JSON lines also read a list of objects."""
    (tmp_path / "tags.json").write_text(json.dumps([{"tokens": ["a", "b"], "tags": ["X", "Y"]}]))
    (one,) = read_sentences(tmp_path / "tags.json")
    assert (one.words, one.tags) == (("a", "b"), ("X", "Y"))
    (tmp_path / "rows.json").write_text(json.dumps([{"a": 1, "b": 2.5}, {"a": 3, "b": None}]))
    (series,) = read_series(tmp_path / "rows.json", missing=True).series
    assert series.values[0].tolist() == [1, 2.5]
    assert series.place(1) == f"{tmp_path}/rows.json, record 2"
