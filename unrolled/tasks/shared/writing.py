"""Writing text by beam search or sampling: the options, and the results."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from unrolled.errors import UserError
from unrolled.search import (
    Beam,
    BeamResult,
    Hypothesis,
    Length,
    LengthPenalty,
    Limits,
    Ranking,
    Sampling,
    Scorer,
    WordList,
    WrittenWord,
    beam_search,
    sample,
)
from unrolled.search.tokens.token_model import Graph
from unrolled.tasks.options import Option, check_values
from unrolled.tasks.shared import options as declared
from unrolled.tasks.shared.dictionary import LexicalOptions, with_dictionary
from unrolled.tasks.shared.rescoring import RescoringOptions, rescored
from unrolled.tasks.shared.side import Side

USUAL_BEAM = 5
One = TypeVar("One", bound=Any)


@dataclass(frozen=True)
class WritingOptions(LexicalOptions, RescoringOptions):
    """Values of the options `WRITING` of tasks that write text from a source.

    Without a temperature the best outputs are searched for; with one they are sampled. `SEARCHING` and `SAMPLING` list
    the options that only one of the two takes.
    """

    beam: int | None = declared.BEAM.default
    n_best: int = declared.N_BEST.default
    length_penalty: LengthPenalty | None = declared.LENGTH_PENALTY.default
    alpha: float | None = declared.ALPHA.default
    coverage: float | None = declared.COVERAGE.default
    search_stop: Literal["safe", "enough"] | None = declared.SEARCH_STOP.default
    margin: float | None = declared.MARGIN.default
    per_node: int | None = declared.PER_NODE.default
    no_repeat_ngram: int = declared.NO_REPEAT_NGRAM.default
    min_tokens: int = declared.MIN_TOKENS.default
    max_tokens: int | None = declared.MAX_TOKENS.default  # None: depends on the source
    prefix: str | None = declared.PREFIX.default
    unknown: str = declared.UNKNOWN.default  # auto: replace words where a text is read with attention
    words: str | tuple[str, ...] | None = declared.WORDS.default  # a file with one per line, or the words
    temperature: float | None = declared.TEMPERATURE.default
    top_k: int | None = declared.TOP_K.default
    top_p: float | None = declared.TOP_P.default
    min_p: float | None = declared.MIN_P.default
    seed: int | None = declared.SEED.default
    attention: bool = declared.ATTENTION.default
    precision: str = declared.PRECISION.default
    graph: Graph = declared.GRAPH.default
    scorers: tuple[Scorer, ...] = declared.SCORERS.default  # see docs/scorers.md

    def __post_init__(self) -> None:
        check_values(self, declared.WRITING)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise UserError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}.", "Use fewer.")
        self._check_texts()
        self.check(self.words, per_node=self.per_node)
        self.check_rescoring(self.beam if self.temperature is None else None)
        self._check_mode()

    def _check_texts(self) -> None:
        if not isinstance(self.prefix, str | None):
            raise UserError(f"prefix={self.prefix!r} is not a text.", "Use what every output begins with.")
        several = isinstance(self.words, list | tuple) and all(isinstance(word, str) for word in self.words)
        if not several and not isinstance(self.words, str | None):
            raise UserError(f"words={self.words!r} are not words.", "Use a list of texts, or the path of a file.")

    def _check_mode(self) -> None:
        """Reject options that do not match the mode (search or sampling)."""
        if self.temperature is None:
            for name in self._given(declared.SAMPLING):
                raise UserError(
                    f"{name} is for drawing, and without a temperature outputs are searched for.",
                    "Give a temperature too (--temperature 1), or leave it out.",
                )
            if self.alpha is not None and self.length_penalty not in (None, "gnmt"):
                raise UserError(
                    f"alpha is for length_penalty=gnmt, and length_penalty={self.length_penalty}.", "Leave one out."
                )
            _ = self.search
        else:
            for name in self._given(declared.SEARCHING):
                raise UserError(
                    f"{name} is for a search, and with a temperature outputs are drawn.", "Leave out one of the two."
                )
            _ = self.sampling

    def _given(self, options: Sequence[Option]) -> dict[str, Any]:
        values = {option.key: getattr(self, option.key) for option in options}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def search(self) -> Beam:
        ranking = Ranking(**{"alpha": 1.0, **self._given((declared.LENGTH_PENALTY, declared.ALPHA, declared.COVERAGE))})
        stop = "safe" if self.search_stop is None else self.search_stop
        return Beam(self.beam or USUAL_BEAM, self.n_best, ranking, stop, self.margin, self.per_node)

    @property
    def sampling(self) -> Sampling:
        return Sampling(**self._given((declared.TEMPERATURE, *declared.SAMPLING[:3])))

    @property
    def side_by_side(self) -> int:
        """Hypotheses of one input at the same time."""
        return (self.beam or USUAL_BEAM) if self.temperature is None else 1


def named(options: WritingOptions) -> str:
    """The search or sampling in words.

    >>> named(WritingOptions()), named(WritingOptions(beam=1)), named(WritingOptions(beam=8, length_penalty="none"))
    ('beam 5, gnmt 1', 'greedy', 'beam 8')
    >>> named(WritingOptions(temperature=0.5)), named(WritingOptions(beam=1, lexicon=["a"], unknown_penalty=-3))
    ('draws at temperature 0.5', 'greedy, open lexicon')
    """
    rescored = "" if options.rescore is None else ", rescored"
    return _search_name(options) + _words_name(options) + rescored


def _words_name(options: WritingOptions) -> str:
    if options.lexicon is None:
        return "" if options.words is None else ", words"
    lm = "" if options.lm is None else f" + lm {options.word_weights.lm_weight:g}"
    return (", lexicon" if options.unknown_penalty is None else ", open lexicon") + lm


def _search_name(options: WritingOptions) -> str:
    if options.temperature is not None:
        return f"draws at temperature {options.temperature:g}"
    search, ranking = options.search, options.search.ranking
    if search.size == 1:
        return "greedy"
    penalty = {"none": "", "average": ", average"}.get(ranking.length_penalty, f", gnmt {ranking.alpha:g}")
    coverage = f", coverage {ranking.coverage:g}" if ranking.coverage else ""
    return f"beam {search.size}{penalty}{coverage}"


def written(
    network: Any,
    memory: Any,  # an `EncoderOutput`
    target: Side,
    options: WritingOptions,
    *,
    most: Sequence[int],
    places: Sequence[int],
    forbid_unknown: bool,
    attention: bool,
    meanwhile: Callable[[], object] | None = None,
) -> list[BeamResult]:
    """The outputs for each row of a memory, at most `most` tokens; `places` are the numbers of the rows among all.

    `meanwhile` may be called while a GPU searches.
    """
    limits = _limits(target, options, most, forbid_unknown)
    search = partial(
        beam_search,
        network.showing_attention() if attention or options.coverage else network,
        len(places),
        start=target.begin,
        memory=memory,
        memory_mask=memory.mask,
        attention=attention,
        graph=options.graph,
        meanwhile=meanwhile,
    )
    if options.temperature is None:
        # outputs with several readings may read the same: of these more are needed
        wanted = options.search.size if ranks_readings(options) else options.n_best
        return search(limits, beam=replace(options.search, n_best=wanted))
    draws = []
    for number in range(options.n_best):
        drawn = _drawn(network, memory, target, options, limits, places, number)
        # read once more: for log P with the prefix counted, and for where each token looked
        alone = Beam(1, ranking=Ranking("none"))
        draws.append(search(Limits([len(tokens) for tokens in drawn], target.end, prefixes=drawn), beam=alone))
    return [
        BeamResult(sorted((one.best for one in row), key=lambda best: -best.log_prob))
        for row in zip(*draws, strict=True)
    ]


def _limits(target: Side, options: WritingOptions, most: Sequence[int], forbid_unknown: bool) -> Limits:
    """The limits of a search for each of some rows."""
    prefix = prefix_ids(target, options.prefix)
    if options.max_tokens is None:
        most = [max(one, len(prefix) + 1, options.min_tokens + 1) for one in most]
    elif len(prefix) >= options.max_tokens:
        raise UserError(
            f"The prefix has {len(prefix)} tokens, and max_tokens={options.max_tokens} leaves none to write.",
            f"Use {len(prefix) + 1} or more.",
        )
    forbidden = [target.begin]
    if target.tokenizer.vocabulary.unk is not None and forbid_unknown:
        forbidden.append(target.tokenizer.vocabulary.unk)
    dictionary = with_dictionary(options, target.tokenizer, form=target.form, end=target.end).lexicon
    words: tuple[Scorer, ...] = () if dictionary is None else (dictionary,)
    if options.words is not None:
        words = (WordList.of(target.tokenizer, options.words, [target.end]),)
    return Limits(
        most,
        target.end,
        options.min_tokens,
        forbidden,
        [prefix] * len(most),
        options.no_repeat_ngram,
        (*words, *options.scorers),
    )


def _drawn(
    network: Any,
    memory: Any,  # an `EncoderOutput`
    target: Side,
    options: WritingOptions,
    limits: Limits,
    places: Sequence[int],
    number: int,
) -> list[list[int]]:
    """The sampled tokens of each row, with the prefix, and with the end token if it was sampled."""
    seeds = None if options.seed is None else [options.seed + options.n_best * place + number for place in places]
    prefix = prefix_ids(target, options.prefix)
    after = replace(
        limits,
        max_tokens=[most - len(prefix) for most in limits.lengths(len(places))],
        min_tokens=max(0, limits.min_tokens - len(prefix)),
        prefixes=None,
    )
    prompts = [[target.begin, *prefix]] * len(places)
    drawn = sample(network, prompts, after, memory=memory, sampling=options.sampling, seeds=seeds, graph=options.graph)
    return [prefix + one.tokens + ([target.end] if one.stopped_by == "end" else []) for one in drawn]


def for_rescoring(options: WritingOptions) -> WritingOptions:
    """The options of the search whose outputs are rescored."""
    wanted = options.searched(options.n_best, options.beam)
    beam = options.beam if options.temperature is not None else options.beam or max(wanted, USUAL_BEAM)
    none: Any = dict.fromkeys(option.key for option in declared.RESCORING)
    return replace(options, n_best=wanted, beam=beam, **none)


def rescored_texts(answers: Sequence[Any], tokens: str, options: WritingOptions) -> list[Any]:
    """Answers in the order of their new scores; `tokens` names their field with the tokens of the output.

    The language model's score is divided by length as that of the search is.
    """
    divisors = [
        [length_divisor(options, len(getattr(one, tokens)) + one.ended) for one in (answer, *answer.others)]
        for answer in answers
    ]
    return rescored(answers, options, options.n_best, divisors)


class Spelt(NamedTuple):
    """A hypothesis, and its words where there is a lexicon."""

    hypothesis: Hypothesis
    words: tuple[WrittenWord, ...] | None


def ranks_readings(options: WritingOptions) -> bool:
    """True if an n-best list tells words apart that are spelt alike."""
    return (
        options.temperature is None and options.n_best > 1 and options.lexicon is not None and options.lexicon.respells
    )


def readings_of(found: BeamResult, options: WritingOptions) -> list[Spelt]:
    """The hypotheses of a search with their words, the best first.

    In an n-best list one with several readings, such as words that sound alike, comes once for each reading.
    """
    dictionary = options.lexicon
    if dictionary is None:
        return [Spelt(one, None) for one in found.hypotheses]
    if not ranks_readings(options):
        return [Spelt(one, tuple(dictionary.words(one.tokens))) for one in found.hypotheses]
    spelt = []
    for one in found.hypotheses:
        (best, words), *others = dictionary.readings(one.tokens, most=options.n_best if one.ended else 1)
        divisor = length_divisor(options, len(one.tokens) + one.ended)
        spelt.append(Spelt(one, tuple(words)))
        spelt += [Spelt(replace(one, score=one.score - (best - s) / divisor), tuple(words)) for s, words in others]
    return sorted(spelt, key=lambda one: (-one.hypothesis.ended, -one.hypothesis.score))


def best_answers(answers: Sequence[One], options: WritingOptions) -> One:
    """The first answer with the others of its n-best list; of those that read the same as words the first stays."""
    if ranks_readings(options):
        by_text: dict[str, One] = {}
        for one in answers:
            by_text.setdefault(one.text, one)
        answers = list(by_text.values())[: options.n_best]
    best, *rest = answers
    return replace(best, others=tuple(rest)) if rest else best


def length_divisor(options: WritingOptions, tokens: int) -> float:
    """The divisor of the score of an output with so many tokens, its end counted."""
    ranking = options.search.ranking
    if options.temperature is not None or ranking.length_penalty == "none":
        return 1.0
    return float(Length(ranking.length_penalty, ranking.alpha).divisor(np.array(max(1, tokens))))


def text_of(target: Side, spelt: Spelt, options: WritingOptions, instead: Sequence[str | None] = ()) -> str:
    """The text of an output; `instead` has other texts for some tokens."""
    tokens, words = spelt.hypothesis.tokens, spelt.words
    respelt = None if words is None else options.lexicon.respelt(tokens, words)
    if respelt is None:
        return target.text(tokens, instead)
    return unicodedata.normalize("NFC", " ".join(respelt.split())) if target.form else " ".join(respelt.split())


def texts_of(
    target: Side, several: Sequence[Spelt], options: WritingOptions, instead: Sequence[Sequence[str | None]]
) -> list[str]:
    """`text_of` each of several outputs."""
    if options.lexicon is None and not any(instead):
        return target.texts([one.hypothesis.tokens for one in several])
    return [text_of(target, one, options, others) for one, others in zip(several, instead, strict=True)]


def prefix_ids(target: Side, text: str | None) -> list[int]:
    """The tokens of a prefix; the model must know all of them."""
    ids: list[int] = target.ids(text).tolist() if text else []
    special = [place for place, number in enumerate(ids) if number < len(target.tokenizer.vocabulary.specials)]
    if text and special:
        tidy, places = target.places(text)
        start, end = places[special[0]]
        raise UserError(
            f"The prefix has {tidy[start:end]!r}, which the model does not know.", "Use what was in its training data."
        )
    return ids
