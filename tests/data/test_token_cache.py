"""Large texts on disk: the ids of the whole text, whatever its segments; shared, rebuilt when damaged or stale."""

from __future__ import annotations

import gzip
import json
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import warm
from tests.cli.test_generate import call
from unrolled import UserError, api
from unrolled.data.batching import token_cache
from unrolled.data.batching.token_cache import TokenCache
from unrolled.errors import Note
from unrolled.text import large, train_tokenizer

WORDS = ("alpha", "bé ta", "日本語", "x\r\n", "\n\n", "İstanbul", "Σίσυφος", "\u00a0", "👩‍🚀")


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "SEGMENT", 700)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    draw = random.Random(0)
    text = "".join(draw.choice(WORDS) + draw.choice([" ", "", "\n", "  "]) for _ in range(2000))
    (tmp_path / "book.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return tmp_path / "book.txt"


def whole(path: Path) -> str:
    return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.0371])
def test_a_cut_is_where_it_is_in_memory(book: Path, tmp_path: Path, fraction: float) -> None:
    text = whole(book)
    train, valid = TokenCache(tmp_path / "cache").text(book, fraction)
    assert valid is not None
    cut = round(len(text) * (1 - fraction))
    assert "".join(train.segments()) == text[:cut]
    assert "".join(valid.segments()) == text[cut:]
    assert len(list(train.segments())) > 5


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize(
    ("level", "lowercase"), [("char", False), ("word", True), ("bpe", False), ("bpe", True), ("symbols", True)]
)
def test_ids_are_those_of_the_whole_text(book: Path, tmp_path: Path, level: str, lowercase: bool) -> None:
    cache = TokenCache(tmp_path / "cache", processes=3)
    text, _ = cache.text(book)
    made = train_tokenizer(level, text.segments(), lowercase=lowercase, max_size=400)
    assert cache.trained(text, level, lowercase=lowercase, max_size=400) == made
    assert made == train_tokenizer(level, [whole(book)], lowercase=lowercase, max_size=400)
    ids = cache.ids(text, made)
    assert np.array_equal(ids, made.ids(whole(book)))
    assert isinstance(ids, np.memmap)


def test_many_characters_are_counted_as_few_are() -> None:
    text = "".join(random.Random(1).choices("ab日\n👩", k=100_000))
    pieces = [text[i : i + 50] for i in range(0, len(text), 50)]
    assert train_tokenizer("char", [text]) == train_tokenizer("char", pieces)


