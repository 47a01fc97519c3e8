"""From sources to translations: batches of a search, and the replacement of unknown words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch, RowBuckets
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.errors import UserError
from unrolled.search import BeamResult, Hypothesis, WrittenWord
from unrolled.search.arrays import Array, arrays_of
from unrolled.tasks.shared.answers import Written, note_cut
from unrolled.tasks.shared.dictionary import with_dictionary
from unrolled.tasks.shared.writing import (
    WritingOptions,
    best_answers,
    for_rescoring,
    readings_of,
    rescored_texts,
    texts_of,
    written,
)
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import source_arrays

if TYPE_CHECKING:
    from unrolled.model import Model

TOKENS_AT_ONCE = 6000  # source tokens, times hypotheses, in a batch of a search
TOKENS_ON_GPU = 24000  # for each 16 GB of its memory, up to eight times


def tokens_at_once(device: Any) -> int:
    """The room of a batch of a search, in source tokens times hypotheses; an exported model's device is a name."""
    if not str(device).startswith("cuda"):
        return TOKENS_AT_ONCE
    import torch

    memory = torch.cuda.get_device_properties(device).total_memory
    return TOKENS_ON_GPU * min(8, max(1, memory // 16_000_000_000))


@dataclass(frozen=True)
class Translation(Written):
    """The translation of one source; `others` are the next best."""

    source_tokens: list[str]
    target_tokens: list[str]
    attention: NDArray[np.float32] | None = None  # (target tokens, source tokens)
    others: tuple[Translation, ...] = ()
    words: tuple[WrittenWord, ...] | None = None  # with a lexicon: the words, and the target tokens of each

    @property
    def alignment(self) -> list[tuple[int, int]] | None:
        """(source, target) positions: the source token with the most attention for each target token."""
        if self.attention is None or not len(self.source_tokens):
            return None
        return [(int(row.argmax()), place) for place, row in enumerate(self.attention)]


def translate(model: Model, texts: Sequence[str], options: WritingOptions) -> list[Translation]:
    """A translation of each text, in their order; an empty text's is empty."""
    if options.rescore is not None:
        return rescored_texts(translate(model, texts, for_rescoring(options)), "target_tokens", options)
    return [answer for answer, _ in searched(model, texts, options)]


def searched(model: Model, texts: Sequence[str], options: WritingOptions) -> list[tuple[Translation, list[Hypothesis]]]:
    """A translation of each text, before any rescoring, and the hypotheses of its search."""
    assets: TranslateAssets = model.assets
    network: Any = model.network
    attends: bool = network.attends
    options = with_dictionary(options, assets.target.tokenizer, form=assets.target.form, end=assets.target.end)
    unknown = options.unknown
    if unknown == "auto":
        unknown = "replace" if attends and assets.target.tokenizer.level == "word" else "forbid"
    wanted = attends and (options.attention or unknown == "replace")
    if unknown == "replace" and not attends:
        raise UserError("Unknown words are replaced by attention, and this model has none.", "Use unknown=forbid.")
    sources = assets.source.ids_each(texts)
    answers: list[tuple[Translation, list[Hypothesis]] | None] = [None] * len(texts)
    rows = np.flatnonzero(sources.lengths)

    def gather(some: Rows) -> Batch:
        return source_arrays(assets, sources, rows[some])

    room = max(1, model.together(tokens_at_once(model.device)) // options.side_by_side)
    batches = RowBuckets(rows.tolist(), sources.lengths[rows] + 1, gather, batch_size=1, batch_tokens=room)
    with model.answering(options.precision):
        for index in range(len(batches)):
            places = rows[batches.rows(index)].tolist()
            source_tokens = cache(partial(_shown, assets, sources, places))
            found = _found(model, batches[index], options, places, unknown == "forbid", wanted, source_tokens)
            some = answers_of(
                assets, [texts[place] for place in places], source_tokens(), found, unknown == "replace", options
            )
            for place, answer, one in zip(places, some, found, strict=True):
                answers[place] = answer, one.hypotheses
    empty = _nothing(), [Hypothesis([], 0.0, 0.0, True)]
    return [answer or empty for answer in answers]


def _shown(assets: TranslateAssets, sources: Ragged, places: list[int]) -> list[list[str]]:
    return assets.source.shown_each([sources.row(place).tolist() for place in places])


def _found(
    model: Model,
    batch: Batch,
    options: WritingOptions,
    places: list[int],
    forbid_unknown: bool,
    attention: bool,
    meanwhile: Callable[[], object],
) -> list[BeamResult]:
    assert batch.lengths is not None
    network: Any = model.network
    most = [options.max_tokens or model.assets.most_tokens(length) for length in batch.lengths.tolist()]
    return written(
        network,
        network.encode(model.placed(batch)),
        model.assets.target,
        options,
        most=most,
        places=places,
        forbid_unknown=forbid_unknown,
        attention=attention,
        meanwhile=meanwhile,
    )


def _nothing() -> Translation:
    return Translation("", 0.0, 0.0, True, [], [])


def answers_of(
    assets: TranslateAssets,
    texts: Sequence[str],
    sources: Sequence[list[str]],
    found: Sequence[BeamResult],
    replacing: bool,
    options: WritingOptions,
) -> list[Translation]:
    """The hypotheses of a search as texts, for texts and their tokens, `sources`.

    `replacing` puts the source word with the most attention for <unk>.
    """
    spelt = [readings_of(one, options) for one in found]
    counts = [len(some) for some in spelt]
    several = [one for some in spelt for one in some]  # of all sources
    of_each = [place for place, count in enumerate(counts) for _ in range(count)]
    looked: list[NDArray[np.float32] | None] = [
        None if (seen := one.hypothesis.attention) is None else _to_tokens(seen, len(one.hypothesis.tokens), len(words))
        for one, words in zip(several, map(sources.__getitem__, of_each), strict=True)
    ]
    instead: list[list[str | None]] = [[]] * len(several)
    if replacing:
        readings = zip(of_each, several, looked, strict=True)
        instead = [_instead(assets, texts[place], one.hypothesis.tokens, rows) for place, one, rows in readings]
    written = zip(
        several,
        texts_of(assets.target, several, options, instead),
        assets.target.shown_each([one.hypothesis.tokens for one in several]),
        looked if options.attention else repeat(None),
        strict=False,
    )
    answers = []
    for source_tokens, count in zip(sources, counts, strict=True):
        made = []
        for (one, words), text, target_tokens, attention in islice(written, count):
            facts = text, one.score, one.log_prob, one.ended, source_tokens, target_tokens, attention
            made.append(Translation(*facts, words=words))
        answers.append(best_answers(made, options))
    return answers


def _instead(
    assets: TranslateAssets, source: str, tokens: list[int], looked: NDArray[np.float32] | None
) -> list[str | None]:
    """For each unknown token the source word with the most attention."""
    unk = assets.target.tokenizer.vocabulary.unk
    if looked is None or unk is None or unk not in tokens:
        return []
    words = _words(assets, source)
    return [words[int(row.argmax())] if token == unk else None for token, row in zip(tokens, looked, strict=True)]


def _to_tokens(attention: Array, targets: int, sources: int) -> NDArray[np.float32]:
    """Attention to real source tokens, the end tokens of both sides left out."""
    arrays = arrays_of(attention)
    rows: NDArray[np.float32] = arrays.host(arrays.float(attention[:targets, :sources]))
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


def predict(model: Model, inputs: str | Sequence[str], **options: Any) -> Any:
    """A `Translation` of a text, or a list of them. Options: see `WritingOptions`."""
    texts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"The input is {type(inputs).__name__}.", "Expected a text or a list of texts.")
    answers = note_cut(translate(model, texts, WritingOptions(**options)), "translations")
    return answers[0] if isinstance(inputs, str) else answers
