"""From a model's tokens to words of a lexicon: every way to read a sequence of tokens as words, with its score."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.search.lexicon.graph import SpellingPlace
from unrolled.search.lexicon.lexicon import Lexicon
from unrolled.search.lexicon.look_ahead import LookAhead
from unrolled.search.lexicon.weights import WordWeights
from unrolled.search.lexicon.word_model import UNKNOWN_WORD, WordModel
from unrolled.search.ngram import NGram

Kind = Literal["begin", "inside", "unknown", "end", "lost"]
MOST_CACHED = 5_000_000  # tokens and their gains


@dataclass(frozen=True)
class WordTokens:
    """The tokens around the words of an output.

    - `separators` stand between words and at both ends, any number of them; `breaks` among them end a sentence.
    - `blanks` among them are neither first nor last in an output, nor two in a row.
    - Two words need a separator between them if it is `required`; otherwise they may follow each other directly.
    - `following` has the words that follow another directly, where they are spelt differently there; None: they are
      spelt alike.
    - An unknown word begins with one of `unknown_first`, directly after another word with one of `unknown_following`,
      and goes on with `unknown_more`.
    """

    end: int | None = None  # ends an output, after a whole word or none
    separators: Collection[int] = ()
    required: bool = False
    breaks: Collection[int] = ()
    blanks: Collection[int] = ()
    ignored: Collection[int] = ()  # special tokens: they change nothing
    following: Lexicon | None = None
    unknown_first: Collection[int] = ()
    unknown_following: Collection[int] = ()
    unknown_more: Collection[int] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in ("end", "required", "following"):
                object.__setattr__(self, field.name, frozenset(getattr(self, field.name)))


class At(NamedTuple):
    """The place of a reading of some tokens; readings at the same place have the same future.

    "begin": a word may begin; "inside" a word of the lexicon, or an "unknown" one; "end" of a word, with no token
    after it; "lost": inside a word that was given, and is none of the lexicon.
    """

    kind: Kind
    lm: Any
    place: SpellingPlace | None = (
        None  # in the lexicon's graph; of an unknown word none, where no word of the lexicon begins so
    )
    follows: bool = False  # the word follows another directly; at "begin": a blank was written last


class Move(NamedTuple):
    """One more token of a reading."""

    gain: float
    at: At
    word: str | None = None  # the word that ends with the token; UNKNOWN_WORD: as it is spelt


class _Children(NamedTuple):
    """The tokens that follow a place of the lexicon."""

    tokens: NDArray[np.int64]
    inside: NDArray[np.float64]  # of each: the gain if a word goes on; -inf if none does
    word_tokens: NDArray[np.int64]  # the token of each word that ends
    words: list[str]
    before: float  # the look-ahead of the place itself


class WrittenWord(NamedTuple):
    """A word of an output, and its tokens from the first to the one after the last."""

    text: str
    start: int
    end: int
    known: bool  # False: not in the lexicon


class SentenceParser:
    """Reads tokens as words: the moves from each place, and what they add to the score.

    Inside a word the best unigram score of the words still possible is counted already; the gain of the word's last
    token corrects it.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        lm: WordModel | None = None,
        tokens: WordTokens | None = None,
        weights: WordWeights | None = None,
    ) -> None:
        self.lm, self.tokens, self.weights = lm, tokens or WordTokens(), weights or WordWeights()
        following = self.tokens.following
        self._lexicons = (lexicon, lexicon if following is None else following)
        looking = lm if self.weights.look_ahead else None
        first = LookAhead(lexicon, looking, self.weights.lm_weight)
        self._ahead = (first, first if following is None else LookAhead(following, looking, self.weights.lm_weight))
        self._size = len(lexicon.labels)
        self._children: dict[tuple[bool, SpellingPlace], _Children] = {}
        self._cached: dict[At, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        self._held = 0
        self.initial = At("begin", None if lm is None else lm.initial())

    def look_ahead(self, at: At) -> float:
        """The part of a reading's score that its words have not earned yet."""
        return self._ahead[at.follows](at.place) if at.kind == "inside" and at.place is not None else 0.0

    def gains(self, at: At) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The tokens that may come next, and the most that each adds to the score."""
        if at not in self._cached:
            if self._held > MOST_CACHED:
                self._cached, self._held = {}, 0
            best = self._best_gains(at)
            tokens = np.flatnonzero(best > -np.inf)
            self._cached[at] = tokens, best[tokens]
            self._held += len(tokens)
        return self._cached[at]

    def _best_gains(self, at: At) -> NDArray[np.float64]:
        """(V,): the best move with each token, -inf where there is none: `moves`, for all tokens at once."""
        tokens, best = self.tokens, np.full(self._size, -np.inf)
        between = at.kind in ("begin", "end", "lost")
        if between:
            for token in (*tokens.separators, *([] if tokens.end is None else [tokens.end])):
                best[token] = max((move.gain for move in self._between(at, token)), default=-np.inf)
            if at.kind != "begin" and tokens.required:
                return best
        if at.kind != "unknown":
            follows = at.follows if at.kind == "inside" else at.kind != "begin"
            graph = self._lexicons[follows].graph
            children = self._children_of(follows, graph.root if at.place is None else at.place)
            best[children.tokens] = np.maximum(best[children.tokens], children.inside)
            if children.words:
                ended = self._word_gains(at.lm, children.words) - children.before
                np.maximum.at(best, children.word_tokens, ended)
        if self.weights.unknown_penalty is not None and at.kind != "inside":
            allowed, gain, stays = self._unknown_gains(at, self.weights.unknown_penalty)
            known = self._final_tokens(at)
            best[allowed] = np.maximum(best[allowed], np.where(np.isin(allowed, known), stays, gain))
        return best

    def _unknown_gains(self, at: At, penalty: float) -> tuple[NDArray[np.int64], float, float]:
        """Tokens of an unknown word, the gain of each, and that of one which would make it a known word."""
        begins = at.kind != "unknown"
        name = ("unknown_following" if at.kind != "begin" else "unknown_first") if begins else "unknown_more"
        first = penalty if begins else 0.0
        stays = first if self.tokens.unknown_more else -np.inf
        gain = max(stays, self._ended(at, UNKNOWN_WORD, first).gain)
        return np.array(sorted(getattr(self.tokens, name)), dtype=np.int64), gain, stays

    def _final_tokens(self, at: At) -> NDArray[np.int64]:
        """The tokens that would make what an unknown word has so far a word of the lexicon."""
        begins = at.kind != "unknown"
        follows = at.kind != "begin" if begins else at.follows
        graph = self._lexicons[follows].graph
        place = graph.root if begins else at.place
        if place is None:
            return np.array([], dtype=np.int64)
        return self._children_of(follows, place).word_tokens

    def _children_of(self, follows: bool, place: SpellingPlace) -> _Children:
        """The tokens after a place of the lexicon; kept, since they are the same after all words."""
        if (follows, place) not in self._children:
            lexicon, ahead = self._lexicons[follows], self._ahead[follows]
            graph, before = lexicon.graph, ahead(place)
            tokens, inside, word_tokens, words = [], [], [], []
            for label, child in graph.children(place):
                tokens.append(label)
                inside.append(ahead(child) - before if graph.goes_on(child) else -np.inf)
                for word in lexicon.words_at(graph.rank(child)):
                    word_tokens.append(label)
                    words.append(lexicon.words[word])
            places = (np.array(tokens, dtype=np.int64), np.array(inside), np.array(word_tokens, dtype=np.int64))
            self._children[follows, place] = _Children(*places, words, before)
        return self._children[follows, place]

    def _word_gains(self, state: Any, words: Sequence[str]) -> NDArray[np.float64]:
        """The gain of the end of each of several words."""
        if self.lm is None:
            return np.full(len(words), self.weights.word_bonus)
        if isinstance(self.lm, NGram):
            return self.weights.word_bonus + self.weights.lm_weight * self.lm.log_probs(state, words)
        scores = np.array([self.lm.advance(state, word)[0] for word in words])
        return self.weights.word_bonus + self.weights.lm_weight * scores

    def moves(self, at: At, token: int) -> list[Move]:
        """The ways to read one more token; none: it is not allowed."""
        if token in self.tokens.ignored:
            return [Move(0.0, at)]
        return list(self._moves(at, token))

    def lost(self, at: At) -> At:
        """The place after a token that is not allowed, which was given: only the end of its word can follow."""
        if at.kind == "lost" or self.lm is None:
            return At("lost", at.lm)
        return At("lost", self.lm.advance(at.lm, UNKNOWN_WORD)[1])

    def _moves(self, at: At, token: int) -> Iterator[Move]:
        if at.kind in ("begin", "end", "lost"):
            yield from self._between(at, token)
            if at.kind != "begin" and self.tokens.required:
                return
        if at.kind != "unknown":
            yield from self._known(at, token)
        if self.weights.unknown_penalty is not None and at.kind != "inside":
            yield from self._unknown(at, token, self.weights.unknown_penalty)

    def _between(self, at: At, token: int) -> Iterator[Move]:
        """Separators and the end."""
        tokens = self.tokens
        # of empty lines nothing is said
        blank = at.kind == "begin" and at.follows
        if (token == tokens.end and blank) or (token in tokens.blanks and (blank or at == self.initial)):
            return
        if token == tokens.end or (token in tokens.breaks and at != self.initial):
            yield Move(0.0 if self.lm is None else self.weights.lm_weight * self.lm.final(at.lm), self.initial)
        elif token in tokens.separators:
            yield Move(0.0, At("begin", at.lm, follows=token in tokens.blanks))

    def _known(self, at: At, token: int) -> Iterator[Move]:
        """Words of the lexicon: one more token of their spellings."""
        follows = at.follows if at.kind == "inside" else at.kind != "begin"
        lexicon, ahead = self._lexicons[follows], self._ahead[follows]
        graph = lexicon.graph
        place = graph.root if at.place is None else at.place
        child = graph.find(place, token)
        if child is None:
            return
        for word in lexicon.words_at(graph.rank(child)):
            yield self._ended(at, lexicon.words[word], -ahead(place))
        if graph.goes_on(child):
            yield Move(ahead(child) - ahead(place), At("inside", at.lm, child, follows))

    def _unknown(self, at: At, token: int, penalty: float) -> Iterator[Move]:
        """Words outside the lexicon: any tokens that no word of it is spelt with."""
        tokens = self.tokens
        begins = at.kind != "unknown"
        follows = at.kind != "begin" if begins else at.follows
        allowed = (tokens.unknown_following if follows else tokens.unknown_first) if begins else tokens.unknown_more
        if token not in allowed:
            return
        graph = self._lexicons[follows].graph
        place = graph.root if begins else at.place
        child = None if place is None else graph.find(place, token)
        first = penalty if begins else 0.0
        if graph.rank(child) is None:
            yield self._ended(at, UNKNOWN_WORD, first)
        if tokens.unknown_more:
            yield Move(first, At("unknown", at.lm, child, follows))

    def _ended(self, at: At, word: str, gain: float) -> Move:
        gain += self.weights.word_bonus
        lm = None
        if self.lm is not None:
            log_prob, lm = self.lm.advance(at.lm, word)
            gain += self.weights.lm_weight * log_prob
        return Move(gain, At("end", lm), word)

    def best_words(self, written: Sequence[int], spelt: Any) -> list[WrittenWord]:
        """The words of the best reading of an output's tokens: the first of its `readings`."""
        return self.readings(written, spelt)[0].words

    def readings(self, written: Sequence[int], spelt: Any, most: int = 1) -> list[WordReading]:
        """At most `most` readings of an output's tokens that differ in their words, the best first.

        `spelt(tokens)` is the text of an unknown word. The last word of an output that was cut is left out where it is
        not whole.
        """
        partial: dict[At, list[_Partial]] = {self.initial: [_Partial(0.0, 0, None)]}
        for time, token in enumerate(written):
            after: dict[At, list[_Partial]] = {}
            for at, several in partial.items():
                for gain, to, word in self.moves(at, token):
                    longer = after.setdefault(to, [])
                    for score, start, words in several:
                        start = start if at.kind in ("inside", "unknown") else time
                        longer.append(_Partial(score + gain, start, _spoken(words, word, start, time + 1)))
            if not after:
                at = max(partial, key=lambda one: partial[one][0].score)
                after = {self.lost(at): [one._replace(start=time) for one in partial[at]]}
            partial = {at: _different(several, most) for at, several in after.items()}
        whole = {at: several for at, several in partial.items() if at.kind in ("begin", "end", "lost")} or partial
        final = {at: 0.0 if self.lm is None else self.weights.lm_weight * self.lm.final(at.lm) for at in whole}
        ended = [one._replace(score=one.score + final[at]) for at, several in whole.items() for one in several]
        return [WordReading(one.score, _told(one.words, written, spelt)) for one in _different(ended, most)]


class WordReading(NamedTuple):
    """An output read as words, and what the words add to its score."""

    score: float
    words: list[WrittenWord]


class _Spoken(NamedTuple):
    """A word of a reading after those `before` it."""

    before: _Spoken | None
    key: tuple[Any, ...]  # equal for equal words, after equal words
    word: str
    start: int
    end: int


class _Partial(NamedTuple):
    """A reading of the first tokens of an output."""

    score: float
    start: int  # of the word that it is in
    words: _Spoken | None


def _spoken(before: _Spoken | None, word: str | None, start: int, end: int) -> _Spoken | None:
    if word is None:
        return before
    told = (start, end) if word == UNKNOWN_WORD else word
    return _Spoken(before, (told,) if before is None else (*before.key, told), word, start, end)


def _different(several: list[_Partial], most: int) -> list[_Partial]:
    """The best of several readings, those with equal words once; of equal scores the first."""
    if most == 1:
        return [max(several, key=lambda one: one.score)]
    by_words: dict[tuple[Any, ...], _Partial] = {}
    for one in sorted(several, key=lambda one: -one.score):
        by_words.setdefault(() if one.words is None else one.words.key, one)
    return list(by_words.values())[:most]


def _told(words: _Spoken | None, written: Sequence[int], spelt: Any) -> list[WrittenWord]:
    found: list[WrittenWord] = []
    while words is not None:
        known = words.word != UNKNOWN_WORD
        text = words.word if known else spelt(written[words.start : words.end])
        found.append(WrittenWord(text, words.start, words.end, known))
        words = words.before
    return found[::-1]
