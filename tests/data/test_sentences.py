"""Files of tagged sentences: what is read, what comes back, and what each mistake says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from unrolled import UserError
from unrolled.data.demo.python_source import embedded_sentences, tagged_source
from unrolled.data.readers.tagged.columns import ColumnsFile
from unrolled.data.readers.tagged.conllu import ConlluFile
from unrolled.data.readers.tagged.read_sentences import read_sentences
from unrolled.data.readers.tagged.sentences import Columns

CONLLU = """\
# newdoc id = one
# text = Vámonos al mar!
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\tMood=Imp\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\tGloss=us|Typo=No
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No
6\t!\t!\tPUNCT\t_\t_\t1\tpunct\t_\t_

# text = x y
1\tx y\tx y\tX\t_\t_\t0\troot\t_\t_
1.1\t_\t_\tVERB\t_\t_\t_\t_\t0:root\tCopyOf=1


# a comment at the end
"""


def conllu(folder: Path, text: str = CONLLU, name: str = "a.conllu") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz", "a.txt"])
def test_conllu_is_read(tmp_path: Path, name: str) -> None:
    first, second = read_sentences(conllu(tmp_path, name=name))
    assert first.words == ("Vamos", "nos", "a", "el", "mar", "!")
    assert first.tags == ("VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT")
    assert first.place == f"{tmp_path / name}:4"
    assert second.words == ("x y",)
    deprel = read_sentences(tmp_path / name, Columns(conllu="deprel", features=("upos", "misc")))[0]
    assert deprel.tags == ("root", "obj", "case", "det", "obl", "punct")
    assert deprel.features == (first.tags, ("_", "Gloss=us|Typo=No", "_", "_", "SpaceAfter=No", "_"))


@pytest.mark.parametrize("text", [CONLLU, CONLLU.rstrip("\n"), "\n\n" + CONLLU])
def test_conllu_comes_back_untouched(text: str) -> None:
    file = ConlluFile.parse(text.split("\n"))
    same = file.with_tags([s.tags or () for s in file.sentences()], "upos")
    assert "\n".join(same) == text


def test_only_the_tagged_column_changes() -> None:
    file = ConlluFile.parse(CONLLU.split("\n"))
    changed = list(file.with_tags([["new"] * 6, ["new"]], "xpos"))
    words = 0
    for old, new in zip(CONLLU.split("\n"), changed, strict=True):
        if old[:1].isdecimal() and old.split("\t")[0].isdecimal():
            before, after = old.split("\t"), new.split("\t")
            assert after[4] == "new"
            assert before[:4] + before[5:] == after[:4] + after[5:]
            words += 1
        else:
            assert old == new
    assert words == 7


COLUMNS = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

-DOCSTART- -X- O O

Peter NNP I-NP I-PER
"""


