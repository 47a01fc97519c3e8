"""One small tokenizer of every level, and texts that are hard to take apart."""

from __future__ import annotations

import functools

import pytest

from unrolled.text import LEVELS, Tokenizer, train_tokenizer

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
COMBINED = "e\u0301 n\u0303o\u0323\u0302"
AWKWARD = [
    "",
    " ",
    "\n",
    "a",
    "two words",
    "  three   words here \n\n and  lines\n",
    f"{FAMILY} and {COMBINED}",
    "İstanbul, IĞDIR, ΟΔΟΣ ΣΑΣ, Straße, ﬁ",
    "zero\x00 tab\t return\r\n separator\u2028 nbsp\xa0.",
    "<unk> <pad> <eos>",
    "日本語のテキスト。한국어 नमस्ते",
    "\ufffd \ufeff \U0010ffff",
]
SPECIALS = ("<pad>", "<bos>", "<eos>")


@functools.cache
def trained(level: str, *, lowercase: bool = False, specials: tuple[str, ...] = SPECIALS) -> Tokenizer:
    return train_tokenizer(level, AWKWARD * 3, lowercase=lowercase, specials=specials)


@pytest.fixture(params=sorted(LEVELS))
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)
