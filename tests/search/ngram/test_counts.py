"""Counts of the parts of a text in files, and threads: the model of the whole text, to the last byte."""

from __future__ import annotations

import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.test_generate import call
from tests.search.ngram.engines import needs_native
from unrolled import UserError
from unrolled.search import NGram
from unrolled.search.ngram import Counts

pytestmark = [needs_native, pytest.mark.filterwarnings("ignore::unrolled.errors.Note")]
WORDS = ["a", "b", "c", "dé", "<unk>", "日本", "\u00a0", "<p>"]


def text_of(seed: int, number: int = 300) -> str:
    """Lines of words, of which new ones keep coming."""
    draw = random.Random(seed)
    lines = []
    for _ in range(number):
        words = [draw.choice(WORDS) if draw.random() < 0.8 else f"w{draw.randint(0, 99)}" for _ in range(9)]
        lines.append(draw.choice(["", " ", "\t"]).join([""]) + " ".join(words[: draw.randint(0, 9)]))
    return "\n".join(lines)


def arpa(out: Path, text: Any, **options: Any) -> bytes:
    NGram.train_to(out, text, **options)
    found = out.read_bytes()
    out.unlink()
    return found


@pytest.mark.parametrize(("order", "memory"), [(1, "1G"), (3, "1G"), (3, "2M"), (9, "1G")])
def test_threads_give_the_model_of_one(order: int, memory: str, tmp_path: Path) -> None:
    path, out = tmp_path / "text.txt", tmp_path / "m.arpa"
    path.write_text(text_of(order, 12_000))
    options: dict[str, Any] = {"order": order, "prune": [0, 0, 1][:order], "memory": memory}
    one = arpa(out, path, **options)
    assert arpa(out, path, workers=2, **options) == one
    assert arpa(out, path, workers=5, **options) == one


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.lists(st.sampled_from(WORDS), max_size=5), max_size=6), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_files_of_counts_give_the_model_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[list[str]]], order: int
) -> None:
    folder = tmp_path_factory.mktemp("counts")
    texts = ["".join(" ".join(words) + "\n" for words in part) for part in parts]
    (folder / "text.txt").write_text("".join(texts))
    try:
        whole = arpa(folder / "m.arpa", folder / "text.txt", order=order)
    except UserError as error:
        said = str(error)
        whole = b""
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.counts")
        NGram.count_to(paths[-1], text.splitlines(), order=order, memory="64K")
    if whole:
        assert arpa(folder / "m.arpa", Counts(*paths)) == whole
        again = folder / "all.counts"
        NGram.count_to(again, Counts(*paths))  # counts of counts
        assert arpa(folder / "m.arpa", again) == whole
    else:
        with pytest.raises(UserError, match="words" if "words" in said else "no"):
            NGram.train(Counts(*paths))


def test_counts_beyond_memory_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(text_of(1, 4000))
    NGram.count_to(tmp_path / "a.counts", path, memory="64K", workers=2)
    NGram.count_to(tmp_path / "b.counts", path)
    assert (tmp_path / "a.counts").read_bytes() == (tmp_path / "b.counts").read_bytes()


def test_from_the_command_line(tmp_path: Path) -> None:
    lines = text_of(2).splitlines(keepends=True)
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for file, part in zip(files, (lines[:100], lines[100:]), strict=True):
        file.write_text("".join(part))
    (tmp_path / "all.txt").write_text("".join(lines))
    for file in files:
        code, said, _ = call("lm", "count", file, "--out", file.with_suffix(".counts"), "--order", "2")
        assert code == 0
        assert re.fullmatch(rf"{tmp_path}/\w+\.counts: [0-9,]+ words in [0-9,]+ sentences\n", said)
    counts = [file.with_suffix(".counts") for file in files]
    assert call("lm", "train", *counts, "--out", tmp_path / "a.arpa")[0] == 0
    train = ("lm", "train", tmp_path / "all.txt", "--order", "2", "--workers", "3", "--out", tmp_path / "b.arpa")
    assert call(*train)[0] == 0
    assert (tmp_path / "a.arpa").read_bytes() == (tmp_path / "b.arpa").read_bytes()
    code, _, said = call("lm", "train", *files, "--out", tmp_path / "c.arpa")
    assert (code, said) == (2, "unrolled: There are 2 texts. Give one, or count each: unrolled lm count.\n")
    code, _, said = call("lm", "train", *counts, "--order", "3", "--out", tmp_path / "c.arpa")
    assert said.endswith("has counts of 2-grams. Leave the order out.\n")


def refused(call: Any, *given: Any, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        call(*given, **options)
    return str(error.value)


def test_mistakes_are_told(tmp_path: Path) -> None:
    path, out = tmp_path / "text.txt", tmp_path / "a.counts"
    path.write_text(text_of(3))
    assert "Give it a name in .counts" in refused(NGram.count_to, tmp_path / "a.arpa", path)
    NGram.count_to(out, path, order=2)
    assert refused(NGram.count_to, out, path).startswith(f"{out} exists already.")
    NGram.count_to(tmp_path / "b.counts", path, order=3)
    said = refused(NGram.train, Counts(out, tmp_path / "b.counts"))
    assert said == f"{tmp_path}/b.counts has counts of 3-grams, and {out} of 2-grams. Count all parts alike."
    assert "is for the C++ engine" in refused(NGram.train, path, workers=2, backend="reference")
    assert "is not a number of threads" in refused(NGram.train, path, workers=0)
    (tmp_path / "c.counts").write_text("a b c\n")
    assert "c.counts is not a file of counts." in refused(NGram.train, tmp_path / "c.counts")
    assert "does not exist" in refused(NGram.train, tmp_path / "d.counts")


def test_damaged_counts_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.counts"
    NGram.count_to(path, ["a b c", "a c d", "b b"], order=2)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert re.search("is damaged|is not a file of counts", refused(NGram.train, path))
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        assert re.search("is damaged|is not a file of counts", refused(NGram.train, path))


def test_hostile_counts_are_told(tmp_path: Path) -> None:
    """The checksum is right, and the numbers are not those of n-grams."""
    path, draw = tmp_path / "a.counts", random.Random(0)
    NGram.count_to(path, ["a b c", "a c d", "b b"], order=3)
    whole = path.read_bytes()[:-4]
    begin = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 6)):
            place = draw.randrange(begin, len(changed))
            changed[place] = draw.choice([0, 1, 2, 3, 255, 10, 32])
        path.write_bytes(bytes(changed) + zlib.crc32(changed).to_bytes(4, "little"))
        said, model = "", None
        try:
            model = NGram.train(path)
        except UserError as error:
            said = str(error)
        assert model is not None or re.search("is damaged|There are no", said)