@pytest.mark.parametrize("separator", [" ", "\t", "  "])
def test_columns_are_read(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text(COLUMNS.replace(" ", separator))
    first, second = read_sentences(path)
    assert (first.words, first.tags) == (("EU", "rejects"), ("I-ORG", "O"))
    assert (second.words, second.tags, second.place) == (("Peter",), ("I-PER",), f"{path}:8")
    other = read_sentences(path, Columns(words="1", tags="2", features=("3", "-1")))[0]
    assert (other.tags, other.features) == (("NNP", "VBZ"), (("I-NP", "I-VP"), ("I-ORG", "O")))


@pytest.mark.parametrize("separator", [" ", "\t", "  "])
def test_columns_come_back_with_only_the_tags_changed(separator: str) -> None:
    text = COLUMNS.replace(" ", separator)
    file = ColumnsFile.parse(text.split("\n"))
    same = file.with_tags([s.tags or () for s in file.sentences()], 3)
    assert "\n".join(same) == text
    changed = "\n".join(file.with_tags([["A", "B"], ["C"]], 3))
    expected = text.replace("I-ORG", "A").replace(f"I-VP{separator}O", f"I-VP{separator}B").replace("I-PER", "C")
    assert changed == expected
    added = list(file.with_tags([["A", "B"], ["C"]], 4))
    assert added[2] == text.split("\n")[2] + (separator if separator == "\t" else " ") + "A"


def test_empty_cells_between_tabs_are_cells() -> None:
    text = "EU\t\tO\tkeep\nran\tVB\tO\t\n\n\tVB\t\tkeep"
    file = ColumnsFile.parse(text.split("\n"))
    first, second = file.sentences(Columns(tags="3", features=("2", "4")))
    assert (first.words, first.tags, first.features) == (("EU", "ran"), ("O", "O"), (("", "VB"), ("keep", "")))
    assert (second.words, second.tags) == (("",), ("",))
    for column in range(4):
        rows = [line.split("\t") for line in text.split("\n") if line]
        tags = [[row[column] for row in rows[:2]], [rows[2][column]]]
        assert "\n".join(file.with_tags(tags, column)) == text
    changed = list(file.with_tags([["A", "B"], ["C"]], 2))
    assert changed == ["EU\t\tA\tkeep", "ran\tVB\tB\t", "", "\tVB\tC\tkeep"]
    added = list(file.with_tags([["A", "B"], ["C"]], 4))
    assert added == ["EU\t\tO\tkeep\tA", "ran\tVB\tO\t\tB", "", "\tVB\t\tkeep\tC"]


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"tokens": ["a", "b"], "tags": ["X", "Y"], "pos": ["P", "Q"]}, {"tokens": [], "tags": [], "pos": []}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        first, empty = read_sentences(tmp_path / name, Columns(features=("pos",)))
        assert (first.words, first.tags, first.features) == (("a", "b"), ("X", "Y"), (("P", "Q"),))
        assert len(empty) == 0
        assert read_sentences(tmp_path / name, Columns(tags="pos"))[0].tags == ("P", "Q")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.conllu",
            "1\tHi\t_\n",
            "{path}:1 has 3 tab-separated columns, expected 10: '1\\tHi\\t_' CoNLL-U has ten; a comment starts with #.",
        ),
        (
            "a.conllu",
            "# c\nx\tHi" + "\t_" * 8,
            "{path}:2 has the word number 'x'. Expected a number, as 3; a range, as 3-4, or an empty node, as 3.1.",
        ),
        (
            "a.txt",
            "Hi UH O\nthere RB\n",
            "{path}:2 has 2 blank-separated columns, expected 3 as in the lines before: 'there RB' "
            "Give every word the same columns, and put a blank line between sentences.",
        ),
        (
            "a.txt",
            "Hi\tUH\nthere RB\n",
            "{path}:2 has 1 tab-separated columns, expected 2 as in the lines before: 'there RB' "
            "Give every word the same columns, and put a blank line between sentences.",
        ),
        ("a.txt", "Hi\nthere\n", "{path} has one column: words without tags. Expected a word and a tag on a line."),
        ("a.txt", "-DOCSTART- O\n\n", "{path} holds no word. Give a file with at least one sentence."),
        ("a.conllu", "# nothing\n", "{path} holds no word. Give a file with at least one sentence."),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}\n', "{path}:1 has 1 tokens and 0 tags. Expected one for each."),
        (
            "a.jsonl",
            '{"tokens": "a b", "tags": []}\n',
            '{path}:1: tokens is not a list of texts. Expected for example {{"tokens": ["a", "b"]}}.',
        ),
        (
            "a.jsonl",
            '{"tokens": ["a"], "tags": [1.5]}\n',
            '{path}:1: tags is not a list of texts. Expected for example {{"tags": ["a", "b"]}}.',
        ),
        ("a.jsonl", '{"tokens": ["a"]}\n', "{path}:1 has no 'tags'. It has: tokens."),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_sentences(path)
    assert str(error.value) == message.format(path=path)


def test_mistakes_in_the_columns_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Hi UH O\n")
    with pytest.raises(UserError, match="has 3 columns, but column 4 was asked for"):
        read_sentences(path, Columns(tags="4"))
    with pytest.raises(UserError, match=r"a\.txt: column 1 cannot hold both words and tags\. Set data\.word"):
        read_sentences(path, Columns(tags="1"))
    with pytest.raises(UserError, match=r"has columns without names, but 'pos' was asked for\. Give a number"):
        read_sentences(path, Columns(features=("pos",)))
    with pytest.raises(UserError, match=r"Unknown column of CoNLL-U 'upso'\. Did you mean 'upos'"):
        read_sentences(conllu(tmp_path), Columns(conllu="upso"))


def test_source_code_is_tagged_by_what_the_tree_says() -> None:
    source = (
        "import os.path as p\n"
        "class Point(Base):\n"
        '    """Nothing."""\n'
        "    async def move(self, dx: int = 0, *, é=None):\n"
        "        self.x += dx  # along\n"
        "        return p.join(f'{self.x}a', sep='''a\nb''').lower(Point)\n"
    )
    found = [list(zip(s.words, s.tags or (), strict=True)) for s in tagged_source(source)]
    tags = [" ".join(f"{word}/{tag}" for word, tag in line if tag != "mark") for line in found]
    assert tags == [
        "import/keyword os/import path/import as/keyword p/import",
        "class/keyword Point/class Base/variable",
        "async/keyword def/keyword move/function self/parameter dx/parameter int/builtin 0/number */operator "
        "é/parameter None/keyword",
        "self/variable x/attribute +=/operator dx/variable",
        "return/keyword p/module join/method f'{self.x}a'/string sep/argument '''a/string lower/method Point/class",
    ]


def test_embedded_sentences_are_real_and_apart() -> None:
    train, valid = embedded_sentences()
    assert sum(map(len, train)) > 50_000
    assert len(valid) > 500
    assert not {s.words for s in train} & {s.words for s in valid}
    assert {tag for s in valid for tag in s.tags or ()} <= {tag for s in train for tag in s.tags or ()}
