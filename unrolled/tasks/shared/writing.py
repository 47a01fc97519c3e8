"""How tasks write text: the options of a search or of sampling, and what they find."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import torch

from unrolled.errors import UserError, unknown_name
from unrolled.models.encoder import EncoderOutput
from unrolled.search import Beam, BeamResult, LengthPenalty, Ranking, Sampling, WordList, beam_search, sample
from unrolled.search.tokens.token_model import is_whole
from unrolled.tasks.shared.side import Side

UNKNOWNS = ("auto", "keep", "forbid", "replace")
PRECISIONS = ("fp32", "bf16")
USUAL_BEAM = 5
FOR_SEARCHING = ("beam", "length_penalty", "alpha", "coverage", "search_stop")
FOR_DRAWING = ("top_k", "top_p", "min_p", "seed")
LEAST = {"beam": 1, "n_best": 1, "no_repeat_ngram": 0, "min_tokens": 0, "max_tokens": 1, "seed": 0}


@dataclass(frozen=True)
class RunOptions:
    """How to write: the options of `unrolled run` and of `predict`.

    Without a temperature the best outputs are searched for, with one they are drawn. `FOR_SEARCHING` and `FOR_DRAWING`
    name the options that only one of the two has; the others hold for both.
    """

    beam: int | None = None  # 1: greedy; none: 5
    n_best: int = 1  # the best of a search, or so many draws
    length_penalty: LengthPenalty | None = None  # none: gnmt
    alpha: float | None = None  # none: 1
    coverage: float | None = None  # none: 0
    search_stop: Literal["safe", "enough"] | None = None  # none: safe
    no_repeat_ngram: int = 0
    min_tokens: int = 0
    max_tokens: int | None = None  # None: by what was read
    prefix: str | None = None  # what every output begins with
    unknown: str = "auto"  # keep, forbid or replace <unk>; auto: words are replaced where a text is read with attention
    words: str | tuple[str, ...] | None = None  # write these words only: a file with one in each line, or the words
    temperature: float | None = None  # draw at random instead of searching
    top_k: int | None = None  # none: all tokens
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    attention: bool = False  # keep where each token looked
    precision: str = "fp32"  # bf16: products in bfloat16, twice as fast on processors that have them

    def __post_init__(self) -> None:
        for name, choices in (("unknown", UNKNOWNS), ("precision", PRECISIONS)):
            if getattr(self, name) not in choices:
                raise unknown_name(name, getattr(self, name), choices)
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is None and getattr(RunOptions, name) is None:
                continue
            if not is_whole(value) or value < least:
                raise UserError(f"{name}={value!r} is not a whole number from {least} up.", f"Use {max(1, least)}.")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise UserError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}.", "Use fewer.")
        self._check_texts()
        self._check_way()

    def _check_texts(self) -> None:
        if not isinstance(self.prefix, str | None):
            raise UserError(f"prefix={self.prefix!r} is no text.", "Use what every output begins with.")
        several = isinstance(self.words, list | tuple) and all(isinstance(word, str) for word in self.words)
        if not several and not isinstance(self.words, str | None):
            raise UserError(f"words={self.words!r} are no words.", "Use a list of texts, or the path of a file.")

    def _check_way(self) -> None:
        """What is given is for what is done, a search or draws; and both of them take it."""
        if self.temperature is None:
            for name in self._given(FOR_DRAWING):
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
            for name in self._given(FOR_SEARCHING):
                raise UserError(
                    f"{name} is for a search, and with a temperature outputs are drawn.", "Leave out one of the two."
                )
            _ = self.sampling

    def _given(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """A block in which products are as `precision` says."""
        return nullcontext() if self.precision == "fp32" else torch.autocast(device.type, dtype=torch.bfloat16)

    @property
    def search(self) -> Beam:
        ranking = Ranking(**{"alpha": 1.0, **self._given(("length_penalty", "alpha", "coverage"))})
        stop = "safe" if self.search_stop is None else self.search_stop
        return Beam(self.beam or USUAL_BEAM, self.n_best, ranking, stop, self.min_tokens, self.no_repeat_ngram)

    @property
    def sampling(self) -> Sampling:
        return Sampling(**self._given(("temperature", "top_k", "top_p", "min_p")))

    @property
    def side_by_side(self) -> int:
        """Outputs that are written for one input at the same time."""
        return (self.beam or USUAL_BEAM) if self.temperature is None else 1


OPTIONS = [field.name for field in fields(RunOptions)]


def named(options: RunOptions) -> str:
    """How outputs are found, in words.

    >>> named(RunOptions()), named(RunOptions(beam=1)), named(RunOptions(beam=8, length_penalty="none"))
    ('beam 5, gnmt 1', 'greedy', 'beam 8')
    >>> named(RunOptions(temperature=0.5))
    'draws at temperature 0.5'
    """
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
    memory: EncoderOutput,
    target: Side,
    options: RunOptions,
    *,
    most: Sequence[int],
    places: Sequence[int],
    forbid_unknown: bool,
    attention: bool,
) -> list[BeamResult]:
    """What was found for each row of a memory, `most` tokens at the most; `places` are the rows' numbers among all."""
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
    constraint = None if options.words is None else WordList.of(target.tokenizer, options.words, [target.end])
    limits: dict[str, Any] = {"forbidden": forbidden, "constraint": constraint}
    search = partial(
        beam_search,
        network.showing_attention() if attention or options.coverage else network,
        len(places),
        start=target.begin,
        end=target.end,
        memory=memory,
        memory_mask=memory.mask,
        attention=attention,
    )
    if options.temperature is None:
        return search(max_tokens=most, beam=options.search, prefixes=[prefix] * len(places), **limits)
    draws = []
    for number in range(options.n_best):
        drawn = _drawn(network, memory, target, options, prefix, most, places, number, **limits)
        # read once more: for log P with the prefix counted, and for where each token looked
        alone = Beam(1, ranking=Ranking("none"))
        draws.append(search(max_tokens=[len(tokens) for tokens in drawn], beam=alone, prefixes=drawn))
    return [
        BeamResult(sorted((one.best for one in row), key=lambda best: -best.log_prob))
        for row in zip(*draws, strict=True)
    ]


