"""All tokenizers by the name of their level: training, and reading from a model file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from unrolled.errors import unknown_name
from unrolled.text.base import Encoding, Tokenizer, checked_texts
from unrolled.text.bpe import BPETokenizer
from unrolled.text.char import CharTokenizer
from unrolled.text.counted import CountedTokenizer
from unrolled.text.stream import StreamDecoder
from unrolled.text.vocabulary import stored
from unrolled.text.word import SymbolTokenizer, WordTokenizer

__all__ = ["LEVELS", "Encoding", "StreamDecoder", "Tokenizer", "counts_of", "tokenizer_from_json", "train_tokenizer"]

LEVELS: dict[str, type[Tokenizer]] = {
    "char": CharTokenizer,
    "word": WordTokenizer,
    "bpe": BPETokenizer,
    "symbols": SymbolTokenizer,
}


def train_tokenizer(
    level: str,
    texts: Iterable[str],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    lowercase: bool = False,
    specials: Sequence[str] = (),
) -> Tokenizer:
    """A tokenizer of the named level for texts like these.

    min_count: rarer tokens are `<unk>` (for BPE: rarer pairs are not merged).
    max_size: the largest vocabulary, special tokens included; None for all tokens (for BPE: 8000).
    lowercase: texts are lowercased before lookup; offsets still point into the original.
    specials: special tokens such as `<pad>`, `<bos>`, `<eos>`; `<unk>` is added before them if the level needs it.

    >>> words = train_tokenizer("word", ["A rose is a rose"], lowercase=True, specials=["<eos>"])
    >>> words.vocabulary.tokens
    ('<unk>', '<eos>', 'a', 'rose', 'is')
    >>> words.encode("Rose a").offsets.tolist()
    [[0, 4], [5, 6]]
    """
    return _class_of(level).train(texts, min_count=min_count, max_size=max_size, lowercase=lowercase, specials=specials)


def counts_of(level: str, texts: Iterable[str], *, lowercase: bool) -> dict[str, Any]:
    """The count of each token in part of the texts, and if the part is only white space."""
    kind, blank = _class_of(level), True
    assert issubclass(kind, CountedTokenizer)

    def seen() -> Iterator[str]:
        nonlocal blank
        for text in checked_texts(texts, lowercase=lowercase):
            blank = blank and (not text or text.isspace())
            yield text

    counts = kind.counts(seen())
    return {"counts": counts, "blank": blank}


def tokenizer_from_json(data: object) -> Tokenizer:
    """The tokenizer that `Tokenizer.to_json` stored.

    >>> stored = train_tokenizer("char", ["abc"]).to_json()
    >>> tokenizer_from_json(stored).decode([1, 2, 3])
    'abc'
    """
    return _class_of(stored(data, "level", str)).from_json(data)


def _class_of(level: str) -> type[Tokenizer]:
    if level not in LEVELS:
        raise unknown_name("level", level, LEVELS)
    return LEVELS[level]
