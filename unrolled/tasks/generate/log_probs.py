"""The log-probabilities of whole texts by a language model, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.batching.tables import TokenTable
from unrolled.errors import UserError
from unrolled.search import Token
from unrolled.search.arrays import arrays_for
from unrolled.search.tokens.generation import likeliest
from unrolled.text import Tokenizer

if TYPE_CHECKING:
    from unrolled.model import Model

STEPS = 1000  # of a prompt that are read at once
ROWS = 64  # texts in a batch, of similar lengths


def log_probs_of(model: Model, texts: Sequence[str], *, start: int, backward: bool) -> list[float]:
    """log p of each text as a line of its own: what comes before it is a new line, and so is what follows it."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"log_prob takes a list of texts, got {texts!r}.")
    return token_log_probs(model, [_sequence(model.assets, text, start, backward) for text in texts])


def token_log_probs(model: Model, sequences: Sequence[NDArray[np.int64]]) -> list[float]:
    """log p of each sequence of tokens after its first one."""
    scores = [0.0] * len(sequences)
    order = sorted(range(len(sequences)), key=lambda number: len(sequences[number]))
    for first in range(0, len(order), ROWS):
        rows = order[first : first + ROWS]
        with model.answering():
            found = _scores(model.network, [sequences[n] for n in rows])
        for number, score in zip(rows, found, strict=True):
            scores[number] = score
    return scores


def prompt_scores(model: Model, sequence: Sequence[int], top: int = 0) -> list[Token]:
    """Each token of a sequence after its first one, with its log-probability and the `top` likeliest in its place."""
    arrays, found, state = arrays_for(model.network), list[Token](), None
    network: Any = model.network
    for first in range(0, len(sequence) - 1, STEPS):
        part = list(sequence[first : first + STEPS + 1])
        with model.answering():
            scores, state = network(arrays.moved(np.array([part[:-1]], dtype=np.int64)), state)
        log_probs = arrays.log_softmax(arrays.float(scores[0]))  # (T, V)
        own = arrays.gather(log_probs, arrays.tensor(part[1:])[:, None])[:, 0].tolist()
        tops = likeliest(log_probs, top) if top else [()] * len(own)
        found += [Token(0, *one) for one in zip(part[1:], own, [None] * len(own), tops, strict=True)]
    return found


def _sequence(tokenizer: Tokenizer, text: str, start: int, backward: bool) -> NDArray[np.int64]:
    end = tokenizer.ids("\n")  # none where the model has never seen a new line
    ids = tokenizer.ids(text)
    return np.concatenate([[start], ids[::-1] if backward else ids, end]).astype(np.int64)


def _scores(network: Any, sequences: Sequence[NDArray[np.int64]]) -> list[float]:
    arrays = arrays_for(network)
    lengths = arrays.tensor([len(sequence) - 1 for sequence in sequences])
    if int(lengths.max()) == 0:
        return [0.0] * len(sequences)
    padded = arrays.moved(TokenTable(sequences).batch().inputs)  # (B, T + 1)
    inputs, targets = padded[:, :-1], padded[:, 1:]
    real = arrays.arange(inputs.shape[1]) < lengths[:, None]
    scores, _ = network(inputs, None, lengths=lengths)
    log_probs = arrays.log_softmax(arrays.float(scores))  # (B, T, V)
    picked = arrays.gather(log_probs.reshape(-1, log_probs.shape[-1]), targets.reshape(-1)[:, None])
    kept = arrays.masked_fill(arrays.double(picked).reshape(real.shape), ~real, 0.0)
    totals: list[float] = kept.cumsum(1)[:, -1].tolist()  # in order: padding changes nothing
    return totals
