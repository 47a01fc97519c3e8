"""Attention of a captioner: the image once for each word, bright where the attention was."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    if attention.ndim != 3 or len(attention) != len(tokens):
        raise UserError(
            f"The attention has shape {attention.shape}.",
            f"Expected ({len(tokens)}, rows, columns): a map for each token, over regions in a grid.",
        )
    inches = read_width(width)
    with style(text_size(inches)):
        return _maps(picture, tokens, attention, title, inches)


def _maps(
    picture: NDArray[np.uint8] | None, tokens: Sequence[str], attention: NDArray[Any], title: str, width: float | None
) -> Picture:
    from unrolled.see.figures.canvas import Picture

    size, family = text_size(width), fonts()
    panels = max(1, len(tokens) + (picture is not None))
    columns = min(MOST_COLUMNS if width is None else max(2, int(width / NARROWEST)), panels)
    rows = math.ceil(panels / columns)
    high, wide = picture.shape[:2] if picture is not None else attention.shape[1:]
    each = 1.9 if width is None else min(1.9, width / columns)
    across = width or each * columns
    title = wrapped(title, across, size)
    tall = (each * high / wide + 0.03 * size) * rows + (0.04 + 0.017 * title.count("\n")) * size
    figure = Picture(across, tall, width is not None)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for place, axis in enumerate(axes):
        axis.set(xticks=[], yticks=[])
        for spine in axis.spines.values():
            spine.set(edgecolor="0.8", linewidth=0.5)
        axis.set_visible(place < panels)
    if picture is not None:
        axes[0].imshow(picture, cmap="gray")
    for axis, token, weights in zip(axes[panels - len(tokens) :], tokens, attention, strict=False):
        light = enlarged(weights, high, wide) if picture is not None else weights
        light = light / max(float(light.max()), 1e-12)
        if picture is None:
            axis.imshow(light, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
        else:
            axis.imshow((DUSK + (picture - float(DUSK)) * (DARK + (1 - DARK) * light[..., None])).astype(np.uint8))
        axis.set_title(shown(short(token, max(6, int(72 * each / (0.65 * size))))), family=family)
    if title:
        figure.suptitle(title, family=family)
    return figure


def enlarged(weights: NDArray[np.floating[Any]], height: int, width: int) -> NDArray[np.float32]:
    """A map (rows, columns) scaled to the size of its image by bilinear interpolation.

    >>> enlarged(np.eye(2), 4, 4).round(2)[0].tolist()
    [1.0, 0.75, 0.25, 0.0]
    """
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(weights, dtype=np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
