"""A lexicon and a language model of words for a model that writes: words spelt with its tokens."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from unrolled.errors import UserError
from unrolled.search import DictionaryScorer, Lexicon, NGram, WordTokens, WordWeights, WrittenWord
from unrolled.search.lexicon import WordReading
from unrolled.search.lexicon.lexicon import lexicon_lines
from unrolled.search.lexicon.weights import check_used
from unrolled.tasks.shared import options as declared
from unrolled.text import Tokenizer

BETWEEN_SYMBOLS = ("|", "\n")  # separators among symbols, where no word is spelt with them
PART = "\ufffd"  # in the text of a token: it is part of a character


@dataclass(frozen=True)
class LexicalOptions:
    """Values of the options about words that `translate`, `caption` and `generate` share.

    `lexicon` is a file, words, spellings by word, a `Lexicon`, or a `Dictionary`; `lm` a file or a language model.
    """

    lexicon: Any = declared.LEXICON.default
    lm: Any = declared.LM.default
    lm_weight: float | None = declared.LM_WEIGHT.default
    word_bonus: float | None = declared.WORD_BONUS.default
    unknown_penalty: float | None = declared.UNKNOWN_PENALTY.default
    skip_unspellable: bool = declared.SKIP_UNSPELLABLE.default
    share_ends: bool = declared.SHARE_ENDS.default

    def check(self, words: Any = None, **of_words: Any) -> None:
        """Refuses options without the lexicon or language model that they are for."""
        if self.lm is not None and self.lexicon is None:
            raise UserError("A language model of words needs a list of them.", "Give one with lexicon (--lexicon).")
        if self.lexicon is not None and words is not None:
            raise UserError("words and lexicon are both lists of words.", "Give one of them.")
        check_used(
            self.lexicon,
            self.lm,
            lm_weight=self.lm_weight,
            word_bonus=self.word_bonus,
            unknown_penalty=self.unknown_penalty,
            skip_unspellable=self.skip_unspellable or None,
            share_ends=self.share_ends or None,
            **of_words,
        )
        _ = self.word_weights

    @property
    def word_weights(self) -> WordWeights:
        weight = 1.0 if self.lm_weight is None else self.lm_weight
        return WordWeights(weight, self.word_bonus or 0.0, self.unknown_penalty)


class Dictionary(DictionaryScorer):
    """A scorer that keeps a model to words of a lexicon, and tells the words of its outputs."""

    def __init__(
        self, tokenizer: Tokenizer, lexicon: Lexicon, lm: Any, tokens: WordTokens, weights: WordWeights
    ) -> None:
        super().__init__(lexicon, lm, tokens, weights)
        self.tokenizer, self.lexicon = tokenizer, lexicon

    def words(self, tokens: Sequence[int], after: Sequence[int] = ()) -> list[WrittenWord]:
        """The words of an output, with their tokens; those that begin in `after`, a prompt, are left out."""
        return self.readings(tokens, after)[0].words

    def readings(self, tokens: Sequence[int], after: Sequence[int] = (), most: int = 1) -> list[WordReading]:
        """At most `most` ways to read an output as words, the best first, with their scores."""
        found, first = self.parser.readings([*after, *tokens], self._spelt, most), len(after)
        return [
            WordReading(
                score,
                [one._replace(start=one.start - first, end=one.end - first) for one in words if one.start >= first],
            )
            for score, words in found
        ]

    def _spelt(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens)).strip()

    @functools.cached_property
    def respells(self) -> bool:
        """True if some word is not written as it is spelt, such as a word of phones."""
        if self.tokenizer.level == "symbols":
            return True
        numbers = {label: number for number, label in enumerate(self.lexicon.labels)}
        spellings = self.lexicon.spellings()
        return any(self._spelt([numbers[label] for label in labels]) != word for word, labels in spellings)

    def text(self, tokens: Sequence[int], after: Sequence[int] = ()) -> str:
        """The text of an output after a prompt."""
        respelt = self.respelt(tokens, self.words(tokens, after))
        return self.tokenizer.decode(list(tokens)) if respelt is None else respelt

    def respelt(self, tokens: Sequence[int], words: Sequence[WrittenWord]) -> str | None:
        """The text of an output where words are not written as they are spelt; None: its own text is right."""
        if self.tokenizer.level == "symbols":
            return " ".join(word.text for word in words)
        if all(self._spelt(tokens[word.start : word.end]) == word.text for word in words):
            return None
        text, place = "", 0
        for word in words:
            text += self._between(tokens[place : word.start])
            begins = self.tokenizer.piece(tokens[word.start], None).startswith(b" ")
            text += (" " if begins or (text and self.tokenizer.level == "word") else "") + word.text
            place = word.end
        return text + self._between(tokens[place:])

    def _between(self, tokens: Sequence[int]) -> str:
        blank = " " if tokens and self.tokenizer.level == "word" else ""
        return blank + self.tokenizer.decode(list(tokens))


Options = TypeVar("Options", bound=LexicalOptions)


def with_dictionary(options: Options, tokenizer: Tokenizer, *, form: str = "", end: int | None = None) -> Options:
    """The options with their lexicon and language model read: `lexicon` is a `Dictionary`, or None."""
    if options.lexicon is None or isinstance(options.lexicon, Dictionary):
        return options
    return replace(options, lexicon=_dictionary(options, tokenizer, form, end))


def _dictionary(options: LexicalOptions, tokenizer: Tokenizer, form: str, end: int | None) -> Dictionary:
    """The dictionary that options ask for; `form` is the Unicode form of the model's texts."""
    lm = options.lm
    if isinstance(lm, str) or hasattr(lm, "__fspath__"):
        lm = NGram.load(lm)
    speller = _Speller(tokenizer, form)
    spelt = list(speller.spelt(options.lexicon))
    shared = options.share_ends or (isinstance(options.lexicon, Lexicon) and options.lexicon.share_ends)
    settings = {"skip_unspellable": options.skip_unspellable, "share_ends": shared}
    later = None
    if tokenizer.level == "bpe":  # a blank belongs to the first token of a word, and a text's first word may lack it
        later = Lexicon.spelt([(w, s, p) for w, s, p in spelt if s[0].startswith("Ġ")], speller.labels, **settings)
        settings["skip_unspellable"] = False
    lexicon = Lexicon.spelt(spelt, speller.labels, **settings)
    used = {i for _, spelling in lexicon.spellings() for i in map(speller.number, spelling)}
    tokens = speller.tokens(used)
    blanks = [] if end is None else [one for one in tokens.separators if speller.pieces[one].isspace() and one != end]
    tokens = replace(tokens, end=end, blanks=blanks, ignored=set(tokens.ignored) - {end}, following=later)
    return Dictionary(tokenizer, lexicon, lm, tokens, options.word_weights)


