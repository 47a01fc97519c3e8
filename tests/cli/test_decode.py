"""`unrolled decode`, as a user runs it."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from unrolled.cli.app import app
from unrolled.errors import Note, UserError

ARPA = r"""
\data\
ngram 1=5
ngram 2=1
\1-grams:
-99 <s> -0.3
-1.0 </s>
-2.0 <unk>
-1.0 ab -0.2
-0.5 b
\2-grams:
-0.1 ab b
\end\
"""


def one_hot(path: list[int], labels: int = 4, height: float = 5.0) -> Any:
    scores = np.eye(labels)[path] * height
    return (scores - np.log(np.exp(scores).sum(1, keepdims=True))).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.txt").write_text("-\na\nb\n|\n")
    (tmp_path / "words.txt").write_text("ab\nb\nbb b b\n")
    (tmp_path / "lm.arpa").write_text(ARPA)
    np.savez("posteriors.npz", first=one_hot([1, 2, 3, 2]), second=one_hot([2, 0, 2]))
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["decode", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


COMMON = ("posteriors.npz", "--labels", "labels.txt")


def test_reads_words(folder: Path) -> None:
    words = ("--lexicon", "words.txt", "--separator", "|")
    assert run(*COMMON, *words) == "first\tab b\nsecond\tbb\n"
    assert run(*COMMON, *words, "--lm", "lm.arpa", "--lm-weight", "0.5", "--beam", "10") == "first\tab b\nsecond\tbb\n"
    assert run(*COMMON) == "first\tab|b\nsecond\tbb\n"
    assert run(*COMMON, *words, "--share-ends", "--json") == run(*COMMON, *words, "--json")
    lines = run(*COMMON, *words, "--n-best", "2").splitlines()
    assert [line.split("\t")[::2] for line in lines[:1]] == [["first", "ab b"]]
    assert len(lines) == 4


def test_finds_the_separator(folder: Path) -> None:
    words = ("--lexicon", "words.txt")
    assert run(*COMMON, *words, "--json") == run(*COMMON, *words, "--separator", "|", "--json")
    assert run(*COMMON, *words, "--separator", "none", "--json") != run(*COMMON, *words, "--json")
    (folder / "words.txt").write_text("ab a b |\nb b\n")  # the words have it themselves
    assert run(*COMMON, *words, "--json") == run(*COMMON, *words, "--separator", "none", "--json")


def test_json_has_scores_and_times(folder: Path) -> None:
    lines = run(*COMMON, "--lexicon", "words.txt", "--separator", "|", "--json", "--n-best", "2").splitlines()
    first = json.loads(lines[0])
    assert (first["input"], first["unit"]) == ("first", "frames")
    best = first["n_best"][0]
    assert {key: first[key] for key in best} == best
    assert best["text"] == "ab b"
    assert best["complete"] is True
    word = best["words"][1]
    sure = float(np.exp(one_hot([2])[0, 2]))
    rest = (1 - sure) / 3  # b may stand in its frame, with anything but a before it, or in the one before
    assert word.pop("confidence") == pytest.approx((1 - rest) * sure + rest * 2 * rest, abs=1e-4)
    assert word == {"text": "b", "start": 3, "end": 4, "known": True}
    assert best["labels"][0] == {"label": "a", "start": 0, "end": 1}
    assert best["score"] > first["n_best"][1]["score"]
    assert set(first["n_best"][1]) == set(best)


def test_times_in_seconds(folder: Path) -> None:
    lines = run(*COMMON, "--json", "--frame-seconds", "0.02").splitlines()
    record = json.loads(lines[1])  # b, blank, b
    assert record["unit"] == "seconds"
    assert [(label["start"], label["end"]) for label in record["labels"]] == [(0.0, 0.02), (0.04, 0.06)]
    assert (record["words"][0]["start"], record["words"][0]["known"]) == (0.0, None)


def test_posteriors_without_a_blank(folder: Path) -> None:
    """A classifier of frames: every frame belongs to a label, and the b of two words may touch."""
    (folder / "frames.txt").write_text("a\nb\n")
    np.savez("frames.npz", one=one_hot([0, 0, 1, 1, 1], 2), two=one_hot([1, 0, 0, 1], 2))
    given = ("frames.npz", "--labels", "frames.txt", "--blank", "none")
    (folder / "words.txt").write_text("ab\nba\nbab\n")
    assert run(*given, "--lexicon", "words.txt") == "one\tab\ntwo\tbab\n"
    (folder / "words.txt").write_text("ab\nb\n")
    assert run(*given, "--lexicon", "words.txt", "--word-bonus", "0.1") == "one\tab b b\ntwo\tb ab\n"
    assert run(*given) == "one\tab\ntwo\tbab\n"


def blank_last(folder: Path, *names: str) -> list[str]:
    """Posteriors of "ab", blanks between, with the blank in the last column, and labels of these names."""
    np.savez("last.npz", one=one_hot([2, 0, 2, 1, 2], 3))
    (folder / "last.txt").write_text("".join(f"{name}\n" for name in names))
    return ["last.npz", "--labels", "last.txt"]


@pytest.mark.parametrize("name", ["<blank>", "_", "[PAD]", "<pad>", "<ctc>", "ε"])
def test_the_blank_is_found_by_its_name(folder: Path, name: str) -> None:
    with pytest.warns(Note, match=re.escape(f"The blank is the label {name!r}, column 2.")):
        assert run(*blank_last(folder, "a", "b", name)) == "one\tab\n"


def test_the_blank_is_said_by_name_or_column(folder: Path) -> None:
    given = blank_last(folder, "a", "b", "x")
    for blank in ("x", "2"):
        assert run(*given, "--blank", blank) == "one\tab\n"
    with pytest.raises(UserError) as error:
        run(*given, "--blank", "3")
    assert str(error.value) == (
        "The blank '3' is none of the 3 labels. Give a label or its column, 0 to 2. Labels: a b x"
    )
    digits = blank_last(folder, "1", "0", "2")
    assert run(*digits, "--blank", "0") == "one\t2122\n"  # the label of that name, not the column


def test_a_blank_that_nothing_tells_is_asked_for(folder: Path) -> None:
    with pytest.raises(UserError) as error:
        run(*blank_last(folder, "a", "b", "x"))
    assert str(error.value) == (
        "No label is named as a blank, and the first one, 'a', does not look like one: 'x', column 2, is the likeliest "
        "label of most frames. Say which label is the blank, by its name or its column from 0 on: blank (--blank)."
    )
    with pytest.raises(UserError, match=r"Several labels may be the blank: '<blank>', '<ctc>'."):
        run(*blank_last(folder, "a", "<blank>", "<ctc>"))
    np.savez("first.npz", one=one_hot([0, 1, 0, 2, 0], 3))  # as basecallers have it: N first
    (folder / "first.txt").write_text("N\nA\nC\n")
    with pytest.warns(Note, match=r"No label is named as a blank: the first one, 'N', is taken."):
        assert run("first.npz", "--labels", "first.txt") == "one\tAC\n"
    (folder / "first.txt").write_text("")
    with pytest.raises(UserError, match=r"There are no labels\. Give one for each column, the blank among them\."):
        run("first.npz", "--labels", "first.txt")


@pytest.mark.parametrize(
    ("texts", "words", "told"),
    [
        ("first\tAH B B\nsecond\tB B", False, "first\tAH B B\nsecond\tB B\n2 references: phone errors 0.00%\n"),
        ("first\tAH B B\nsecond\tB B", True, "first\tab be\nsecond\tbe be\n2 references: phone errors 0.00%\n"),
        (
            "first\tab be\nsecond\tbe",
            True,
            "first\tab be\nsecond\tbe be\n2 references: word errors 33.33%, character errors 42.86%\n",
        ),
    ],
)
def test_references_are_words_or_phones(folder: Path, texts: str, words: bool, told: str) -> None:
    (folder / "labels.txt").write_text("-\nAH\nB\n|\n")
    (folder / "words.txt").write_text("ab AH B\nbe B\n")
    (folder / "texts.tsv").write_text(texts + "\n")
    np.savez("posteriors.npz", first=one_hot([1, 2, 0, 2]), second=one_hot([2, 0, 2]))
    given = ("--lexicon", "words.txt", "--separator", "none") if words else ()
    result = CliRunner().invoke(app, ["decode", *COMMON, *given, "--references", "texts.tsv"], catch_exceptions=False)
    assert result.stdout + result.stderr == told
    if not words:
        with pytest.raises(UserError, match=r"--reference-kind words needs the words\. Give them: --lexicon FILE"):
            run(*COMMON, "--references", "texts.tsv", "--reference-kind", "words")


def test_reference_kinds_are_checked(folder: Path) -> None:
    (folder / "texts.tsv").write_text("first\tab b\nsecond\tbb\n")
    wrong = {
        ("--references", "texts.tsv", "--reference-kind", "labels"): (
            "--reference-kind tells words from labels, and these labels are letters. Leave it out."
        ),
        ("--reference-kind", "labels"): "--reference-kind is about the true texts. Give them: --references FILE.",
        ("--references", "texts.tsv", "--reference-kind", "word"): (
            "Unknown reference_kind 'word'. Did you mean 'words'? Choices: labels, words."
        ),
    }
    for given, message in wrong.items():
        with pytest.raises(UserError) as error:
            run(*COMMON, *given)
        assert str(error.value) == message


def test_weights_are_tuned_on_references(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two words that sound alike: the model prefers the wrong one until it counts for little enough."""
    sound = one_hot([1, 3, 2], height=3.0)
    np.savez("posteriors.npz", first=sound, second=sound)
    (folder / "words.txt").write_text("ab a b\nb\na\n")
    (folder / "texts.tsv").write_text("second\ta b\nfirst\ta b\n")
    given = (*COMMON, "--lexicon", "words.txt", "--lm", "lm.arpa", "--separator", "|", "--references", "texts.tsv")
    result = CliRunner().invoke(app, ["decode", *given, "--lm-weight", "3"], catch_exceptions=False)
    assert "second\ta b" not in result.stdout
    assert "2 references: word errors" in result.stderr
    result = CliRunner().invoke(app, ["decode", *given, "--tune"], catch_exceptions=False)
    assert "second\ta b" in result.stdout
    assert re.search(r"Best of \d+ settings: --lm-weight [0-9.]+ --word-bonus [-0-9.]+\n", result.stderr)
    assert "2 references: word errors 0.00%, character errors 0.00%" in result.stderr
    with pytest.raises(UserError, match=r"--tune needs the true texts."):
        run(*COMMON, "--lexicon", "words.txt", "--tune")
    (folder / "texts.tsv").write_text("a b\n")
    with pytest.raises(UserError, match=r"texts.tsv has 1 texts, and there are 2 utterances."):
        run(*given)


