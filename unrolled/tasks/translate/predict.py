"""From sources to translations: batches of a search, and the replacement of unknown words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    Spelt,
    WritingOptions,
    best_answers,
    for_rescoring,
    readings_of,
    rescored_texts,
    text_of,
    written,
)
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import source_arrays

if TYPE_CHECKING:
    from unrolled.model import Model

TOKENS_AT_ONCE = 6000  # source tokens, times hypotheses, in a batch of a search
TOKENS_ON_GPU = 24000


def tokens_at_once(device: Any) -> int:
    """The room of a batch of a search, in source tokens times hypotheses; an exported model's device is a name."""
    return TOKENS_ON_GPU if str(device).startswith("cuda") else TOKENS_AT_ONCE


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
    ids = [assets.source.ids(text) for text in texts]
    answers = [None if len(one) else (_nothing(), [Hypothesis([], 0.0, 0.0, True)]) for one in ids]
    rows = [i for i, answer in enumerate(answers) if answer is None]
    sources = Ragged.of(ids[i] for i in rows)

    def gather(some: Rows) -> Batch:
        return source_arrays(assets, sources, some)

    room = max(1, model.together(tokens_at_once(model.device)) // options.side_by_side)
    batches = RowBuckets(rows, sources.lengths + 1, gather, batch_size=1, batch_tokens=room)
    with model.answering(options.precision):
        for index in range(len(batches)):
            places = [rows[place] for place in batches.rows(index)]
            found = _found(model, model.placed(batches[index]), options, places, unknown == "forbid", wanted)
            for i, one in zip(places, found, strict=True):
                answer = answer_of(assets, texts[i], ids[i], one, unknown == "replace", options)
                answers[i] = answer, one.hypotheses
    return [answer for answer in answers if answer is not None]


def _found(
    model: Model, batch: Batch, options: WritingOptions, places: list[int], forbid_unknown: bool, attention: bool
) -> list[BeamResult]:
    assert batch.lengths is not None
    network: Any = model.network
    return written(
        network,
        network.encode(batch),
        model.assets.target,
        options,
        most=[options.max_tokens or model.assets.most_tokens(length) for length in batch.lengths.tolist()],
        places=places,
        forbid_unknown=forbid_unknown,
        attention=attention,
    )


def _nothing() -> Translation:
    return Translation("", 0.0, 0.0, True, [], [])


def answer_of(
    assets: TranslateAssets,
    source: str,
    ids: NDArray[np.int32],
    found: BeamResult,
    replacing: bool,
    options: WritingOptions,
) -> Translation:
    """The hypotheses of a search as texts; `replacing` puts the source word with the most attention for <unk>."""
    return best_answers(
        [_one(assets, source, ids, one, replacing, options) for one in readings_of(found, options)], options
    )


def _one(
    assets: TranslateAssets,
    source: str,
    ids: NDArray[np.int32],
    spelt: Spelt,
    replacing: bool,
    options: WritingOptions,
) -> Translation:
    hypothesis = spelt.hypothesis
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
        text_of(assets.target, spelt, options, instead),
        hypothesis.score,
        hypothesis.log_prob,
        hypothesis.ended,
        assets.source.shown(ids.tolist()),
        assets.target.shown(hypothesis.tokens),
        looked if options.attention else None,
        words=spelt.words,
    )


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
