"""Gradients ‖∂L_t/∂h_j‖ of one or several models, as heat maps and by distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unrolled.see.figures.labels import drawable, fonts
from unrolled.see.figures.steps import naming
from unrolled.see.figures.style import USUAL, read_width, style, text_size, width_of
from unrolled.see.trace import ModelTrace, by_distance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from unrolled.see.figures.canvas import Picture

NORM = r"$\Vert\partial L_t/\partial h_j\Vert$"
MOST_NAMED = 40  # steps that are labelled on both axes of a heat map


def draw_gradients(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    return compare_gradients({"": trace}, layer, width)


def compare_gradients(
    traces: dict[str, ModelTrace], layer: str | None = None, width: str | float | None = None
) -> Picture:
    """‖∂L_t/∂h_j‖ of several models side by side, and their curves by distance.

    For models with a single loss, the norm at every step, in one panel.
    """
    width = read_width(width)
    found = {name: (trace, layer or trace.default_layer()) for name, trace in traces.items()}
    with style(text_size(width)):
        if all(len(trace.losses) == 1 for trace in traces.values()):
            return _single(found, width)
        return _squares(found, width)


def _single(found: dict[str, tuple[ModelTrace, str]], width: float | None) -> Picture:
    """The gradient of a single loss at every step."""
    from unrolled.see.figures.canvas import Picture, lines, log_axis, say_if_zero

    tokens = max((trace.tokens_of(of) for trace, of in found.values()), key=len)
    longest = len(tokens)
    wide, size = width_of(longest, width), text_size(width)
    named = naming(tokens, wide - 0.1 * size, 0.83 * size)
    figure = Picture(wide, (0.28 if longest > 1 else 0.12) * size + named.height, width is not None)
    axis = figure.subplots()
    rows = {name: trace.gradients(of)[0] for name, (trace, of) in found.items()}
    series = {drawable(name) or found[name][1]: _positive(row) for name, row in rows.items()}
    lines(axis, series)
    if say_if_zero(axis, torch.cat(list(rows.values())).cpu().numpy()):
        axis.set_xlim(-0.5, longest - 0.5)
    kind = _kind(*next(iter(found.values())))
    several = len(found) > 1
    axis.set_title("the loss to every " + kind + ("" if several else f", {next(iter(found.values()))[1]}"), loc="left")
    label = r"$\Vert\partial L/\partial h_j\Vert$" if kind == "state" else r"$\Vert\partial L/\partial x_j\Vert$"
    if longest == 1:
        axis.set(xlabel=label, xlim=(0, None))
        return figure
    axis.set_ylabel(label)
    log_axis(axis, np.concatenate([*series.values()]))
    axis.grid(alpha=0.3)
    named.write(axis)
    if several:
        axis.legend(prop={"family": fonts(), "size": "small"})
    return figure


def _squares(found: dict[str, tuple[ModelTrace, str]], width: float | None) -> Picture:
    """A heat map per model, losses × steps, on a common scale; then the means by distance."""
    from unrolled.see.figures.canvas import Picture, heat, say_if_zero

    size, count = text_size(width), len(found)
    stacked = width is not None and width / (count + 1) < 2.2  # a narrow figure is stacked
    wide = width or min(USUAL + 2.0 * (count - 1), 4.6 * (count + 1))
    each = wide if stacked else wide / (count + 1)
    high = min(0.8 * each, 4.4)
    rows, columns = (count + 1, 1) if stacked else (1, count + 1)
    figure = Picture(wide, high * rows + 0.02 * size, width is not None)
    *heats, curve = figure.subplots(rows, columns, squeeze=False).ravel()
    norms = {name: trace.gradients(of) for name, (trace, of) in found.items()}
    shades = {name: _logarithm(table) for name, table in norms.items()}
    low, high_shade = _range(list(shades.values()))
    image = None
    for axis, (name, (trace, of)) in zip(heats, found.items(), strict=True):
        image = heat(axis, shades[name].numpy(), "magma", low, high_shade)
        say_if_zero(axis, norms[name].numpy())
        _label_square(axis, trace, of, drawable(name), each - 0.12 * size, high - 0.1 * size, size)
    assert image is not None
    figure.colorbar(image, ax=heats, label=rf"$\log_{{10}}$ {NORM}", fraction=0.05, pad=0.02, aspect=25)
    _draw_distances(curve, found, norms)
    return figure


def _label_square(axis: Axes, trace: ModelTrace, of: str, name: str, wide: float, high: float, size: float) -> None:
    from matplotlib.ticker import MaxNLocator

    kind, rows, tokens = _kind(trace, of), trace.gradient_rows(), trace.tokens_of(of)
    axis.set(xlabel=f"{kind} $j$", ylabel="loss $t$")
    axis.set_title(f"{name or f'every loss to every {kind}'}, {of}", family=fonts())
    if len(rows) < len(trace.losses):
        axis.set_ylabel(f"loss $t$, {len(rows)} of {len(trace.losses)}")
    across = naming(tokens, wide, 0.83 * size)
    down = naming([trace.losses_of[t] for t in rows], high, 0.83 * size)  # sized as if they were along the x axis
    if max(len(tokens), len(rows)) <= MOST_NAMED and across.names and down.names:
        across.write(axis)
        axis.set_yticks(range(len(rows)), down.names, family=fonts("DejaVu Sans Mono"), fontsize=down.size)
        axis.set_xlabel(f"{kind} $j$")
    else:
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _draw_distances(axis: Axes, found: dict[str, tuple[ModelTrace, str]], norms: dict[str, Tensor]) -> None:
    from matplotlib.ticker import MaxNLocator

    from unrolled.see.figures.canvas import lines, log_axis, say_if_zero

    means = {}
    for name, (trace, of) in found.items():
        mean = by_distance(norms[name], trace.gradient_rows(), trace.counts_back(of))
        means[drawable(name) or of] = _positive(mean)
    lines(axis, means)
    if say_if_zero(axis, np.concatenate([table.numpy().ravel() for table in norms.values()])):
        axis.set_xlim(-0.5, max(map(len, means.values())) - 0.5)
    back = all(trace.counts_back(of) for trace, of in found.values())
    distance = "distance $t - j$" if back else "distance from the last step"
    if max(map(len, means.values())) == 1:
        axis.set(xlabel=f"mean {NORM}", title="of the only step")
        return
    axis.set(xlabel=distance, ylabel=f"mean {NORM}", title="by distance")
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    log_axis(axis, np.concatenate([*means.values()]))
    axis.grid(alpha=0.3)
    if len(found) > 1:
        axis.legend(prop={"family": fonts(), "size": "small"})


def _kind(trace: ModelTrace, of: str) -> str:
    return "input" if of in trace.probes else "state"


def _positive(norms: Tensor) -> np.ndarray:
    return torch.where(norms > 0, norms, torch.nan).double().cpu().numpy()


def _logarithm(norms: Tensor) -> Tensor:
    """log10, floored at 1e-12, NaN where the gradient is 0."""
    return torch.where(norms > 0, norms.clamp(min=1e-12).log10(), torch.nan)


def _range(shades: list[Tensor]) -> tuple[float, float]:
    """The common colour scale."""
    known = torch.cat([shade[shade.isfinite()] for shade in shades])
    if not len(known):
        return -1.0, 0.0
    low, high = float(known.min()), float(known.max())
    return (low, high) if high - low > 1e-3 else (low - 0.5, high + 0.5)
