"""Sub-words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders

from tests import warm
from tests.text.conftest import AWKWARD, COMBINED, FAMILY, trained
from unrolled.errors import UserError
from unrolled.text import BPETokenizer
from unrolled.text.base import blocks

BLANKS = " \n\t\r\x00\x0b\x1c\x1f\x85\xa0\u1680\u180e\u2003\u200b\u2028\u202f\u205f\u3000\ufeff"
PARTS = st.sampled_from([*AWKWARD, FAMILY, COMBINED, "'s", "we'll", "123", "...", "ü", "中"])
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(PARTS | st.text(BLANKS)).map("".join)


def small(specials: tuple[str, ...] = ("<pad>",)) -> BPETokenizer:
    tokenizer = trained("bpe", specials=specials)
    assert isinstance(tokenizer, BPETokenizer)
    return tokenizer


@given(ANY_TEXT)
def test_every_text_comes_back(text: str) -> None:
    tokenizer = small()
    assert tokenizer.decode(tokenizer.ids(text)) == text
    assert tokenizer.unknowns(text) == 0


@given(ANY_TEXT)
def test_offsets_cover_exactly_the_characters_of_a_tokens_bytes(text: str) -> None:
    tokenizer = small()
    place = [at for at, char in enumerate(text) for _ in char.encode()]  # the character of every byte
    done = 0
    ids, offsets = tokenizer.encode(text)
    for number, (start, end) in zip(ids.tolist(), offsets, strict=True):
        length = len(tokenizer.piece(number, None))
        assert (start, end) == (place[done], place[done + length - 1] + 1)
        done += length
    assert done == len(place)


@given(ANY_TEXT, st.integers(1, 4))
def test_blocks_have_the_tokens_of_the_whole(text: str, size: int) -> None:
    library = small()._library
    apart = [number for _, block in blocks(text, size) for number in library.encode(block).ids]
    assert apart == library.encode(text).ids


@given(st.lists(st.integers(0, 10_000)))
def test_any_ids_decode_as_the_library_does(numbers: list[int]) -> None:
    tokenizer = small(())
    ids = [number % len(tokenizer) for number in numbers]
    assert tokenizer.decode(ids) == decoders.ByteLevel().decode([tokenizer.vocabulary[number] for number in ids])


def test_a_text_that_spells_a_special_token_is_text() -> None:
    tokenizer = BPETokenizer.train(["<pad> <pad> <pad> <eos>" * 50], specials=["<pad>", "<eos>"])
    ids = tokenizer.ids("<pad><eos>")
    assert min(ids) >= 2
    assert tokenizer.decode(ids) == "<pad><eos>"
    assert tokenizer.vocabulary.id("<pad>") == 0


def test_half_a_character_is_shown_as_bytes_and_decoded_as_replacement() -> None:
    tokenizer = BPETokenizer.train(["abc"], max_size=256)
    first, second, third = tokenizer.ids("日").tolist()
    assert [tokenizer.token(number) for number in (first, second, third)] == ["\\xe6", "\\x97", "\\xa5"]
    assert tokenizer.encode("a日").offsets.tolist() == [[0, 1], [1, 2], [1, 2], [1, 2]]
    assert tokenizer.decode([first, second]) == "\ufffd"


def test_frequent_words_become_one_token() -> None:
    tokenizer = BPETokenizer.train(["unrolled sequences " * 50])
    assert [tokenizer.token(int(number)) for number in tokenizer.ids("unrolled sequences")] == [
        "unrolled",
        " sequences",
    ]
    rare = BPETokenizer.train(["unrolled sequences " * 50], min_count=1000)
    assert len(rare) == 256


def test_lower_case_points_at_the_original() -> None:
    tokenizer = BPETokenizer.train(["i\u0307stanbul the " * 20], lowercase=True)
    ids, offsets = tokenizer.encode("THE İSTANBUL The")
    assert tokenizer.decode(ids) == "the i\u0307stanbul the"
    spans = ["THE İSTANBUL The"[start:end] for start, end in offsets]
    assert spans[0].startswith("T")
    assert spans[-1] == " The"
    assert offsets[-1].tolist() == [12, 16]


def test_another_process_trains_the_same() -> None:
    code = "import json; from tests.text.conftest import trained;print(json.dumps(trained('bpe').to_json()))"
    ended = warm.python("-c", code, check=True)
    assert json.loads(ended.stdout) == trained("bpe").to_json()


def add(vocabulary: dict[str, int], token: str) -> None:
    vocabulary[token] = len(vocabulary)


DAMAGE: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("not what the library writes", lambda data: data.pop("model")),
    ("not what the library writes", lambda data: data.update(pre_tokenizer=None)),
    ("it sets normalizer", lambda data: data.update(normalizer={"type": "Lowercase"})),
    ("it sets added_tokens", lambda data: data.update(added_tokens=[{"id": 0, "content": "x"}])),
    ("it sets dropout", lambda data: data["model"].update(dropout=0.5)),
    ("it sets continuing_subword_prefix", lambda data: data["model"].update(continuing_subword_prefix="##")),
    ("made of ByteLevel and WordPiece", lambda data: data["model"].update(type="WordPiece")),
    ("made of Whitespace and BPE", lambda data: data.update(pre_tokenizer={"type": "Whitespace"})),
    ("out of vocabulary", lambda data: data["model"]["merges"].append(["q", "zz"])),
    ("its ids have gaps", lambda data: data["model"]["vocab"].update({"a": 99_999})),
    ("tokens that are not made of bytes", lambda data: add(data["model"]["vocab"], "日")),
    ("of the 256 bytes are missing", lambda data: data["model"].update(vocab={"a": 0}, merges=[])),
]


@pytest.mark.parametrize(("message", "damage"), DAMAGE, ids=[message for message, _ in DAMAGE])
def test_only_our_own_kind_is_read(message: str, damage: Callable[[dict[str, Any]], object]) -> None:
    data = BPETokenizer.train(["abc"], max_size=260).to_json()
    data["library"] = json.loads(data["library"])
    damage(data["library"])
    data["library"] = json.dumps(data["library"])
    with pytest.raises(UserError, match=f"The stored tokenizer is damaged: .*{message}.*train again"):
        BPETokenizer.from_json(data)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "[" * 100_000])
def test_text_that_is_not_json_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="not what the library writes"):
        BPETokenizer.from_json({"level": "bpe", "lowercase": False, "specials": [], "library": text})
