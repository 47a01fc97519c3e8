"""NGram: the n-gram model as a user has it (S29)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from unrolled.errors import UserError, unknown_name
from unrolled.kernels import check_engine
from unrolled.search.ngram import arpa
from unrolled.search.ngram.native import NATIVE, NativeNGram
from unrolled.search.ngram.plain import END, UNKNOWN, Entry, PlainNGram, words_of

State = Any  # hashable; equal states have equal futures
Backend = Literal["auto", "native", "reference"]
_LN10 = math.log(10)


class WordScore(NamedTuple):
    """What a model says of one word of a sentence."""

    word: str
    log_prob: float  # natural
    length: int  # of the n-gram that was found: 1 where the model knew the word, but not after these
    known: bool


class NGram:
    """An n-gram language model with back-off.

    Scores are natural logarithms. Words are texts; one that the model does not have is `<unk>`. A sentence is scored
    from `<s>` to `</s>`, neither of which is written in it.

    As a scorer of a search it has `initial`, `advance` and `final`. States are small, can be hashed, and are equal
    where nothing that follows could tell them apart.

    >>> from pathlib import Path
    >>> _ = Path("tiny.arpa").write_text(r'''
    ... \\data\\
    ... ngram 1=4
    ... ngram 2=1
    ... \\1-grams:
    ... -99 <s> -0.3
    ... -0.5 </s>
    ... -0.4 dog -0.2
    ... -0.9 bites
    ... \\2-grams:
    ... -0.1 dog bites
    ... \\end\\
    ... ''')
    >>> model = NGram.load("tiny.arpa")
    >>> for score in model.scores("dog bites"):
    ...     print(f"{score.word:6} {score.log_prob / math.log(10):.1f} {score.length}")
    dog    -0.7 1
    bites  -0.1 2
    </s>   -0.5 1
    >>> f"{model.score('dog bites'):.4f}"
    '-2.9934'
    >>> Path("tiny.arpa").unlink()
    """

    def __init__(self, engine: PlainNGram | NativeNGram) -> None:
        self._engine: Any = engine

    @classmethod
    def load(cls, path: str | Path, *, backend: Backend = "auto") -> NGram:
        """Reads an ARPA file, unpacking one that ends in .gz."""
        path = Path(path)
        pieces = arpa.pieces(path, "ARPA file")
        if picked(backend) == "native":
            return cls(NativeNGram(arpa.read_native(pieces, str(path), NATIVE.ArpaReader())))
        return cls(arpa.read_plain(arpa.lines_of(pieces), str(path)))

    def save(self, path: str | Path) -> None:
        """Writes a new ARPA file, packed where its name ends in .gz."""
        engine = self._engine
        native = isinstance(engine, NativeNGram)
        pieces = arpa.write_native(NATIVE.ArpaWriter(engine.model)) if native else arpa.write_plain(engine)
        arpa.save(pieces, Path(path))

    @property
    def order(self) -> int:
        order: int = self._engine.order
        return order

    @property
    def counts(self) -> list[int]:
        """How many n-grams of each order it has."""
        return [self._engine.count(order) for order in range(1, self.order + 1)]

    @property
    def backend(self) -> str:
        """The engine that it runs on: native or reference."""
        return "native" if isinstance(self._engine, NativeNGram) else "reference"

    @property
    def native(self) -> Any:
        """The C++ model, for searches in C++; None on the reference engine."""
        return self._engine.model if isinstance(self._engine, NativeNGram) else None

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {order}-grams" for order, count in enumerate(self.counts, 1))
        return f"NGram({counts}; {self.backend})"

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word != UNKNOWN and bool(self._engine.find(word) != self._engine.find(UNKNOWN))

    def ngrams(self, order: int) -> Iterator[Entry]:
        """The n-grams of one order with their log10 probabilities and back-offs."""
        if not 1 <= order <= self.order:
            raise UserError(f"There are no {order}-grams.", f"The model has orders 1 to {self.order}.")
        yield from self._engine.ngrams(order)

    def initial(self) -> State:
        """The state at the beginning of a sentence."""
        return self._engine.start()

    def advance(self, state: State, word: str) -> tuple[float, State]:
        """log p(word | state), and the state after it."""
        score, _, state = self._engine.score(state, word)
        return score * _LN10, state

    def final(self, state: State) -> float:
        """log p of the sentence's end."""
        return self.advance(state, END)[0]

    def scores(self, sentence: str | Iterable[str], *, end: bool = True) -> list[WordScore]:
        """Every word's score, and that of the sentence's end unless `end` is False.

        A text is cut at blanks; anything else is words already.
        """
        words = words_of(sentence) if isinstance(sentence, str) else list(sentence)
        state, scores = self.initial(), []
        for word in [*words, END] if end else words:
            score, length, state = self._engine.score(state, word)
            scores.append(WordScore(word, score * _LN10, length, word in self))
        return scores

    def score(self, sentence: str | Iterable[str], *, end: bool = True) -> float:
        """log p of a sentence."""
        return math.fsum(score.log_prob for score in self.scores(sentence, end=end))

    def evaluate(self, sentences: Iterable[str | Iterable[str]]) -> dict[str, float]:
        """Perplexity of a text, sentence by sentence, ends counted as words.

        `perplexity` counts everything; `perplexity_known` leaves unknown words out of sum and count, and is the one
        that can be compared between models of one vocabulary. Blank sentences are left out.
        """
        total, known, words, unknown, count = 0.0, 0.0, 0, 0, 0
        for sentence in sentences:
            given = words_of(sentence) if isinstance(sentence, str) else list(sentence)
            if not given:
                continue
            scores = self.scores(given)
            total += math.fsum(score.log_prob for score in scores)
            known += math.fsum(score.log_prob for score in scores if score.known)
            unknown += sum(not score.known for score in scores)
            words += len(scores)
            count += 1
        return summed_up(total, known, words, unknown, count)

    def perplexity(self, sentences: Iterable[str | Iterable[str]]) -> float:
        """exp of the mean −log p of words and sentence ends, unknown words included."""
        return self.evaluate(sentences)["perplexity"]


def summed_up(total: float, known: float, words: int, unknown: int, sentences: int) -> dict[str, float]:
    """The scores of a text from its sums: natural logs of all words and of the known ones, sentence ends included."""
    if sentences == 0:
        raise UserError("There are no words to score.", "Give a text with at least one sentence.")
    return {
        "perplexity": _perplexity(total, words),
        "perplexity_known": _perplexity(known, words - unknown),
        "log_prob": total,
        "sentences": sentences,
        "words": words - sentences,
        "unknown": unknown,
    }


def _perplexity(log_prob: float, count: int) -> float:
    return math.exp(min(700.0, -log_prob / count))


def picked(backend: str) -> str:
    """The engine for n-gram models: native where it was built, else reference."""
    if backend not in ("auto", "native", "reference"):
        raise unknown_name("engine", backend, ["auto", "native", "reference"])
    if check_engine(backend) == "auto":
        return "native" if NATIVE is not None else "reference"
    return backend