def test_a_tie_of_weights_is_said(folder: Path) -> None:
    np.savez("posteriors.npz", only=one_hot([1, 2, 3, 2], height=90.0))
    (folder / "texts.tsv").write_text("only\tab b\n")
    given = (*COMMON, "--lexicon", "words.txt", "--lm", "lm.arpa", "--separator", "|", "--references", "texts.tsv")
    result = CliRunner().invoke(app, ["decode", *given, "--tune"], catch_exceptions=False)
    assert re.search(
        r"Best of (\d+) settings: --lm-weight 1 --word-bonus 0\n"
        r"All \1 make the same errors: of these it is the nearest to --lm-weight 1 --word-bonus 0\. ",
        result.stderr,
    )


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((9, 3), np.float32), r"posteriors has 3 columns, but there are 4 labels\. Name one label for each"),
        (
            np.ascontiguousarray(one_hot([1, 2, 3, 2, 1]).T),
            r"posteriors has shape \(4, 5\), and there are 4 labels: it looks transposed\. .*\(frames, labels\)",
        ),
        (np.ones((9, 4), np.float32), r"they look like logits\. .*kind='logits' \(--kind logits\)"),
    ],
)
def test_the_shape_is_checked_before_the_numbers(folder: Path, array: Any, message: str) -> None:
    np.savez("posteriors.npz", only=array)
    with pytest.raises(UserError, match=message):
        run(*COMMON)


