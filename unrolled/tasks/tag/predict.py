"""The tags of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from unrolled.data import Buckets
from unrolled.data.readers.tables.read_table import Row
from unrolled.data.readers.tagged.read_sentences import sentence_of
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.tagger import Tagger
from unrolled.tasks.tag.config import TagConfig, TagData
from unrolled.tasks.tag.documents import words_of


def paths_of(model: Model, batches: Buckets) -> list[list[int]]:
    """The tag ids of all examples, in order."""
    return [path for path, _ in decode(model, batches)]


@torch.no_grad()
def decode(model: Model, batches: Buckets, *, probabilities: bool = False) -> list[tuple[list[int], list[float]]]:
    """The tag ids of all examples, in order, and, if asked for, the probability of each tag."""
    network = model.network
    assert isinstance(network, Tagger)
    network.eval()
    found: list[tuple[list[int], list[float]]] = [([], []) for _ in batches.examples]
    same = torch.from_numpy(model.assets.same_tag()).to(model.device)
    for index in range(len(batches)):
        batch = batches[index].to(model.device)
        scores = network(batch)
        chances = network.probabilities(batch, scores) if probabilities else None  # (B, T, K)
        paths = network.decode(batch, scores)
        for place, (row, path) in enumerate(zip(batches.rows(index), paths, strict=True)):
            found[row] = (path, [])
            if chances is not None and path:
                likely = (chances[place, : len(path)] * same[path]).sum(-1).clamp(max=1.0)
                found[row] = (path, likely.tolist())
    return found


def sentences_of(model: Model, inputs: Any) -> tuple[bool, list[Sentence]]:
    """True for a single input, and the sentences."""
    alone = isinstance(inputs, (str, Sentence, Mapping))
    if not alone and (isinstance(inputs, bytes) or not isinstance(inputs, Iterable)):
        raise _no_input(inputs)
    return alone, [sentence_of_input(model, one) for one in ([inputs] if alone else inputs)]


def sentence_of_input(model: Model, one: Any) -> Sentence:
    """The sentence of an input: a text, a list of words, or a record of words and features."""
    settings = settings_of(model)
    if isinstance(one, Sentence):
        return one
    if isinstance(one, Mapping):
        names = (settings.columns.words or "tokens", *settings.features)
        if missing := [name for name in names if name not in one]:
            raise UserError(f"The input has no {missing[0]!r}.", f"It has: {', '.join(map(str, one)) or 'nothing'}.")
        return sentence_of(Row(tuple(one[name] for name in names), "The input"), names)
    if settings.features:
        raise UserError(
            f"This model reads more than words: the columns {', '.join(settings.features)}.",
            "Give them too: a file, or from Python a dictionary of lists by name.",
        )
    words = words_of(one) if isinstance(one, str) else one
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise _no_input(one)
    return Sentence(tuple(words))


def _no_input(one: Any) -> UserError:
    return UserError(f"An input is {type(one).__name__}.", "Expected a text or a list of words, or a list of them.")


def settings_of(model: Model) -> TagData:
    assert isinstance(model.config, TagConfig)
    return model.config.data