class _Speller:
    """Words as tokens of a model, and the roles of the tokens between them."""

    def __init__(self, tokenizer: Tokenizer, form: str) -> None:
        self.tokenizer, self.form = tokenizer, form
        self.special = len(tokenizer.vocabulary.specials)
        # no word is spelt with a special token, not even one that is written like it
        names = enumerate(tokenizer.vocabulary.tokens)
        self.labels = [f"\0{name}" if number < self.special else name for number, name in names]
        self._numbers = {name: number for number, name in enumerate(self.labels)}
        pieces = (tokenizer.piece(number, None) for number in range(len(tokenizer)))
        self.pieces = [piece.decode("utf-8", "replace") for piece in pieces]

    def number(self, label: str) -> int:
        return self._numbers[label]

    def spelt(self, given: Any) -> Iterator[tuple[str, list[str], str]]:
        """Every word with its labels, and the place of its line."""
        for word, labels, place in _given_words(given):
            if labels:
                yield word, [label.lower() for label in labels] if self.tokenizer.lowercase else labels, place
            else:
                yield from ((word, spelling, place) for spelling in self._spellings(word))

    def _spellings(self, word: str) -> Iterator[list[str]]:
        """The tokens of a word in a text."""
        text = unicodedata.normalize(self.form, word) if self.form else word  # type: ignore[arg-type]
        text = text.lower() if self.tokenizer.lowercase else text
        if self.tokenizer.level == "bpe":
            for form in (f" {text}", text):
                yield [self.labels[number] for number in self.tokenizer.ids(form)]
        else:
            yield list(text) if self.tokenizer.level == "char" else [text]

    def tokens(self, used: Collection[int]) -> WordTokens:
        """The tokens between words and those of unknown words, where the words are spelt with the tokens `used`."""
        free = [number for number in range(self.special, len(self.pieces)) if number not in used]
        others = set(range(self.special, len(self.pieces)))
        if self.tokenizer.level == "symbols":
            separators = [number for number in free if self.pieces[number] in BETWEEN_SYMBOLS]
            required = "|" in (self.pieces[number] for number in separators)
        else:
            separators = [number for number in free if self.pieces[number] and not _has_letter(self.pieces[number])]
            required = self.tokenizer.level == "char" and any(self.pieces[number] == " " for number in separators)
        others -= set(separators)
        following, more = others, others
        if self.tokenizer.level == "bpe":
            following = {number for number in others if self.pieces[number].startswith(" ")}
            more = others - following
        elif self.tokenizer.level == "word":
            unk = self.tokenizer.vocabulary.unk
            others = following = others | ({unk} if unk is not None else set())
            more = set()
        return WordTokens(
            separators=separators,
            required=required,
            breaks=[number for number in separators if "\n" in self.pieces[number]],
            ignored=[number for number in range(self.special) if number != self.tokenizer.vocabulary.unk],
            unknown_first=others,
            unknown_following=following,
            unknown_more=more,
        )


def _has_letter(text: str) -> bool:
    return any(unicodedata.category(one)[0] in "LM" or one == PART for one in text)


def _given_words(given: Any) -> Iterator[tuple[str, list[str], str]]:
    """Words as a user gives them, their labels where they are given, and the place of each."""
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        yield from lexicon_lines(given)
    elif isinstance(given, Lexicon):
        yield from ((word, spelling, "") for word, spelling in given.spellings())
    elif isinstance(given, Mapping):
        for word, spellings in given.items():
            several = [spellings] if isinstance(spellings, str) else spellings
            yield from ((word, list(spelling), "") for spelling in several)
    elif hasattr(given, "__iter__"):
        yield from ((str(word), [], "") for word in given)
    else:
        raise UserError(f"lexicon={given!r} is no lexicon.", "Use the path of a file, words, or a Lexicon.")
