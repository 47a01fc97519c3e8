"""A tagger's `run` tells text from columns, and files come back unchanged apart from the tags."""

from __future__ import annotations

import gzip
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.tag.conftest import run, small
from unrolled import UserError
from unrolled.data.readers.tagged.sentences import Columns
from unrolled.tasks import Request
from unrolled.tasks.tag.documents import Document, Documents, words_of

KEPT = "EU\t\tB-ORG\tkeep0\nrejects\tVBZ\tO\t\n\nPeter\tNNP\tB-PER\tkeep2\n"
CONLLU = "# text = Go !\n1\tGo\t_\tX\t_\t_\t_\t_\t_\t_\n2\t!\t_\tX\t_\t_\t_\t_\t_\t_\n\n"


def documents(features: tuple[str, ...] = (), **columns: Any) -> Documents:
    known = [{"NNP", "VBZ", "PRP"} for _ in features]
    return Documents(Columns(features=features, **columns), {"B-ORG", "B-PER", "O"}, known)


def written(document: Document, tag: str = "NEW") -> str:
    assert document.write is not None
    sentences = [one for one in document.sentences if not isinstance(one, str)]
    return "".join(document.write([[tag] * len(one) for one in sentences]))


def dressed(text: str, ends: str) -> str:
    """The text with a byte order mark, or other ends of lines."""
    return ("\ufeff" if "mark" in ends else "") + (text.replace("\n", "\r\n") if "crlf" in ends else text)


def of_text(asked: Documents, text: str) -> list[Document]:
    return list(asked.of(Request(lines=list(io.StringIO(text)))))


class TestColumns:
    def test_empty_cells_are_cells(self, tmp_path: Path) -> None:
        path = tmp_path / "a.conll"
        path.write_text(KEPT)
        changed = KEPT.replace("B-ORG", "NEW").replace("\tO\t", "\tNEW\t").replace("B-PER", "NEW")
        assert written(documents(tags="3").of_file(path)) == changed

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("EU\t\tB-ORG\nran\tVB\tO\n", "EU\t\tNEW\nran\tVB\tNEW\n"),
            ("EU\t\n\nrejects\tNNP\n", "EU\t\tNEW\n\nrejects\tNNP\tNEW\n"),  # another column: tags are new
            ("EU\t\nran\t\n", "EU\tNEW\nran\tNEW\n"),  # an empty one is for tags
            ("EU\nran\n", "EU NEW\nran NEW\n"),
        ],
    )
    def test_the_place_of_tags(self, text: str, expected: str) -> None:
        assert written(documents().of_columns(text, "a")) == expected

    def test_words_in_the_last_column_are_not_overwritten(self) -> None:
        assert written(documents(words="2").of_columns("1 EU\n2 ran\n", "a")) == "1 EU NEW\n2 ran NEW\n"

    def test_a_trained_model_keeps_the_other_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "a.conll"
        path.write_text(KEPT * 4)
        model = small(path, tmp_path / "run", data__tag_column=3, train__max_steps=1)
        lines = run(model, files=[str(path)]).split("\n")
        for old, new in zip((KEPT * 4).split("\n"), lines, strict=True):
            assert old.split("\t")[:2] + old.split("\t")[3:] == new.split("\t")[:2] + new.split("\t")[3:]


