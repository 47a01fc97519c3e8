"""Pictures of attention: one matrix, layers and heads side by side, or maps over an image for each word (S32)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.see.captions import attention_maps
from unrolled.see.labels import drawable, fonts, shown
from unrolled.see.trace import AttentionMap, ModelTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPECIAL = ("<bos>", "<eos>", "<pad>", "<unk>")


def draw_attention(trace: ModelTrace, layer: str | None = None, units: int = 48, *, map: str | None = None) -> Figure:
    """One of the trace's maps, the first if none is named."""
    name = next(iter(trace.attention)) if map is None else map
    if name not in trace.attention:
        raise unknown_name("attention map", name, trace.attention)
    found = trace.attention[name]
    if found.grid is not None:
        looked = found.weights[-1].mean(0).view(-1, *found.grid).cpu().numpy()  # of many heads, the last layer's mean
        picture = None if found.image is None else (255 * found.image).round().byte().numpy()
        return attention_maps(picture, found.rows, looked, trace.answer)
    if found.weights.shape[0] * found.weights.shape[1] == 1:
        return attention_figure(found.columns, found.rows, found.weights[0, 0].cpu().numpy(), name)
    return heads_figure(found, name)


def attention_figure(
    source: Sequence[str], target: Sequence[str], attention: NDArray[np.floating[Any]], title: str = ""
) -> Figure:
    """The matrix of attention (target, source): a row for each word written, dark where it looked.

    >>> figure = attention_figure(["ein", "Hund"], ["a", "dog"], np.eye(2))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'dog']
    """
    from matplotlib.figure import Figure

    if attention.shape != (len(target), len(source)):
        raise UserError(
            f"The attention has shape {attention.shape}.",
            f"Expected ({len(target)}, {len(source)}): a row for each target token, a column for each source token.",
        )
    family = fonts()
    columns, rows = ([shown(token) for token in tokens] for tokens in (source, target))
    wide, high = (0.1 * max(map(len, labels)) for labels in (rows, columns))  # what the labels need, in inches
    size = (1.5 + wide + 0.33 * max(4, len(source)), 0.8 + high + 0.33 * max(3, len(target)))
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(attention, cmap="Greys", vmin=0.0, vmax=1.0, aspect="equal", interpolation="nearest")
    axis.set_xticks(range(len(source)), columns, rotation=90, family=family)
    axis.set_yticks(range(len(target)), rows, family=family)
    axis.xaxis.tick_top()
    axis.set_xticks(np.arange(len(source) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(target) + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="0.9", linewidth=0.5)
    axis.tick_params(which="minor", length=0)
    figure.colorbar(image, ax=axis, fraction=0.04, pad=0.02, label="attention")
    if title:
        figure.suptitle(drawable(title), fontsize=10, family=family)
    return figure


def heads_figure(found: AttentionMap, title: str = "") -> Figure:
    """Layers under each other, heads side by side."""
    from matplotlib.figure import Figure

    layers, heads, rows, columns = found.weights.shape
    width, height = 0.9 + 0.17 * max(8, columns), 0.9 + 0.17 * max(6, rows)
    figure = Figure(figsize=(min(40.0, 1.5 + width * heads), min(40.0, 1.0 + height * layers)), layout="constrained")
    axes = figure.subplots(layers, heads, squeeze=False)
    family = fonts()
    for depth in range(layers):
        for head in range(heads):
            axis = axes[depth, head]
            weights = found.weights[depth, head].cpu().numpy()
            axis.imshow(weights, cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
            axis.set_title(f"layer {depth + 1}, head {head + 1}", fontsize=8)
            left, below = head == 0, depth == layers - 1
            names = [shown(token) for token in found.columns] if below else []
            axis.set_xticks(range(columns) if below else [], names, rotation=90, fontsize=6, family=family)
            names = [shown(token) for token in found.rows] if left else []
            axis.set_yticks(range(rows) if left else [], names, fontsize=6, family=family)
    figure.suptitle(drawable(title), fontsize=10, family=family)
    return figure


def without_specials(found: AttentionMap) -> AttentionMap:
    """A map without begin, end and other special tokens; what they had is left out, not shared among the rest."""
    rows = [i for i, token in enumerate(found.rows) if token not in SPECIAL]
    columns = [i for i, token in enumerate(found.columns) if token not in SPECIAL]
    weights: Tensor = found.weights[:, :, rows][..., columns]
    kept = [found.rows[i] for i in rows], [found.columns[i] for i in columns]
    return AttentionMap(*kept, weights, found.grid, found.image)
