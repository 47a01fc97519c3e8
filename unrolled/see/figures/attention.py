"""Figures of attention: one matrix, a grid of layers and heads, or maps over an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.see.figures.caption import attention_maps, hard_attention_maps
from unrolled.see.figures.labels import drawable, fonts, plain
from unrolled.see.figures.steps import SMALLEST, columns, naming, short
from unrolled.see.figures.style import USUAL, read_width, style, text_size
from unrolled.see.figures.titles import compared, wrapped
from unrolled.see.trace import AttentionMap, ModelTrace

if TYPE_CHECKING:
    from unrolled.see.figures.canvas import Picture

HIGHEST = 9.0  # inches of a matrix
CHOSEN = "#d55e00"
SPECIAL = ("<bos>", "<eos>", "<pad>", "<unk>")


def draw_attention(
    trace: ModelTrace,
    layer: str | None = None,
    units: int = 48,
    width: float | None = None,
    *,
    map: str | None = None,
    head: tuple[int, int] | None = None,
) -> Picture:
    """One of the trace's maps (default: the first); `head`, (layer, head) from 1, is outlined."""
    name = next(iter(trace.attention)) if map is None else map
    if name not in trace.attention:
        raise unknown_name("attention map", name, trace.attention)
    found = trace.attention[name]
    if found.grid is not None:
        maps = found.weights[-1].mean(0).view(-1, *found.grid).cpu().numpy()  # mean over the last layer's heads
        picture = None if found.image is None else (255 * found.image).round().byte().numpy()
        draw = hard_attention_maps if found.hard else attention_maps
        return draw(picture, found.rows, maps, compared(trace) or trace.answer, width)
    title = f"{name}\n{compared(trace)}".strip()
    if found.weights.shape[0] * found.weights.shape[1] == 1:
        return attention_figure(found.columns, found.rows, found.weights[0, 0].cpu().numpy(), title, width)
    return heads_figure(found, title, width, head)


def attention_figure(
    source: Sequence[str],
    target: Sequence[str],
    attention: NDArray[np.floating[Any]],
    title: str = "",
    width: str | float | None = None,
) -> Picture:
    """The attention matrix (target, source): a row for each target token, dark where the weight is large.

    >>> figure = attention_figure(["ein", "Hund"], ["a", "dog"], np.eye(2))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'dog']
    """
    if attention.shape != (len(target), len(source)):
        raise UserError(
            f"The attention has shape {attention.shape}.",
            f"Expected ({len(target)}, {len(source)}): a row for each target token, a column for each source token.",
        )
    inches = read_width(width)
    with style(text_size(inches)):
        return _matrix(source, target, attention, title, inches)


def _matrix(
    source: Sequence[str], target: Sequence[str], attention: NDArray[Any], title: str, width: float | None
) -> Picture:
    from unrolled.see.figures.canvas import Picture, heat

    size = text_size(width)
    rows = [short(plain(token)) for token in target]
    beside = 0.0085 * size * max(map(columns, rows), default=1) + 0.09 * size  # inches: row labels and colour bar
    wide = width or min(USUAL, beside + 0.33 * max(4, len(source)))
    highest = HIGHEST / max(1, len(target))
    each = min(0.36, (wide - beside) / max(1, len(source)), highest)  # inches of a cell
    named = naming(source, each * len(source), size)
    deep = max(each, min(0.016 * size, highest))
    title = wrapped(title, wide, size)
    high = (0.06 + 0.017 * title.count("\n")) * size + named.height + deep * max(2, len(target))
    figure = Picture(wide, high, width is not None)
    axis = figure.subplots()
    image = heat(axis, attention, "Greys", 0.0, 1.0)
    axis.set_aspect("equal" if deep == each else "auto")
    named.write(axis, top=True)
    if 72 * deep >= 1.1 * SMALLEST:
        points = min(size, 72 * deep / 1.1)
        axis.set_yticks(range(len(target)), [drawable(row) for row in rows], family=fonts(), fontsize=points)
    axis.set_xticks(np.arange(len(source) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(target) + 1) - 0.5, minor=True)
    if 72 * each > 6:
        axis.grid(which="minor", color="0.9", linewidth=0.5)
    axis.tick_params(which="minor", length=0)
    figure.colorbar(image, ax=axis, fraction=0.05, pad=0.02, label="attention" if len(target) > 3 else "")
    if title:
        figure.suptitle(title, family=fonts())
    return figure


def heads_figure(
    found: AttentionMap, title: str = "", width: str | float | None = None, head: tuple[int, int] | None = None
) -> Picture:
    """A grid with a row per layer and a column per head; `head`, (layer, head) from 1, is outlined."""
    inches = read_width(width)
    layers, heads = found.weights.shape[:2]
    if head is not None and not (len(head) == 2 and 1 <= head[0] <= layers and 1 <= head[1] <= heads):
        raise UserError(f"There is no head {head}.", f"Expected (layer, head), from (1, 1) to ({layers}, {heads}).")
    with style(text_size(inches)):
        return _heads(found, title, inches, head)


def _heads(found: AttentionMap, title: str, width: float | None, outlined: tuple[int, int] | None) -> Picture:
    from matplotlib.ticker import MaxNLocator

    from unrolled.see.figures.canvas import Picture, heat

    layers, heads, rows, across = found.weights.shape
    size = text_size(width)
    longest = max((columns(short(plain(token))) for token in found.rows), default=1)
    beside = 0.0062 * size * longest + 0.03 * size
    wide = width or min(USUAL, beside + (0.25 + 0.17 * max(8, across)) * heads)
    each = (wide - beside) / heads - 0.01 * size  # inches of a panel
    named = naming(found.columns, 0.95 * each, 0.75 * size)
    deep = min(max(0.15 * size, each * rows / max(1, across)), 1.3 * each)
    title = wrapped(title, wide, size)
    high = (0.05 + 0.017 * title.count("\n")) * size + layers * (deep + 0.03 * size) + named.height
    figure = Picture(wide, min(high, USUAL), width is not None)
    axes = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    down = naming(found.rows, deep, 0.75 * size)
    for depth in range(layers):
        for head in range(heads):
            axis = axes[depth, head]
            heat(axis, found.weights[depth, head].cpu().numpy(), "Greys", 0.0, 1.0)
            axis.set_title(f"layer {depth + 1}, head {head + 1}" if 72 * each > 9 * size else f"{depth + 1}.{head + 1}")
            if outlined == (depth + 1, head + 1):
                axis.title.set_fontweight("bold")
                for spine in axis.spines.values():
                    spine.set(edgecolor=CHOSEN, linewidth=2.0, zorder=5)
    for axis in axes[-1]:
        named.write(axis)
    if down.names:
        axes[0, 0].set_yticks(range(rows), down.names, fontsize=down.size, family=fonts("DejaVu Sans Mono"))
    else:
        axes[0, 0].yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    figure.suptitle(title, family=fonts())
    return figure


def without_specials(found: AttentionMap) -> AttentionMap:
    """A map without special tokens; their weights are dropped, not redistributed."""
    rows = [i for i, token in enumerate(found.rows) if token not in SPECIAL]
    across = [i for i, token in enumerate(found.columns) if token not in SPECIAL]
    weights: Tensor = found.weights[:, :, rows][..., across]
    kept = [found.rows[i] for i in rows], [found.columns[i] for i in across]
    return AttentionMap(*kept, weights, found.grid, found.image, found.hard)