def _drawn(
    network: Any,
    memory: EncoderOutput,
    target: Side,
    options: RunOptions,
    prefix: list[int],
    most: Sequence[int],
    places: Sequence[int],
    number: int,
    **limits: Any,
) -> list[list[int]]:
    """For each row the tokens of its draw of this number, with the prefix, and with the end where it came."""
    seeds = None if options.seed is None else [options.seed + options.n_best * place + number for place in places]
    drawn = sample(
        network,
        [[target.begin, *prefix]] * len(places),
        max_tokens=max(most) - len(prefix),
        memory=memory,
        sampling=options.sampling,
        end_tokens=[target.end],
        stop=lambda row, tokens: len(prefix) + len(tokens) >= most[row],
        seeds=seeds,
        min_tokens=max(0, options.min_tokens - len(prefix)),
        no_repeat_ngram=options.no_repeat_ngram,
        **limits,
    )
    return [prefix + one.tokens + ([target.end] if one.stopped_by == "end" else []) for one in drawn]


def prefix_ids(target: Side, text: str | None) -> list[int]:
    """The tokens of what outputs begin with, all of which the model must know."""
    ids: list[int] = target.ids(text).tolist() if text else []
    special = [place for place, number in enumerate(ids) if number < len(target.tokenizer.vocabulary.specials)]
    if text and special:
        tidy, places = target.places(text)
        start, end = places[special[0]]
        raise UserError(
            f"The prefix has {tidy[start:end]!r}, which the model does not know.", "Use what was in its training data."
        )
    return ids