def test_the_cache_is_made_once(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = TokenCache(tmp_path / "cache")
    text, _ = cache.text(book)
    made = train_tokenizer("char", text.segments())
    first = cache.ids(text, made)

    def never(*_: Any) -> None:
        raise AssertionError("it was made again")

    monkeypatch.setattr(token_cache, "tokenised", never)
    monkeypatch.setattr(token_cache, "scanned", never)
    again, _ = cache.text(book)
    assert np.array_equal(cache.ids(again, made), first)
    other = train_tokenizer("char", text.segments(), lowercase=True)
    with pytest.raises(AssertionError, match="made again"):
        cache.ids(text, other)


def test_a_changed_file_is_another_text(book: Path, tmp_path: Path) -> None:
    cache = TokenCache(tmp_path / "cache")
    before, _ = cache.text(book)
    book.write_bytes(book.read_bytes().replace(b"alpha", b"gamma"))
    os.utime(book, ns=(1, 1))
    after, _ = cache.text(book)
    assert before.sha256 != after.sha256
    made = train_tokenizer("char", after.segments())
    assert np.array_equal(cache.ids(after, made), made.ids(whole(book)))


@pytest.mark.parametrize("damage", ["shorter", "changed", "no about", "nonsense"])
def test_a_damaged_cache_is_made_again(book: Path, tmp_path: Path, damage: str) -> None:
    cache = TokenCache(tmp_path / "cache")
    text, _ = cache.text(book)
    made = train_tokenizer("char", text.segments())
    expected = np.array(cache.ids(text, made))
    (place,) = [path for path in (tmp_path / "cache" / "tokens").iterdir() if path.is_dir()]
    raw = (place / "ids.bin").read_bytes()
    if damage == "shorter":
        (place / "ids.bin").write_bytes(raw[:-5])
    elif damage == "changed":
        (place / "ids.bin").write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    elif damage == "no about":
        (place / "about.json").unlink()
    else:
        (place / "about.json").write_text("{")
    with pytest.warns(Note, match=r"The token cache .* is damaged \(.*\) and is rebuilt"):
        assert np.array_equal(cache.ids(text, made), expected)


def test_a_damaged_tokenizer_or_scan_is_made_again(book: Path, tmp_path: Path) -> None:
    cache = TokenCache(tmp_path / "cache")
    text, _ = cache.text(book)
    made = cache.tokenizer(text, {"level": "char"}, lambda texts: train_tokenizer("char", texts))
    for path in (tmp_path / "cache").rglob("*.json"):
        path.write_text("{")
    assert cache.text(book)[0] == text
    with pytest.warns(Note, match="is damaged and is rebuilt"):
        assert cache.tokenizer(text, {"level": "char"}, lambda texts: train_tokenizer("char", texts)) == made


def test_two_processes_share_one(book: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from unrolled.data.batching.token_cache import TokenCache\n"
        "from unrolled.text import train_tokenizer\n"
        "cache = TokenCache(sys.argv[2]); text, _ = cache.text(sys.argv[1])\n"
        "made = cache.tokenizer(text, 'char', lambda texts: train_tokenizer('char', texts))\n"
        "print(int(cache.ids(text, made).astype('int64').sum()))"
    )
    running = [warm.start("-c", program, book, tmp_path / "cache") for _ in range(2)]
    sums = {process.finished().stdout for process in running}
    made = train_tokenizer("char", [whole(book)])
    assert sums == {f"{int(made.ids(whole(book)).astype('int64').sum())}\n"}
    assert not list((tmp_path / "cache").rglob("*.new"))


def test_files_that_are_not_text_are_errors(tmp_path: Path) -> None:
    cache = TokenCache(tmp_path / "cache")
    bad = tmp_path / "bad.txt"
    for raw, message in (
        (b"good text\n" * 10 + b"\xff", r"is not UTF-8: byte 0xff at offset 100\. Convert it"),
        (b"good\0", "is not text: it has a zero byte at offset 4"),
        (b" \n", r"is empty\. Give a text file"),
    ):
        bad.write_bytes(raw)
        with pytest.raises(UserError, match=message):
            cache.text(bad)
    with pytest.raises(UserError, match="does not exist"):
        cache.text(tmp_path / "none.txt")
    (tmp_path / "file").write_text("")
    good = tmp_path / "good.txt"
    good.write_text("some text\n")
    with pytest.raises(UserError, match=r"could not be written: Not a directory\. Give another folder: data\.cache="):
        TokenCache(tmp_path / "file").text(good)


SMALL: dict[str, Any] = {
    "model.hidden_size": 16,
    "train.batch_size": 4,
    "train.k1": 20,
    "train.max_steps": 6,
    "train.eval_every": 3,
}


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_training_from_a_cache_is_training_from_memory(book: Path, tmp_path: Path, kind: str) -> None:
    book.write_text(whole(book))
    keys = {**SMALL, "model.kind": kind, **({"model.blocks": 1} if kind == "transformer" else {})}
    memory = api.train("generate", train=book, out=tmp_path / "memory", set=keys, quiet=True)
    keys["data.cache"] = str(tmp_path / "cache")
    disk = api.train("generate", train=book, out=tmp_path / "disk", set=keys, quiet=True)
    for a, b in zip(memory.network.parameters(), disk.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert memory.evaluate(book) == disk.evaluate(book)
    with pytest.raises(UserError, match="which goes forward only"):
        api.train("generate", train=book, out=tmp_path / "x", set={**keys, "data.direction": "backward"}, quiet=True)
    packed = tmp_path / "book.txt.gz"
    packed.write_bytes(gzip.compress(book.read_bytes()))
    with pytest.raises(UserError, match=r"book\.txt\.gz is packed, and data\.cache keeps texts as they are\."):
        api.train("generate", train=packed, out=tmp_path / "x", set=keys, quiet=True)


def test_a_large_test_file_is_scored_as_a_small_one(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    model = api.train("generate", train=book, out=tmp_path / "run", set=SMALL, quiet=True)
    expected = model.evaluate(book)
    monkeypatch.setattr("unrolled.tasks.generate.texts.LARGE", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.evaluate(book) == expected
    assert list((tmp_path / "home" / "unrolled" / "tokens").iterdir())
    facts = api.check("generate", extra={**SMALL, "data.train": str(book)}).facts
    assert facts["train tokens"] == round(len(whole(book)) * 0.9)
    assert json.dumps(facts["vocabulary"])


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("processes", [2, 5])
def test_the_number_of_processes_changes_no_byte(book: Path, tmp_path: Path, processes: int) -> None:
    """The scan, the vocabulary and the ids of one process, and of several."""
    found = []
    for number in (1, processes):
        cache = TokenCache(tmp_path / str(number), number)
        train, valid = cache.text(book, 0.3)
        assert valid is not None
        for level in ("char", "word"):
            made = cache.trained(train, level, lowercase=True, min_count=2)
            cache.ids(train, made)
            cache.ids(valid, made)
        files = sorted(path for path in (tmp_path / str(number)).rglob("*") if path.suffix in (".json", ".bin"))
        kept = [path for path in files if path.parent.name != "sources"]  # where segments begin may differ
        found.append({str(path.relative_to(tmp_path / str(number))): path.read_bytes() for path in kept})
    assert found[0] == found[1]
    assert len(found[0]) == 10


def test_several_processes_find_the_faults_of_one(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    for content in (b" \n" * 99, b"word " * 400 + b"\xff" + b" word" * 400, b"word " * 99 + b"\0 word", b"\xff\xfea\0"):
        path.write_bytes(content)
        said = []
        for processes in (1, 3):
            with pytest.raises(UserError) as error:
                TokenCache(tmp_path / "cache", processes).text(path)
            said.append(str(error.value))
        assert said[0] == said[1]


def test_the_number_of_processes_is_a_key_and_a_flag(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def scanned(path: Path, processes: int) -> Any:
        asked.append(processes)
        return large.scan_text(path)

    def trained(text: Any, level: str, processes: int, **options: Any) -> Any:
        asked.append(processes)
        return train_tokenizer(level, text.segments(), **options)

    def build(self: TokenCache, *given: Any) -> None:
        asked.append(given[-1])
        raise UserError("enough")

    monkeypatch.setattr(token_cache, "scanned", scanned)
    monkeypatch.setattr(token_cache, "trained", trained)
    monkeypatch.setattr(TokenCache, "_build", build)
    words = ("check", "generate", "--train", book, "--workers", "3", "--set", f"data.cache={tmp_path / 'c'}")
    code, _, said = call(*words)
    assert (code, asked) == (2, [3, 3, 3])
    assert "enough" in said
