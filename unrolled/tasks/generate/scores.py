"""Scores of a language model on a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import ContiguousWindows
from unrolled.errors import UserError
from unrolled.tasks.generate.completion import score_completions
from unrolled.tasks.generate.predict import directed, direction_of, start_token
from unrolled.tasks.generate.texts import count, ids_of, read_either
from unrolled.text import Tokenizer

if TYPE_CHECKING:
    from unrolled.model import Model

AT_ONCE = 1000  # tokens of a file


def evaluate_file(model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
    """Scores on one stream from the first token to the last: no token lacks its past.

    With options of a search also error rates of the ends of its lines: see `score_completions`.
    """
    text = read_either(path, None, direction_of(model))  # the training cache may be elsewhere
    if isinstance(text, str):
        completed = score_completions(model, text, **options) if options else {}
        return {**evaluate_text(model, text), **completed}
    if options:
        raise UserError(f"{path} is too large to complete its lines.", "Use a part of it, below 64 MB.")
    return _evaluate_ids(model, ids_of(model.assets, text, None), sum(map(len, text.segments())))


def evaluate_text(model: Model, text: str) -> dict[str, float]:
    """Scores on a text as one stream."""
    return _evaluate_ids(model, directed(model.assets.ids(text), direction_of(model)), len(text))


def _evaluate_ids(model: Model, ids: NDArray[np.integer], characters: int) -> dict[str, float]:
    tokenizer: Tokenizer = model.assets
    network: Any = model.network
    windows = ContiguousWindows(ids, rows=1, steps=AT_ONCE, start=start_token(tokenizer), whole=True)
    total, state = 0.0, None
    with model.answering():
        for index in range(len(windows)):
            batch = windows.arrays(index)
            losses, state = network.nats(batch.inputs[0], batch.targets[0], state)
            total += sum(losses)
    return {
        **loss_scores(total / len(ids), len(ids)),
        "bits_per_char": total / math.log(2) / characters,
        "characters": characters,
        "unknown_tokens": count(ids, tokenizer.vocabulary.unk),
    }


def loss_scores(mean: float, tokens: int) -> dict[str, float]:
    """The mean loss of a token in nats, and the perplexity."""
    return {"nats_per_token": mean, "perplexity": math.exp(min(700.0, mean)), "tokens": tokens}