class TestAsItWas:
    @pytest.mark.parametrize("ends", ["lf", "crlf", "mark", "mark and crlf"])
    @pytest.mark.parametrize("name", ["a.conllu", "a.txt", "a.conllu.gz"])
    def test_conllu_in_files(self, tmp_path: Path, name: str, ends: str) -> None:
        path, raw = tmp_path / name, dressed(CONLLU, ends).encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        assert written(documents().of_file(path), "X") == dressed(CONLLU, ends)

    @pytest.mark.parametrize("ends", ["lf", "crlf", "mark", "mark and crlf"])
    @pytest.mark.parametrize("name", ["a.conll", "a.txt"])
    def test_columns_in_files(self, tmp_path: Path, name: str, ends: str) -> None:
        text = dressed("EU\tO\nran\tO\n\nPeter\tO", ends)
        (tmp_path / name).write_bytes(text.encode())
        assert written(documents().of_file(tmp_path / name), "O") == text

    @pytest.mark.parametrize("ends", ["lf", "crlf", "mark", "mark and crlf"])
    def test_lines_with_their_ends(self, ends: str) -> None:
        (document,) = of_text(documents(), dressed(CONLLU, ends))
        assert written(document, "X") == dressed(CONLLU, ends)

    def test_ends_that_differ(self) -> None:
        text = "EU O\r\nran O\n\r\nPeter O"
        assert written(documents().of_columns(text, "a"), "O") == text

    def test_a_pipe_is_read_once(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe.conllu"
        os.mkfifo(path)
        writer = threading.Thread(target=path.write_text, args=(CONLLU,))
        writer.start()
        assert written(documents().of_file(path), "X") == CONLLU
        writer.join()

    def test_a_mark_before_text_is_no_letter(self) -> None:
        (document,) = of_text(documents(), "\ufeffHe ran\r\nhome\r\n")
        assert list(document.sentences) == ["He ran", "home"]

    def test_several_files_begin_on_new_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "train.txt"
        path.write_text("".join(f"a{i} O\nb X\n\n" for i in range(4)))
        model = small(path, tmp_path / "run", train__max_steps=1)
        for name in "ab":
            (tmp_path / f"{name}.conll").write_text(f"\ufeff{name} O\n\n{name} O")
        found = run(model, files=[str(tmp_path / f"{name}.conll") for name in "ab"])
        assert found.startswith("\ufeffa ")
        assert found.count("\ufeff") == 1
        assert [line[:2] for line in found.split("\n")] == ["\ufeffa", "", "a ", "b ", "", "b "]


class TestFeatures:
    @pytest.mark.parametrize("text", ["He ran home\n", "He ran home .\nEU rejects it\n", "He\n"])
    @pytest.mark.parametrize("name", ["standard input", "a.txt"])
    def test_text_is_refused(self, text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("a.txt").write_text(text)
        request = Request(files=["a.txt"]) if name == "a.txt" else Request(lines=[text])
        with pytest.raises(UserError) as error:
            list(documents(("2",)).of(request))
        assert str(error.value) == (
            f"{name} looks like text, and this model reads more than words: the columns 2. Give them too, as in the "
            "files that it was trained on; what has tabs between columns, or ends in .conll, is never taken for text."
        )

    @pytest.mark.parametrize("text", ["He PRP\n", "He PRP O\nran ODD O\nhome NNP O\n", "He\tODD\n", "He\tODD\tO\n"])
    def test_columns_are_read(self, text: str) -> None:
        (document,) = of_text(documents(("2",)), text)
        (sentence,) = document.sentences
        assert not isinstance(sentence, str)
        assert sentence.words[0] == "He"

    def test_a_broken_line_of_columns_is_said(self) -> None:
        with pytest.raises(UserError, match="standard input:2 has 1 blank-separated columns, expected 2"):
            of_text(documents(("2",)), "He PRP\nran\nhome NNP\n")

    def test_names_are_of_no_file_of_columns(self) -> None:
        with pytest.raises(UserError, match="looks like text, and this model reads more than words: the columns upos"):
            of_text(documents(("upos",)), "He\tPRP\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("“Don't!” 3.5 猫だ", ["“", "Don't", "!", "”", "3.5", "猫", "だ"]),
        ("a\u0301b ok", ["a\u0301b", "ok"]),
        ("か\u3099だ", ["か\u3099", "だ"]),
        ("ที่", ["ที่"]),
        ("👩\u200d💻👍🏽!", ["👩\u200d💻", "👍🏽", "!"]),
        ("❤\ufe0f\u200d🔥ok ❤\ufe0fok", ["❤\ufe0f\u200d🔥", "ok", "❤\ufe0f", "ok"]),
        ("😀😀", ["😀", "😀"]),
        ("\u0301a", ["\u0301a"]),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    assert words_of(text) == words
