"""Attention of a captioner: the image once for each word, bright where the attention was."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.see.figures.labels import fonts, shown
from unrolled.see.figures.steps import short
from unrolled.see.figures.style import read_width, style, text_size
from unrolled.see.figures.titles import wrapped

if TYPE_CHECKING:
    from unrolled.see.figures.canvas import Picture

MOST_COLUMNS = 6
NARROWEST = 1.05  # inches of a panel
DARK = 0.12  # brightness of regions without attention
DUSK = 70  # grey of regions without attention: dark and bright lines stay visible on it


def attention_maps(
    picture: NDArray[np.uint8] | None,
    tokens: Sequence[str],
    attention: NDArray[np.floating[Any]],
    title: str = "",
    width: str | float | None = None,
) -> Picture:
    """One panel for each token: the image (H, W, 3), or None, under the attention (tokens, rows, columns).

    The map is scaled to the image: regions with the most attention are clear, the others fade to grey. The first
    panel is the image itself. Without an image the map alone is drawn, in greyscale.

    >>> figure = attention_maps(np.zeros((8, 8, 3), np.uint8), ["a", "dog"], np.ones((2, 4, 4)) / 16)
    >>> [axis.get_title() for axis in figure.axes[:3]]
    ['', 'a', 'dog']
    """
    _check(tokens, attention)
    inches = read_width(width)
    with style(text_size(inches)):
        panels = len(tokens) + (picture is not None)
        columns = min(_most_columns(inches), max(1, panels))
        figure, axes, each = _panels(picture, attention, title, inches, math.ceil(max(1, panels) / columns), columns)
        places = list(axes.ravel())
        if picture is not None:
            _show_picture(places.pop(0), picture)
        for axis, token, weights in zip(places, tokens, attention, strict=False):
            _show_map(axis, picture, weights)
            _name(axis, token, each, text_size(inches))
        return figure


def hard_attention_maps(
    picture: NDArray[np.uint8] | None,
    tokens: Sequence[str],
    attention: NDArray[np.floating[Any]],
    title: str = "",
    width: str | float | None = None,
) -> Picture:
    """The attention of a model that looks at one region for each token: the weights above, that region below.

    Both rows are drawn in the manner of `attention_maps`. The region is the one with the largest weight.

    >>> figure = hard_attention_maps(None, ["a", "dog"], np.array([[[0.6, 0.4]], [[0.1, 0.9]]]))
    >>> [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()]
    ['weights', 'looked at']
    """
    _check(tokens, attention)
    return compared_maps(
        picture, {"weights": (tokens, attention), "looked at": (tokens, looked_at(attention))}, title, width
    )


def compared_maps(
    picture: NDArray[np.uint8] | None,
    bands: Mapping[str, tuple[Sequence[str], NDArray[np.floating[Any]]]],
    title: str = "",
    width: str | float | None = None,
) -> Picture:
    """Rows of panels above each other, each with its name, tokens and attention: soft above hard, for example.

    As figure 2 of Xu et al. 2015, which shows the attention of two models while they write the same caption.
    """
    for tokens, attention in bands.values():
        _check(tokens, attention)
    inches = read_width(width)
    size = text_size(inches)
    most = max(1, *(len(tokens) for tokens, _ in bands.values()))
    first = int(picture is not None)  # panels of the image itself
    columns = min(max(2, _most_columns(inches)), most + first)
    lines = math.ceil(most / (columns - first))
    tokens, some = next(iter(bands.values()))
    with style(size):
        alike = all(list(tokens) == list(one) for one, _ in bands.values())
        named = lines if alike else lines * len(bands)
        figure, axes, each = _panels(picture, some, title, inches, lines * len(bands), columns, named)
        if picture is not None:
            _show_picture(axes[0, 0], picture)
        first_name = next(iter(bands))
        for row, (line, name) in enumerate(itertools.product(range(lines), bands)):
            tokens, attention = bands[name]
            shown_ones = slice(line * (columns - first), (line + 1) * (columns - first))
            for axis, token, weights in zip(axes[row, first:], tokens[shown_ones], attention[shown_ones], strict=False):
                _show_map(axis, picture, weights)
                if not alike or name == first_name:
                    _name(axis, token, each, size)
            if axes[row, first].get_visible():
                axes[row, first].set_ylabel(name)
    return figure


def looked_at(attention: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Maps (tokens, rows, columns) with 1 at the region of the largest weight and 0 elsewhere.

    >>> looked_at(np.array([[[0.2, 0.7], [0.1, 0.0]]])).tolist()
    [[[0.0, 1.0], [0.0, 0.0]]]
    """
    flat = attention.reshape(len(attention), -1)
    found = np.zeros_like(flat, dtype=np.float32)
    found[np.arange(len(flat)), flat.argmax(axis=1)] = 1.0
    return found.reshape(attention.shape)


def _check(tokens: Sequence[str], attention: NDArray[Any]) -> None:
    if attention.ndim != 3 or len(attention) != len(tokens):
        raise UserError(
            f"The attention has shape {attention.shape}.",
            f"Expected ({len(tokens)}, rows, columns): a map for each token, over regions in a grid.",
        )


def _most_columns(width: float | None) -> int:
    return MOST_COLUMNS if width is None else max(2, int(width / NARROWEST))


def _panels(
    picture: NDArray[np.uint8] | None,
    attention: NDArray[Any],
    title: str,
    width: float | None,
    rows: int,
    columns: int,
    named: int | None = None,
) -> tuple[Picture, NDArray[Any], float]:
    """A figure of empty panels in the shape of the image, hidden until they are used; and the inches of each.

    `named` rows have names above their panels; none: all.
    """
    from unrolled.see.figures.canvas import Picture

    size = text_size(width)
    high, wide = picture.shape[:2] if picture is not None else attention.shape[1:]
    each = 1.9 if width is None else min(1.9, width / columns)
    across = width or each * columns
    title = wrapped(title, across, size)
    above = rows if named is None else named
    tall = (
        each * high / wide * rows
        + 0.03 * size * above
        + 0.006 * size * (rows - above)
        + (0.04 + 0.017 * title.count("\n")) * size
    )
    figure = Picture(across, tall, width is not None)
    axes: NDArray[Any] = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
        for spine in axis.spines.values():
            spine.set(edgecolor="0.8", linewidth=0.5)
        axis.set_visible(False)
    if title:
        figure.suptitle(title, family=fonts())
    return figure, axes, each


def _show_picture(axis: Any, picture: NDArray[np.uint8]) -> None:
    axis.imshow(picture, cmap="gray")
    axis.set_visible(True)


def _show_map(axis: Any, picture: NDArray[np.uint8] | None, weights: NDArray[Any]) -> None:
    """The image, clear where the attention is; without an image the weights alone."""
    light = enlarged(weights, *picture.shape[:2]) if picture is not None else weights
    light = light / max(float(light.max()), 1e-12)
    if picture is None:
        axis.imshow(light, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    else:
        axis.imshow((DUSK + (picture - float(DUSK)) * (DARK + (1 - DARK) * light[..., None])).astype(np.uint8))
    axis.set_visible(True)


def _name(axis: Any, token: str, inches: float, size: float) -> None:
    axis.set_title(shown(short(token, max(6, int(72 * inches / (0.65 * size))))), family=fonts())


def enlarged(weights: NDArray[np.floating[Any]], height: int, width: int) -> NDArray[np.float32]:
    """A map (rows, columns) scaled to the size of its image by bilinear interpolation.

    >>> enlarged(np.eye(2), 4, 4).round(2)[0].tolist()
    [1.0, 0.75, 0.25, 0.0]
    """
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(weights, dtype=np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
