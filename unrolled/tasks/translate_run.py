"""From sources to translations: options, search, and what becomes of unknown words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import Batch, Buckets
from unrolled.errors import UserError, unknown_name
from unrolled.model import Model
from unrolled.search import (
    Beam,
    Found,
    Hypothesis,
    LengthPenalty,
    Ranking,
    Sampling,
    beam_search,
    sample,
)
from unrolled.search.constraints import WordList
from unrolled.tasks.translate_batch import source_batch
from unrolled.tasks.translate_text import Side, TranslateAssets

TOKENS_AT_ONCE = 6000  # source tokens, times hypotheses, in a batch of a search
UNKNOWNS = ("auto", "keep", "forbid", "replace")


@dataclass(frozen=True)
class RunOptions:
    """How to translate: the options of `unrolled run` and of `predict`."""

    beam: int = 5  # 1: greedy
    n_best: int = 1
    length_penalty: LengthPenalty = "gnmt"
    alpha: float = 1.0
    coverage: float = 0.0
    search_stop: Literal["safe", "enough"] = "safe"
    no_repeat_ngram: int = 0
    min_tokens: int = 0
    max_tokens: int | None = None  # None: by the length of the source
    prefix: str | None = None  # what every translation begins with
    unknown: str = "auto"  # keep, forbid or replace <unk>; auto: words are replaced where there is attention
    words: str | tuple[str, ...] | None = None  # write these words only: a file with one in each line, or the words
    temperature: float | None = None  # draw at random instead of searching
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    attention: bool = False  # keep where each token looked

    def __post_init__(self) -> None:
        if self.unknown not in UNKNOWNS:
            raise unknown_name("unknown", self.unknown, UNKNOWNS)

    @property
    def search(self) -> Beam:
        ranking = Ranking(self.length_penalty, self.alpha, self.coverage)
        return Beam(self.beam, self.n_best, ranking, self.search_stop, self.min_tokens, self.no_repeat_ngram)


OPTIONS = [field.name for field in fields(RunOptions)]


@dataclass(frozen=True)
class Translation:
    """An output for one source, with what else is known of it; `others` are the next best."""

    text: str
    score: float  # what it was ranked by
    log_prob: float
    ended: bool  # False: it was cut at the longest that is allowed
    source_tokens: list[str]
    target_tokens: list[str]
    attention: NDArray[np.float32] | None = None  # (target tokens, source tokens)
    others: tuple[Translation, ...] = ()

    def __str__(self) -> str:
        return self.text

    @property
    def alignment(self) -> list[tuple[int, int]] | None:
        """(source, target) places: where each target token looked most."""
        if self.attention is None or not len(self.source_tokens):
            return None
        return [(int(row.argmax()), place) for place, row in enumerate(self.attention)]


@torch.no_grad()
def translate(model: Model, texts: Sequence[str], options: RunOptions) -> list[Translation]:
    """A translation of each text, in their order; an empty text's is empty."""
    assets: TranslateAssets = model.assets
    network: Any = model.network.eval()
    attends: bool = network.attends
    unknown = options.unknown
    if unknown == "auto":
        unknown = "replace" if attends and assets.target.tokenizer.level == "word" else "forbid"
    wanted = attends and (options.attention or unknown == "replace")
    if unknown == "replace" and not attends:
        raise UserError("Unknown words are replaced by attention, and this model has none.", "Use unknown=forbid.")
    ids = [assets.source.ids(text) for text in texts]
    answers: list[Translation | None] = [None if len(one) else _nothing() for one in ids]
    rows = [i for i, answer in enumerate(answers) if answer is None]

    def collate(part: list[int]) -> Batch:
        return source_batch(assets, [ids[i] for i in part])

    room = max(1, TOKENS_AT_ONCE // options.beam)
    batches = Buckets(rows, [len(ids[i]) + 1 for i in rows], collate, batch_size=1, batch_tokens=room)
    for index in range(len(batches)):
        places = [rows[place] for place in batches.rows(index)]
        found = _search(model, network, batches[index].to(model.device), options, unknown, wanted, places)
        for i, one in zip(places, found, strict=True):
            answers[i] = answer_of(assets, texts[i], ids[i], one, unknown == "replace", options.attention)
    return [answer for answer in answers if answer is not None]


def _search(
    model: Model,
    network: Any,
    batch: Batch,
    options: RunOptions,
    unknown: str,
    wanted: bool,
    places: Sequence[int],
) -> list[Found]:
    """What was found for each source of a batch; `places` are their numbers among all sources."""
    assets: TranslateAssets = model.assets
    assert batch.lengths is not None
    memory = network.encode(batch)
    lengths = batch.lengths.tolist()
    most = [options.max_tokens or assets.most_tokens(length) for length in lengths]
    target = assets.target
    forbidden = [target.begin]
    if target.tokenizer.vocabulary.unk is not None and unknown == "forbid":
        forbidden.append(target.tokenizer.vocabulary.unk)
    if options.temperature is not None:
        return _samples(network, memory, places, most, forbidden, options, target)
    prefix = target.ids(options.prefix).tolist() if options.prefix else []
    return beam_search(
        network.showing_attention() if wanted or options.coverage else network,
        len(lengths),
        start=target.begin,
        end=target.end,
        max_tokens=most,
        beam=options.search,
        memory=memory,
        memory_mask=memory.mask,
        prefixes=[prefix] * len(lengths),
        forbidden=forbidden,
        constraint=None if options.words is None else WordList.of(target.tokenizer, options.words, [target.end]),
        attention=wanted,
    )


def _samples(
    network: Any,
    memory: Any,
    places: Sequence[int],
    most: list[int],
    forbidden: list[int],
    options: RunOptions,
    target: Side,
) -> list[Found]:
    """Translations drawn from the model's distribution; ranked by nothing, their score is log P."""
    assert options.temperature is not None
    drawn = sample(
        network,
        [[target.begin]] * len(places),
        max_tokens=max(most),
        memory=memory,
        sampling=Sampling(options.temperature, options.top_k, options.top_p, options.min_p),
        end_tokens=[target.end],
        stop=lambda row, tokens: len(tokens) >= most[row],
        seeds=None if options.seed is None else [options.seed + place for place in places],
        forbidden=forbidden,
    )
    return [Found([Hypothesis(d.tokens, d.log_prob, d.log_prob, d.stopped_by == "end")]) for d in drawn]


def _nothing() -> Translation:
    return Translation("", 0.0, 0.0, True, [], [])


def answer_of(
    assets: TranslateAssets, source: str, ids: NDArray[np.int32], found: Found, replacing: bool, shown: bool
) -> Translation:
    """What a search found, as texts; with `replacing` an unknown word becomes the source's that it looked at most."""
    best, *rest = [_one(assets, source, ids, hypothesis, replacing, shown) for hypothesis in found.hypotheses]
    return replace(best, others=tuple(rest))


def _one(
    assets: TranslateAssets, source: str, ids: NDArray[np.int32], hypothesis: Hypothesis, replacing: bool, shown: bool
) -> Translation:
    looked = (
        None if hypothesis.attention is None else _to_tokens(hypothesis.attention, len(hypothesis.tokens), len(ids))
    )
    instead: list[str | None] = []
    unk = assets.target.tokenizer.vocabulary.unk
    if replacing and looked is not None and unk is not None and unk in hypothesis.tokens:
        words = _words(assets, source)
        instead = [
            words[int(row.argmax())] if token == unk else None
            for token, row in zip(hypothesis.tokens, looked, strict=True)
        ]
    return Translation(
        assets.target.text(hypothesis.tokens, instead),
        hypothesis.score,
        hypothesis.log_prob,
        hypothesis.ended,
        assets.source.shown(ids.tolist()),
        assets.target.shown(hypothesis.tokens),
        looked if shown else None,
    )


def _to_tokens(attention: Tensor, targets: int, sources: int) -> NDArray[np.float32]:
    """Attention to real source tokens, the end tokens of both sides left out."""
    rows: NDArray[np.float32] = attention[:targets, :sources].float().cpu().numpy()
    return rows


def _words(assets: TranslateAssets, source: str) -> list[str]:
    """The source's text of each of its tokens: of an unknown word the word itself, of a sub-word its whole word."""
    side = assets.source
    text, offsets = side.places(source)
    words = []
    for start, end in offsets:
        if side.tokenizer.level == "bpe":
            start = text.rfind(" ", 0, max(start, 0) + 1) + 1
            stop = text.find(" ", start)
            end = len(text) if stop < 0 else stop
        words.append(text[start:end])
    return words
