"""Beam search in a language model: the likeliest continuations of a prompt to the end of its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from unrolled.errors import UserError
from unrolled.search import Hypothesis, WrittenWord, beam_search
from unrolled.tasks.generate.log_probs import token_log_probs
from unrolled.tasks.generate.predict import (
    GenerationOptions,
    TextWriter,
    direction_of,
    limits_of,
    network_of,
    prompt_tokens,
    with_words,
)
from unrolled.tasks.shared import options as shared
from unrolled.tasks.shared.answers import Written
from unrolled.tasks.shared.dictionary import Dictionary
from unrolled.tasks.shared.rescoring import rescored
from unrolled.text import Tokenizer

if TYPE_CHECKING:
    from unrolled.model import Model

HYPOTHESES_AT_ONCE = 320  # prompts, times hypotheses, in a batch of a search


@dataclass(frozen=True, eq=False, repr=False)
class Continuation(str, Written):
    """A text that a model wrote after a prompt: a str with its scores. `others` are the next best."""

    line: str  # the whole line: the answer with the prompt's part of it
    spelt: str  # the text of its tokens, where the words of a lexicon are written differently
    tokens: tuple[str, ...] = ()
    words: tuple[WrittenWord, ...] | None = None  # with a lexicon: the words, and the tokens of each
    others: tuple[Continuation, ...] = ()

    def __new__(cls, text: str, *scores: Any, **parts: Any) -> Self:
        return super().__new__(cls, text)


def searched(model: Model, prompts: Sequence[str], options: GenerationOptions) -> list[Continuation]:
    """The likeliest continuations of each prompt, to the end of its line or to max_tokens."""
    if options.rescore is not None:
        none: Any = dict.fromkeys(option.key for option in shared.RESCORING)
        wanted = options.searched(options.n_best, options.beam)
        found = searched(model, prompts, replace(options, n_best=wanted, **none))
        return rescored(found, options, options.n_best, read=lambda one: one.line)
    options = with_words(model, options)
    answers: list[Continuation | None] = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    room = max(1, model.together(HYPOTHESES_AT_ONCE) // options.search.size)
    for first in range(0, len(order), room):
        part = order[first : first + room]
        for number, answer in zip(part, _found(model, [prompts[i] for i in part], options), strict=True):
            answers[number] = answer
    return [answer for answer in answers if answer is not None]


def _found(model: Model, texts: Sequence[str], options: GenerationOptions) -> Iterator[Continuation]:
    """The answers to a batch of prompts."""
    tokenizer: Tokenizer = model.assets
    ends = tokenizer.ids("\n")
    if len(ends) != 1:
        raise UserError("A search ends at a new line, and this model has never seen one.", "Leave out --beam.")
    assert options.beam is not None
    prompts = [prompt_tokens(model, text) for text in texts]
    several = options.n_best > 1 and options.lexicon is not None and options.lexicon.respells
    with model.answering():
        found = beam_search(
            network_of(model),
            len(prompts),
            replace(
                limits_of(model, options),
                max_tokens=[len(prompt) - 1 + options.max_tokens for prompt in prompts],
                end=int(ends[0]),
                prefixes=[prompt[1:] for prompt in prompts],
            ),
            start=prompts[0][0],
            # outputs with several readings may read the same: of these more are needed
            beam=replace(options.search, n_best=options.beam if several else options.n_best),
            graph=options.graph,
        )
    given = token_log_probs(model, [np.array(prompt, dtype=np.int64) for prompt in prompts])
    for text, prompt, before, result in zip(texts, prompts, given, found, strict=True):
        answers = _Answers(model, options, text, prompt, before)
        yield answers.ranked([one for hypothesis in result.hypotheses for one in answers.of(hypothesis)])


@dataclass(frozen=True)
class _Answers:
    """The answers to one prompt: its text, its tokens after the start token, and their log-probability."""

    model: Model
    options: GenerationOptions
    text: str
    prompt: list[int]
    before: float

    def of(self, hypothesis: Hypothesis) -> Iterator[Continuation]:
        """A hypothesis as a text; in an n-best list once for each way to read it as words."""
        prompt = self.prompt[1:]
        tokens = hypothesis.tokens[len(prompt) :]
        shown = tuple(self._tokenizer.vocabulary.tokens[number] for number in tokens)
        scores = (hypothesis.score - self.before, hypothesis.log_prob - self.before, hypothesis.ended)
        dictionary: Dictionary | None = self.options.lexicon
        spelt = self._spelt(tokens)
        if dictionary is None:
            yield Continuation(spelt, *scores, self._line(spelt), spelt, shown)
            return
        most = self.options.n_best if hypothesis.ended and dictionary.respells else 1
        best, *others = dictionary.readings(hypothesis.tokens, most=most)
        for reading in (best, *others):
            words = tuple(
                word._replace(start=word.start - len(prompt), end=word.end - len(prompt))
                for word in reading.words
                if word.start >= len(prompt)
            )
            respelt = dictionary.respelt(tokens, words)
            text = spelt if respelt is None else _before_stop(respelt, self.options.stop)
            line = dictionary.respelt(hypothesis.tokens, reading.words) or self._line(text)
            score = scores[0] - (best.score - reading.score)
            yield Continuation(text, score, *scores[1:], line.rpartition("\n")[2], spelt, shown, words)

    def ranked(self, answers: Sequence[Continuation]) -> Continuation:
        """The best answer with the next best; of those that read the same the best stays."""
        by_text: dict[str, Continuation] = {}
        for one in sorted(answers, key=lambda one: (-one.ended, -one.score)):
            by_text.setdefault(one.text, one)
        best, *others = list(by_text.values())[: self.options.n_best]
        return replace(best, others=tuple(others))

    @property
    def _tokenizer(self) -> Tokenizer:
        tokenizer: Tokenizer = self.model.assets
        return tokenizer

    @property
    def _backward(self) -> bool:
        return direction_of(self.model) == "backward"

    def _spelt(self, tokens: Sequence[int]) -> str:
        writer = TextWriter(self._tokenizer, self.prompt, self.options.stop, self._backward)
        return "".join(writer.feed(number) for number in tokens) + writer.finish()

    def _line(self, text: str) -> str:
        """The answer with the prompt's part of its line."""
        if self._backward:
            return text + self.text.partition("\n")[0]
        return self.text.rpartition("\n")[2] + text


def _before_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]
