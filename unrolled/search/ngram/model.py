"""NGram: the n-gram model as a user has it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, unknown_name
from unrolled.kernels.engine_choice import not_built
from unrolled.kernels.native_module import NATIVE
from unrolled.search.ngram import arpa
from unrolled.search.ngram.mixing import check_weights, fit_weights, mix_plain
from unrolled.search.ngram.native import NativeNGram
from unrolled.search.ngram.plain import END, UNKNOWN, Entry, PlainNGram, words_of
from unrolled.search.ngram.shards import SUFFIX, Counts, is_counts, written_counts
from unrolled.search.ngram.texts import Text, name_of, read_lines
from unrolled.search.ngram.training import asked, check_means, check_prune, counted, train_native, train_plain

State = Any  # hashable; equal states have equal futures
Backend = Literal["auto", "native", "reference"]
_LN10 = math.log(10)


class WordScore(NamedTuple):
    """The score of one word of a sentence."""

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
        native = picked(backend) == "native"
        with contextlib.closing(arpa.pieces(path, "ARPA file")) as pieces:  # the file too, where a line is bad
            if native:
                reader = NATIVE.ArpaReader(arpa.most_ngrams(path))
                return cls(NativeNGram(arpa.read_native(pieces, str(path), reader)))
            return cls(arpa.read_plain(arpa.lines_of(pieces), str(path)))

    @classmethod
    def train(
        cls,
        text: Text | Counts,
        *,
        order: int | None = None,
        prune: Sequence[int] = (0,),
        memory: int | str = "1G",
        scratch: str | Path | None = None,
        workers: int = 1,
        backend: Backend = "auto",
    ) -> NGram:
        """Modified Kneser–Ney estimates from a text (see estimate.py for the equations).

        `text` is a file, with a sentence on each line, or sentences. n-grams that occur `prune[k - 1]` times or less
        are left out, of each order k; the last number goes for all higher orders. Counting holds about `memory` bytes
        and the vocabulary; what is more goes to files in the folder `scratch`, which leave nothing behind. `workers`
        are threads. The model is held in memory: `train_to` writes a larger one.

        A path in .counts, or `Counts` of several, has the counts of a text: `count_to` writes it. The default order is
        theirs, or 3.

        >>> model = NGram.train(["the cat sat", "the cat ran", "a dog sat"], order=2)
        >>> model.score("the cat sat") > model.score("the dog sat") > model.score("sat dog the")
        True
        """
        text, order = asked(text, order)
        prune, means = check_prune(prune, order), check_means(memory, scratch, workers)
        if picked(backend) == "native":
            return cls(NativeNGram(train_native(text, order, prune, means).model()))
        return cls(train_plain(text, order, prune, means))

    @staticmethod
    def train_to(
        path: str | Path,
        text: Text | Counts,
        *,
        order: int | None = None,
        prune: Sequence[int] = (0,),
        memory: int | str = "1G",
        scratch: str | Path | None = None,
        workers: int = 1,
        backend: Backend = "auto",
    ) -> list[int]:
        """The same to a new ARPA file, without ever holding the model; how many n-grams of each order it got."""
        text, order = asked(text, order)
        prune, means = check_prune(prune, order), check_means(memory, scratch, workers)

        counts: list[int] = []

        def pieces() -> Iterator[bytes]:  # runs when it is certain that the file can be written
            if picked(backend) == "native":
                trainer = train_native(text, order, prune, means)
                counts.extend(trainer.counts)
                yield from arpa.write_native(trainer)
            else:
                model = train_plain(text, order, prune, means)
                counts.extend(model.count(length) for length in range(1, order + 1))
                yield from arpa.write_plain(model)

        arpa.save(pieces(), Path(path))
        return counts

    @staticmethod
    def count_to(
        path: str | Path,
        text: Text | Counts,
        *,
        order: int | None = None,
        memory: int | str = "1G",
        scratch: str | Path | None = None,
        workers: int = 1,
    ) -> dict[str, int]:
        """Counts a part of a text to a new file, in .counts; `sentences` and `words` of it.

        `train(Counts(first, second, …))` gives the model of all parts, in their order, to the last bit.
        """
        text, order = asked(text, order)
        means = check_means(memory, scratch, workers)
        if not is_counts(path):
            raise UserError(f"{path} is a file of counts.", f"Give it a name in {SUFFIX}.")
        picked("native")
        totals: dict[str, int] = {}

        def pieces() -> Iterator[bytes]:
            trainer = counted(text, order, [0] * order, means)
            yield from written_counts(trainer, order)
            totals.update(sentences=trainer.sentences, words=trainer.tokens)

        arpa.save(pieces(), Path(path))
        return totals

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
        """The number of n-grams of each order."""
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

    def log_probs(self, state: State, words: Sequence[str]) -> NDArray[np.float64]:
        """log p(word | state) of each of several words."""
        return np.array(self._engine.score_each(state, words), dtype=np.float64) * _LN10

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

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        """log p of each of several sentences."""
        return [self.score(text) for text in texts]

    def evaluate(self, text: Text) -> dict[str, float]:
        """Perplexity of a text, a file or sentences, with sentence ends counted as words.

        `perplexity` counts everything; `perplexity_known` leaves unknown words out of sum and count. Models can be
        compared by the first only if their vocabularies are the same. Blank sentences are left out.
        """
        total, known, words, unknown, sentences = 0.0, 0.0, 0, 0, 0
        for lines in read_lines(text):
            scores = self._engine.score_text(lines)
            total += float(scores.log10.sum())
            known += float(scores.log10[scores.known].sum())
            words += len(scores.log10)
            unknown += int((~scores.known).sum())
            sentences += int(scores.ends.sum())
        if sentences == 0:
            raise UserError(f"There are no words in {name_of(text)}.", "Give a text with a sentence on each line.")
        return {
            "perplexity": _perplexity(total, words),
            "perplexity_known": _perplexity(known, words - unknown),
            "log_prob": total * _LN10,
            "sentences": sentences,
            "words": words - sentences,
            "unknown": unknown,
        }

    def perplexity(self, text: Text) -> float:
        """exp of the mean −log p of words and sentence ends, unknown words included."""
        return self.evaluate(text)["perplexity"]

    @classmethod
    def mix(
        cls, models: Sequence[NGram], *, weights: Sequence[float] | None = None, text: Text | None = None
    ) -> tuple[NGram, list[float]]:
        """One model of several, and their weights: given, or those that make a held-out text likeliest.

        n-grams that any of them has get the weighted mean of all models' probabilities; back-offs are such that every
        context sums to one. A word that a model does not have is impossible for it.
        """
        if len(models) < 2:
            raise UserError(f"There are {len(models)} models to mix.", "Give two or more.")
        if weights is not None and text is None:
            shares = check_weights(weights, len(models))
        elif text is not None and weights is None:
            shares = fitted(models, text)
        else:
            raise UserError("Mixing needs either weights or a text to fit them to.")
        engines = [model._engine for model in models]
        if all(isinstance(engine, NativeNGram) for engine in engines):
            return cls(NativeNGram(NATIVE.mix_ngrams([engine.model for engine in engines], shares))), shares
        return cls(mix_plain([model._plain() for model in models], shares)), shares

    def _plain(self) -> PlainNGram:
        if isinstance(self._engine, PlainNGram):
            return self._engine
        plain = PlainNGram(self.order)
        for order in range(1, self.order + 1):
            for entry in self.ngrams(order):
                plain.add(*entry)
        return plain


def fitted(models: Sequence[NGram], text: Text) -> list[float]:
    """The weights of a mixture, fitted to a text."""
    columns: list[list[NDArray[np.float64]]] = [[] for _ in models]
    for lines in read_lines(text):
        for column, model in zip(columns, models, strict=True):
            scores = model._engine.score_text(lines)
            column.append(np.where(scores.known, 10**scores.log10, 0.0))
    if not any(map(len, columns[0])):
        raise UserError(f"There are no words in {name_of(text)}.", "Give a text with a sentence on each line.")
    return fit_weights([np.concatenate(column) for column in columns])


def _perplexity(log10: float, count: int) -> float:
    return float(10 ** min(300.0, -log10 / count)) if count else math.nan


def picked(backend: str) -> str:
    """The engine for n-gram models: native where it was built, else reference."""
    if backend not in ("auto", "native", "reference"):
        raise unknown_name("engine", backend, ["auto", "native", "reference"])
    if backend == "native" and NATIVE is None:
        raise not_built(backend)
    return "reference" if NATIVE is None else "native" if backend == "auto" else backend
