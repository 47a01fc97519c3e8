"""The tags of sentences and of frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import RowBuckets
from unrolled.data.batching.sharing import in_turn
from unrolled.data.readers.labelled import check_frames
from unrolled.data.readers.tables.read_table import Row
from unrolled.data.readers.tagged.frames import Tagged, TaggedFrames
from unrolled.data.readers.tagged.read_sentences import sentence_of
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import UserError
from unrolled.metrics.spans import Span, runs_of, spans_of
from unrolled.search.arrays import arrays_of
from unrolled.tasks.tag.assets import check_kind
from unrolled.tasks.tag.batches import unlabelled
from unrolled.tasks.tag.columns import columns_of, features_of
from unrolled.tasks.tag.documents import words_of

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.tag.config import TagData


def paths_of(model: Model, batches: RowBuckets) -> list[list[int]]:
    """The tag ids of all examples, in order."""
    return [path for path, _ in decode(model, batches)]


def decode(model: Model, batches: RowBuckets, *, probabilities: bool = False) -> list[tuple[list[int], list[float]]]:
    """The tag ids of all examples, in order, and, if asked for, the probability of each tag."""
    network: Any = model.network
    found: list[tuple[list[int], list[float]]] = [([], []) for _ in batches.examples]
    same = model.assets.same_tag()

    def work(index: int) -> tuple[list[list[int]], Any]:
        batch = model.placed(batches[index])
        scores = network(batch)
        paths = network.decode(batch, scores)
        if not probabilities:
            return paths, None
        chances = network.probabilities(batch, scores)
        return paths, arrays_of(chances).host(chances)  # (B, T, K)

    with model.answering():
        for index, (paths, chances) in in_turn(len(batches), work):
            for place, (row, path) in enumerate(zip(batches.rows(index), paths, strict=True)):
                found[row] = (path, [])
                if chances is not None and path:
                    likely = (chances[place, : len(path)] * same[path]).sum(-1)
                    found[row] = (path, np.minimum(likely, 1.0).tolist())
    return found


def predict(model: Model, inputs: Any, probabilities: bool = False) -> Any:
    """The answer to an input, or to each of a list of them: see `Tag.predict`."""
    alone, examples = examples_of(model, inputs)
    found = decode(model, unlabelled(model, examples), probabilities=bool(probabilities))
    answers = [answer_of(model, one, *answer) for one, answer in zip(examples, found, strict=True)]
    return answers[0] if alone else answers


def probabilities_of(model: Model, inputs: Any) -> tuple[list[str], list[NDArray[np.float32]]]:
    """The probability of each learnt tag at each step, (T, tags) for each of a list of inputs, and the tags' names.

    A tag may have several columns: what is learnt tells the ends of spans from the rest.
    """
    network: Any = model.network
    _, examples = examples_of(model, inputs)
    batches = unlabelled(model, examples)
    found: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32)] * len(examples)

    def work(index: int) -> Any:
        batch = model.placed(batches[index])
        chances = network.probabilities(batch, network(batch))
        return arrays_of(chances).host(chances)  # (B, T, K)

    with model.answering():
        for index, chances in in_turn(len(batches), work):
            for row, table in zip(batches.rows(index), chances, strict=True):
                found[row] = table[: len(examples[row])]
    return [_outer(model, tag) for tag in model.assets.learnt.tokens], found


def _outer(model: Model, tag: str) -> str:
    """The tag of the data that a learnt one stands for: B for S, I for E; in IOB1 spans begin with I."""
    if model.assets.inner is None:
        return tag
    outer = f"{INNER.get(tag[0], tag[0])}{tag[1:]}"
    return outer if outer in model.assets.tags.tokens else f"I{tag[1:]}"


INNER = {"S": "B", "E": "I"}  # first letters of tags that are learnt, and those of the data


@dataclass(frozen=True)
class FrameTags:
    """The answer to one sequence of frames: a tag for each, and their probabilities if these were asked for."""

    tags: tuple[str, ...]
    probabilities: tuple[float, ...] = ()
    spans: bool = False  # the tags mark spans: B-…, I-…, O

    def __len__(self) -> int:
        return len(self.tags)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tags)

    @property
    def segments(self) -> list[Span]:
        """Frames `start` up to, not including, `end` with one tag: the spans of B-… and I-…, or runs of equal tags."""
        return spans_of(self.tags) if self.spans else runs_of(self.tags)

    def __str__(self) -> str:
        return " ".join(f"{kind}:{start}-{end}" for kind, start, end in self.segments)


def answer_of(model: Model, example: Tagged, path: list[int], chances: list[float]) -> Any:
    """[(word, tag), …] of a sentence, with `chances` (word, tag, probability); a `FrameTags` of frames."""
    tags = model.assets.names(path)
    if isinstance(example, TaggedFrames):
        return FrameTags(tuple(tags), tuple(chances), model.assets.scheme is not None)
    return list(zip(example.words, tags, *([chances] if chances else []), strict=True))


def examples_of(model: Model, inputs: Any) -> tuple[bool, list[Tagged]]:
    """True for a single input, and the sentences or frames."""
    if model.assets.frames:
        alone = hasattr(inputs, "shape") or isinstance(inputs, TaggedFrames)
        if not alone and not isinstance(inputs, (list, tuple)):
            raise _no_frames(model, inputs)
        return alone, [frames_of_input(model, one) for one in ([inputs] if alone else inputs)]
    return sentences_of(model, inputs)


def frames_of_input(model: Model, one: Any) -> TaggedFrames:
    """The frames of an input: an array (T, …) of NumPy or torch."""
    if isinstance(one, TaggedFrames):
        found = one
    elif hasattr(one, "shape"):
        array = one.cpu().numpy() if hasattr(one, "cpu") else np.asarray(one)
        found = TaggedFrames(check_frames(array, "The input"))
    else:
        raise _no_frames(model, one)
    check_kind([found], model.assets.frames)
    return found


def _no_frames(model: Model, one: Any) -> UserError:
    shape = ", ".join(map(str, model.assets.frames))
    return UserError(
        f"An input is {type(one).__name__}.", f"Expected an array of frames (steps, {shape}), or a list of them."
    )


def sentences_of(model: Model, inputs: Any) -> tuple[bool, list[Tagged]]:
    """True for a single input, and the sentences."""
    alone = isinstance(inputs, (str, Sentence, Mapping))
    if not alone and (isinstance(inputs, bytes) or not isinstance(inputs, Iterable)):
        raise _no_input(inputs)
    return alone, [sentence_of_input(model, one) for one in ([inputs] if alone else inputs)]


def sentence_of_input(model: Model, one: Any) -> Sentence:
    """The sentence of an input: a text, a list of words, or a record of words and features."""
    if isinstance(one, Sentence):
        return one
    features = features_of(settings_of(model))
    if isinstance(one, Mapping):
        names = (columns_of(settings_of(model)).words or "tokens", *features)
        if missing := [name for name in names if name not in one]:
            raise UserError(f"The input has no {missing[0]!r}.", f"It has: {', '.join(map(str, one)) or 'nothing'}.")
        return sentence_of(Row(tuple(one[name] for name in names), "The input"), names)
    if features:
        raise UserError(
            f"This model reads more than words: the columns {', '.join(features)}.",
            "Give them too: a file, or from Python a dictionary of lists by name.",
        )
    words = words_of(one) if isinstance(one, str) else one
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise _no_input(one)
    return Sentence(tuple(words))


def _no_input(one: Any) -> UserError:
    return UserError(f"An input is {type(one).__name__}.", "Expected a text or a list of words, or a list of them.")


def settings_of(model: Model) -> TagData:
    config: Any = model.config
    settings: TagData = config.data
    return settings