def test_padded_arrays_and_other_kinds(folder: Path) -> None:
    padded = np.full((2, 6, 4), np.nan, np.float32)
    padded[0, :4], padded[1, :3] = one_hot([1, 2, 3, 2]), one_hot([2, 0, 2])
    np.savez("posteriors.npz", padded=padded, lengths=np.array([4, 3]))
    assert run(*COMMON, "--lexicon", "words.txt", "--separator", "|") == "0\tab b\n1\tbb\n"
    np.savez("posteriors.npz", a=np.exp(one_hot([1, 2])))
    assert run(*COMMON, "--kind", "probs") == "a\tab\n"
    np.savez("posteriors.npz", a=one_hot([1, 2]) + 3)
    assert run(*COMMON, "--kind", "logits", "--blank", "|", "--merge", "sum") == "a\tab\n"


def test_an_npy_file_is_one_utterance(folder: Path) -> None:
    np.save("lengths.npy", one_hot([1, 2, 3, 2]))
    assert run("lengths.npy", *COMMON[1:]) == "lengths\tab|b\n"


def test_byte_order_marks_are_no_part_of_labels_and_words(folder: Path) -> None:
    words = ("--lexicon", "words.txt", "--lm", "lm.arpa", "--blank", "-", "--json")
    before = run(*COMMON, *words)
    for name in ("labels.txt", "words.txt"):
        (folder / name).write_bytes(codecs.BOM_UTF8 + (folder / name).read_bytes())
    (folder / "lm.arpa").write_bytes(codecs.BOM_UTF8 + ARPA.lstrip().encode())
    assert run(*COMMON, *words) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--word-bonus", "0"], "word_bonus is for words of a lexicon, and there is none. Give one (--lexicon)."),
        (["--unknown-penalty", "-1"], "unknown_penalty is for words of a lexicon, and there is none. "),
        (["--per-node", "5"], "per_node is for words of a lexicon, and there is none. "),
        (["--skip-unspellable"], "skip_unspellable is for words of a lexicon, and there is none. "),
        (["--share-ends"], "share_ends is for words of a lexicon, and there is none. "),
        (["--lexicon", "words.txt", "--lm-weight", "1"], "lm_weight is for a language model, and there is none. "),
        (["--beam", "3", "--n-best", "5"], "n_best=5 is more than the beam's size=3. Use a beam of 5."),
        (["--n-best", "101"], "n_best=101 is more than the beam's size=100. Use a beam of 101."),
    ],
)
def test_options_without_effect(folder: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        run(*COMMON, *arguments)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.npz", "--labels", "labels.txt"], "nowhere.npz does not exist. Give an .npz file of posteriors."),
        *(
            (
                [name, "--labels", "labels.txt"],
                f"{name} is not a .npz or .npy file of numbers. Write it with numpy.savez.",
            )
            for name in ("lm.arpa", "hollow.npz", "objects.npz", "objects.npy", "cut.npz")
        ),
        ([".", "--labels", "labels.txt"], "Cannot read .: Is a directory. Give an .npz file of posteriors."),
        (
            ["padded.npy", "--labels", "labels.txt"],
            "padded.npy: the array 'padded' is float32 of shape (1, 2, 4), expected numbers "
            "(frames, labels). Several utterances in one padded array need an array of lengths.",
        ),
        (
            ["ints.npz", "--labels", "labels.txt"],
            "ints.npz: the array 'a' is int64 of shape (2, 4), expected numbers "
            "(frames, labels). Several utterances in one padded array need an array of lengths.",
        ),
        (
            ["probs.npz", "--labels", "labels.txt"],
            "posteriors are not log-probabilities: they look like probabilities, "
            "each row adds up to 1. Take log_softmax of logits and the logarithm of probabilities, "
            "or say kind='logits' (--kind logits) or kind='probs' (--kind probs).",
        ),
        (
            ["shapes.npz", "--labels", "labels.txt"],
            "shapes.npz has lengths (2,) beside a (2, 4). With lengths (B,) there "
            "is one array (B, T, V); without, one array (T, V) for each utterance.",
        ),
        (["long.npz", "--labels", "labels.txt"], "long.npz: lengths has [9], but there are 3 frames."),
        (["none.npz", "--labels", "labels.txt"], "none.npz has no arrays of posteriors. Write them with numpy.savez."),
        (
            ["posteriors.npz", "--labels", "nowhere.txt"],
            "Cannot read nowhere.txt: No such file or directory. Give a file with a label in each line.",
        ),
        (["posteriors.npz", "--labels", "gap.txt"], "gap.txt:2: the line is empty. Name a label in each line."),
        (
            ["posteriors.npz", "--labels", "labels.txt", "--lm", "lm.arpa"],
            "A language model of words needs a lexicon. Give the words there are.",
        ),
        (
            ["posteriors.npz", "--labels", "labels.txt", "--lexicon", "bad.txt"],
            "bad.txt:1: The word 'axe' is spelt with "
            "'x', which is no label or token of the model. Spell it with those it has, or leave such words out with "
            "skip_unspellable (--skip-unspellable).",
        ),
        (
            ["posteriors.npz", "--labels", "labels.txt", "--lexicon", "empty.txt"],
            "The lexicon has no words. Give at least one word that the labels can spell.",
        ),
    ],
)
def test_mistakes(folder: Path, arguments: list[str], message: str) -> None:
    (folder / "hollow.npz").write_bytes(b"")
    (folder / "cut.npz").write_bytes((folder / "posteriors.npz").read_bytes()[:-30])
    np.savez("objects.npz", a=np.array([None]))
    np.save("objects.npy", np.array([None]))
    np.save("padded.npy", one_hot([1, 2])[None])
    np.savez("ints.npz", a=np.zeros((2, 4), np.int64))
    np.savez("probs.npz", a=np.exp(one_hot([1, 2])))
    np.savez("shapes.npz", a=one_hot([1, 2]), lengths=np.array([1, 2]))
    np.savez("long.npz", a=one_hot([1, 2, 0])[None], lengths=np.array([9]))
    np.savez("none.npz", lengths=np.array([9]))
    (folder / "gap.txt").write_text("-\n\nb\n|\n")
    (folder / "bad.txt").write_text("axe\n")
    (folder / "empty.txt").write_text("\n")
    with pytest.raises(UserError) as error:
        CliRunner().invoke(app, ["decode", *arguments], catch_exceptions=False)
    assert str(error.value) == message
