"""The tokens of one side, source or target: from text to ids and back. Stored in the model file."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import stored_entry
from unrolled.data import Batch
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.errors import UserError
from unrolled.tasks.shared.levels import translation_level
from unrolled.text import Tokenizer, tokenizer_from_json, train_tokenizer

Ids = NDArray[np.int32]
BOS, EOS = "<bos>", "<eos>"
Form = Literal["", "NFC", "NFD", "NFKC", "NFKD"]
Normalize = Literal["auto", "none", "nfc", "nfd", "nfkc", "nfkd"]
WORDS = ("word", "symbols")  # levels with white space between tokens
WORDS_PER_PIECE = 50  # of training text for each sub-word that is learnt


@dataclass(frozen=True)
class Reading:
    """The settings of one side in a config."""

    level: str  # char, word, bpe, symbols or auto
    min_count: int = 1
    max_size: int | None = None
    lowercase: bool = False
    normalize: Normalize = "auto"


@dataclass(frozen=True)
class Side:
    """One side's tokens, with `<bos>` and `<eos>` among them."""

    tokenizer: Tokenizer
    form: str = ""  # of Unicode: NFD takes letters apart; "" leaves them as they are

    @property
    def begin(self) -> int:
        return self.tokenizer.vocabulary.id(BOS)

    @property
    def end(self) -> int:
        return self.tokenizer.vocabulary.id(EOS)

    def ids(self, text: str) -> NDArray[np.int32]:
        """The tokens of a text, without an end."""
        return self.tokenizer.ids(prepared(text, self.tokenizer.level, self.form))

    def ids_each(self, texts: Iterable[str]) -> Ragged:
        """The tokens of each text, without ends."""
        level = self.tokenizer.level
        if level in WORDS and not self.form:  # any white space between words is the same
            return Ragged(*self.tokenizer.ids_each(text.replace("\n", " ") for text in texts))
        return Ragged(*self.tokenizer.ids_each(prepared(text, level, self.form) for text in texts))

    def count_unknown(self, ids: NDArray[np.int32]) -> int:
        """The number of tokens that were never seen in training."""
        unk = self.tokenizer.vocabulary.unk
        return 0 if unk is None else int(np.count_nonzero(ids == unk))

    def places(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The prepared text, and the position of each token in it."""
        tidy = prepared(text, self.tokenizer.level, self.form)
        return tidy, [(int(a), int(b)) for a, b in self.tokenizer.encode(tidy).offsets]

    def shown(self, ids: Sequence[int]) -> list[str]:
        """Each token as it can be shown."""
        return list(map(self.tokenizer.token, map(int, ids)))

    def shown_each(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        """The tokens of each row as they can be shown; the rows are a search's, which knows the vocabulary."""
        shown = self.tokenizer.shown
        return [list(map(shown.__getitem__, row)) for row in rows]

    def text(self, ids: Sequence[int], instead: Sequence[str | None] = ()) -> str:
        """The text of tokens; where `instead` has a text for a token, that one."""
        if not any(one is not None for one in instead):
            return self._tidy(self.tokenizer.decode(list(ids)))
        blank = "" if self.tokenizer.level == "char" else " "
        words = [self.tokenizer.token(i) if one is None else one for i, one in zip(ids, instead, strict=True)]
        return self._tidy(blank.join(words))

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of tokens."""
        return [self._tidy(text) for text in self.tokenizer.decode_each(rows)]

    def _tidy(self, text: str) -> str:
        if self.tokenizer.level not in WORDS or "\n" in text:  # words have single blanks between them
            text = " ".join(text.split())
        return unicodedata.normalize("NFC", text) if self.form in ("NFD", "NFKD") else text

    def extended(self, texts: Sequence[str]) -> Side:
        """With tokens for everything new in these texts; known tokens keep their ids."""
        return replace(self, tokenizer=self.tokenizer.extended(texts))

    def to_json(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer.to_json(), "form": self.form}

    @classmethod
    def from_json(cls, stored: Any) -> Side:
        tokenizer = tokenizer_from_json(stored_entry(stored, "tokenizer", dict[str, Any], "side"))
        side = cls(tokenizer, stored_entry(stored, "form", Form, "side"))
        for name in (BOS, EOS):
            tokenizer.vocabulary.id(name)
        return side


def prepared(text: str, level: str, form: str) -> str:
    """A text ready for the tokenizer: single blanks, one form of Unicode.

    Before sub-words stands a blank: a word's first piece is then the same at the beginning and inside.
    """
    text = " ".join(text.split())
    text = unicodedata.normalize(form, text) if form else text  # type: ignore[arg-type]
    return f" {text}" if text and level == "bpe" else text


def level_of(side: Reading, texts: Sequence[str]) -> str:
    """The level of the config, or the one that suits the texts."""
    return translation_level(texts) if side.level == "auto" else side.level


def form_of(side: Reading, level: str, texts: Sequence[str]) -> str:
    """The Unicode form; auto splits Korean syllables (11,172 of them) into letters if tokens are characters."""
    if side.normalize != "auto":
        return "" if side.normalize == "none" else side.normalize.upper()
    syllables = any("\uac00" <= char <= "\ud7a3" for text in texts for char in text)
    return "NFD" if level == "char" and syllables else ""


def trained_side(side: Reading, level: str, texts: Sequence[str], form: str) -> Side:
    """A side with a tokenizer trained on these texts."""
    size = side.max_size
    if level == "bpe" and size is None:
        words = sum(len(text.split()) for text in texts)
        size = min(8000, max(500, words // WORDS_PER_PIECE))
    if level == "bpe" and size is not None and size < 258:
        raise UserError(f"data.max_size={size} is too small for bpe.", "It needs 256 bytes and two marks: 300 or more.")
    least = side.min_count if level in ("word", "symbols", "char") else 2
    tidy = [prepared(text, level, form) for text in texts]
    tokenizer = train_tokenizer(
        level, tidy, min_count=least, max_size=size, lowercase=side.lowercase, specials=[BOS, EOS]
    )
    return Side(tokenizer, form)


def with_targets(batch: Batch, target: Side, tokens: Ragged, rows: Rows | None = None) -> Batch:
    """The batch with a target for each row, its end token included, and the inputs of the decoder.

    `tokens` are those of all targets without ends, `rows` the numbers of the batch's; None: all.
    """
    outputs, lengths = tokens.ended(tokens.rows if rows is None else rows, target.end)
    inputs = np.empty_like(outputs)
    inputs[:, 0], inputs[:, 1:] = target.begin, outputs[:, :-1]
    inputs[:, 1:] *= np.arange(1, inputs.shape[1]) < lengths[:, None]  # no step reads an end
    return replace(batch, targets=outputs, more={**batch.more, "target_inputs": inputs, "target_lengths": lengths})
