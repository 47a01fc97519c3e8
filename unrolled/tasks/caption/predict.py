"""From pictures to captions: batches of a search, and its results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.media.captions import Captioned, fitted_view, pixels_of_array, some_pictures
from unrolled.data.signals.pictures import pixels_of
from unrolled.data.signals.views import Shape, View, check_view
from unrolled.errors import UserError
from unrolled.search import WrittenWord
from unrolled.search.arrays import arrays_of
from unrolled.tasks.caption.assets import CaptionAssets, view_arrays
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

if TYPE_CHECKING:
    from unrolled.model import Model

HYPOTHESES_AT_ONCE = 320  # pictures, times hypotheses, in a batch of a search


@dataclass(frozen=True)
class CaptionAnswer(Written):
    """The caption of one picture; `others` are the next best."""

    tokens: list[str]
    attention: NDArray[np.float32] | None = None  # (tokens, rows, columns), or (tokens, regions)
    others: tuple[CaptionAnswer, ...] = ()
    words: tuple[WrittenWord, ...] | None = None  # with a lexicon: the words, and the tokens of each


def describe(model: Model, views: Sequence[View], options: WritingOptions) -> list[CaptionAnswer]:
    """A caption for each picture, in order; the pictures have the shape that the model reads."""
    if options.rescore is not None:
        return rescored_texts(describe(model, views, for_rescoring(options)), "tokens", options)
    assets: CaptionAssets = model.assets
    network: Any = model.network
    if options.unknown == "replace":
        raise UserError("Unknown words are replaced by words of a source, and a picture has none.", "Use forbid.")
    target = assets.target
    options = with_dictionary(options, target.tokenizer, form=target.form, end=target.end)
    wanted = options.attention and network.attends
    answers = []
    room = max(1, model.together(HYPOTHESES_AT_ONCE) // options.side_by_side)
    for first in range(0, len(views), room):
        part = views[first : first + room]
        with model.answering(options.precision):
            found = written(
                network,
                network.encode(model.placed(view_arrays(part))),
                target,
                options,
                most=[options.max_tokens or assets.most_tokens] * len(part),
                places=range(first, first + len(part)),
                forbid_unknown=options.unknown != "keep",
                attention=wanted,
            )
        for one in found:
            several = [_description(assets, spelt, network.grid, options) for spelt in readings_of(one, options)]
            answers.append(best_answers(several, options))
    return answers


def _description(
    assets: CaptionAssets, spelt: Spelt, grid: tuple[int, int] | None, options: WritingOptions
) -> CaptionAnswer:
    hypothesis = spelt.hypothesis
    looked: NDArray[np.float32] | None = None
    if hypothesis.attention is not None:
        arrays = arrays_of(hypothesis.attention)
        rows = arrays.host(arrays.float(hypothesis.attention[: len(hypothesis.tokens)]))
        looked = rows if grid is None else rows.reshape(-1, *grid)
    return CaptionAnswer(
        text_of(assets.target, spelt, options),
        hypothesis.score,
        hypothesis.log_prob,
        hypothesis.ended,
        assets.target.shown(hypothesis.tokens),
        looked,
        words=spelt.words,
    )


def view_of(given: Any, shape: Shape) -> View:
    """The picture of an input: a path, a PIL image, pixels, features, or a `View`."""
    if isinstance(given, Captioned):
        return given.view
    if isinstance(given, (str, Path)):
        found = list(itertools.islice(some_pictures([given]), 2))
        if len(found) > 1:
            raise UserError(f"{given} holds several pictures.", "Give a list with the path or array of each.")
        view = found[0][1]
    elif isinstance(given, View):
        view = given
    elif hasattr(given, "convert") and hasattr(given, "mode"):
        view = View(pixels_of(given, "The picture"))
    elif isinstance(given, np.ndarray):
        view = _of_array(given, shape)
    else:
        raise UserError(
            f"The input is {type(given).__name__}.", "Expected a path, a PIL image or an array, or a list of them."
        )
    place = str(given) if isinstance(given, (str, Path)) else "The input"
    return fitted_view(check_view(view, place), shape, place)


def _of_array(given: NDArray[Any], shape: Shape) -> View:
    if shape.kind == "vector":
        return View(None, given)
    if shape.kind == "regions":
        return View(given.astype(np.float32) if given.dtype == np.uint8 else given)
    return View(pixels_of_array(given, "The input"))


def drawable_pixels(picture: Any) -> NDArray[np.uint8] | None:
    """The pixels of a picture to draw on, if it has any."""
    if isinstance(picture, (str, Path)):
        picture = next(some_pictures([picture]))[1]
    if hasattr(picture, "convert"):
        return pixels_of(picture, "The picture")
    values = picture.values if isinstance(picture, View) else picture
    if not isinstance(values, np.ndarray) or values.dtype != np.uint8:
        return None
    return np.repeat(values[..., None], 3, axis=-1) if values.ndim == 2 else values[..., :3]


def predict(model: Model, inputs: Any, **options: Any) -> Any:
    """A `CaptionAnswer` of a picture, or a list of them. Options: see `WritingOptions`."""
    several = isinstance(inputs, (list, tuple))
    views = [view_of(one, model.assets.shape) for one in (inputs if several else [inputs])]
    answers = note_cut(describe(model, views, WritingOptions(**options)), "captions")
    return answers if several else answers[0]
