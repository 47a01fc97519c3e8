"""All kinds of figures of a trace, and saving them in a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.see.figures.attention import draw_attention
from unrolled.see.figures.beam import draw_beams
from unrolled.see.figures.forecast import draw_forecast
from unrolled.see.figures.frames import draw_frames, draw_lattice
from unrolled.see.figures.gradients import draw_gradients
from unrolled.see.figures.labels import GATES, SQUASHED, drawable, fonts
from unrolled.see.figures.steps import naming, numbered, short
from unrolled.see.figures.style import read_width, text_size, width_of
from unrolled.see.figures.titles import title_of, whose
from unrolled.see.flow import contributions, largest_singular_values
from unrolled.see.trace import ModelTrace
from unrolled.see.units import most_active, norms_and_means
from unrolled.training.checkpoint import write_atomically

if TYPE_CHECKING:
    from unrolled.see.figures.canvas import Picture

FORMATS = ("png", "svg", "pdf")


def draw_losses(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    """The loss of every step over its target; for a single loss, the likeliest predictions."""
    if len(trace.losses) == 1:
        return _draw_guesses(trace, width)
    from unrolled.see.figures.canvas import Picture

    wide, size = width_of(len(trace.losses), width), text_size(width)
    named = naming(trace.losses_of, wide - 0.08 * size, 0.83 * size)
    title = title_of(trace, wide, size)
    figure = Picture(wide, (0.22 + 0.017 * title.count("\n")) * size + named.height, width is not None)
    axis = figure.subplots()
    axis.bar(range(len(trace.losses)), trace.losses.cpu().numpy(), color="#0072b2")
    unit = "" if trace.task == "forecast" else ", nats"
    axis.set(ylabel=f"loss{whose(trace)}{unit}", xlim=(-0.6, len(trace.losses) - 0.4))
    axis.set_title(title, family=fonts())
    named.write(axis)
    return figure


def _draw_guesses(trace: ModelTrace, width: float | None) -> Picture:
    """The likeliest answers as bars with their probabilities, or, without any, the loss."""
    from unrolled.see.figures.canvas import Picture

    wide, size = width or 6.0, text_size(width)
    guesses = trace.guesses[0][:10] if trace.guesses else []
    bars = guesses or [(trace.losses_of[0], float(trace.losses[0]))]
    title = title_of(trace, wide, size)
    figure = Picture(wide, (0.085 + 0.022 * len(bars) + 0.017 * title.count("\n")) * size, width is not None)
    axis = figure.subplots()
    names = [drawable(short(" ".join(name.split()) or "(nothing)", 30)) for name, _ in bars]
    chosen = [not guesses or name == trace.losses_of[0] for name, _ in bars]
    axis.barh(range(len(bars)), [value for _, value in bars], color=["#0072b2" if one else "0.75" for one in chosen])
    for place, (_, value) in enumerate(bars):
        axis.annotate(
            f"{value:.1%}" if guesses else f"{value:.4g}", (value, place), (0.3 * size, 0), va="center",
            fontsize="small", textcoords="offset points",
        )  # fmt: skip
    axis.set_yticks(range(len(bars)), names, family=fonts())
    largest = max((value for _, value in bars), default=1.0)
    axis.set(ylim=(len(bars) - 0.5, -0.5), xlim=(0, 1.18 * largest or 1.0))
    loss = f"the loss{whose(trace)} is {float(trace.losses[0]):.4g} nats"
    axis.set_xlabel(f"probability; {loss}" if guesses else f"loss{whose(trace)}, nats")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.set_title(title, family=fonts())
    return figure


def draw_states(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    layer = layer or trace.layers[0]
    return _heat(trace, layer, trace.states[layer], units, "states", width)


def draw_gates(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    layer = layer or next(name for name, gates in trace.gates.items() if gates)
    return _heat(trace, layer, trace.gates[layer], units, "gates", width)


def _heat(
    trace: ModelTrace, layer: str, rows: dict[str, Tensor], units: int, kind: str, width: float | None
) -> Picture:
    """One panel per gate or state, all with the same most active units, numbered."""
    if not rows:
        raise UserError("A vanilla RNN has no gates.", 'Use figure("states").')
    from unrolled.see.figures.canvas import Picture, heat

    chosen = chosen_units(trace, layer, units)
    tokens = trace.part_of(layer).tokens
    wide, size = width_of(len(tokens), width), text_size(width)
    named = naming(tokens, wide - 0.13 * size, 0.83 * size)
    panel = (0.11 + 0.0022 * max(map(len, chosen.values()))) * size  # inches
    figure = Picture(wide, 0.04 * size + (panel + 0.03 * size) * len(rows) + named.height, width is not None)
    axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, values) in zip(axes, rows.items(), strict=True):
        these = chosen[values.shape[1]]
        limit = 1.0 if name in (*SQUASHED, "h", "g", "n") else float(values.abs().max()) or 1.0
        low, cmap = (0.0, "viridis") if name in SQUASHED else (-limit, "RdBu")
        image = heat(axis, values[:, these].T.cpu().numpy(), cmap, low, limit)
        axis.set_title(GATES.get(name, name), loc="left")
        axis.set_ylabel("unit")
        numbered(axis, these, panel, 0.7 * size)
        figure.colorbar(image, ax=axis, fraction=0.03, pad=0.01, aspect=22)
    named.write(axes[-1])
    which = ", ".join(_which(these, width) for width, these in chosen.items() if any(
        values.shape[1] == width for values in rows.values()))  # fmt: skip
    figure.suptitle(f"{kind} of layer {layer}, {which}")
    return figure


def chosen_units(trace: ModelTrace, layer: str, most: int) -> dict[int, list[int]]:
    """The units that all panels of a layer show, by layer width: h may be a projection."""
    scan = trace.scans[layer]
    inside = {name: values[0].detach().cpu() for name, values in {**scan.states, **scan.gates}.items()}
    widths = dict.fromkeys(values.shape[1] for values in inside.values())
    return {
        width: most_active({name: values for name, values in inside.items() if values.shape[1] == width}, most)
        for width in widths
    }


def _which(chosen: Sequence[int], count: int) -> str:
    if len(chosen) < count:
        return f"the {len(chosen)} most active of {count} units"
    return f"all {count} units" if count > 1 else "its only unit"


def draw_norms(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    """‖h‖ of every layer, and the mean of every gate, over the steps of each part."""
    from unrolled.see.figures.canvas import Picture, legend, lines

    panels = []  # (part, axis label, lines)
    for part in trace.parts:
        for what, values in zip(("norm", "mean of gate"), norms_and_means(part), strict=True):
            if values:
                panels.append((part, what, {name: value.cpu().numpy() for name, value in values.items()}))
    wide, size = width_of(max(len(part.tokens) for part in trace.parts), width), text_size(width)
    named = {part.name: naming(part.tokens, wide - 0.08 * size, 0.83 * size) for part in trace.parts}
    heights = [
        (0.22 if len(part.tokens) > 1 else 0.08 + 0.022 * len(found)) * size + named[part.name].height
        for part, _, found in panels
    ]
    figure = Picture(wide, sum(heights) + 0.05 * size, width is not None)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (part, what, found) in zip(axes, panels, strict=True):
        lines(axis, found)
        what = f"{part.name} {what}".strip()
        if len(part.tokens) > 1:
            legend(axis)
        axis.grid(alpha=0.3)
        if len(part.tokens) == 1:
            axis.set_xlabel(f"{what} at {named[part.name].names[0]}", family=fonts())
        else:
            axis.set_ylabel(what)
            named[part.name].write(axis)
        if not what.endswith("norm"):
            axis.set(**{"xlim" if len(part.tokens) == 1 else "ylim": (0, 1)})
    return figure


def draw_flow(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    """Each step's largest singular value, and its share of the weights' gradient."""
    from unrolled.see.figures.canvas import Picture, legend, lines, log_axis, say_if_zero

    layer = layer or trace.layers[0]
    tokens = trace.part_of(layer).tokens
    wide, size = width_of(len(tokens), width), text_size(width)
    named = naming(tokens, wide - 0.1 * size, 0.83 * size)
    heights = [1, 1] if len(tokens) > 1 else [1, 2]
    figure = Picture(wide, (0.5 if len(tokens) > 1 else 0.28) * size + named.height, width is not None)
    above, below = figure.subplots(2, 1, sharex=len(tokens) > 1, height_ratios=heights)
    earlier = "t+1" if layer.endswith("_reverse") else "t-1"  # the step of the input state
    stretch = rf"$\sigma_{{\max}}$ of $\partial s_t/\partial s_{{{earlier}}}$"
    share = r"$\Vert\nabla_{W(t)} L\Vert$"
    lines(above, {"": largest_singular_values(trace, layer).cpu().numpy()})
    end = f"_{layer.rpartition('.')[2]}"
    norms = {
        name.removesuffix(end): found.double().cpu().numpy()
        for name, found in contributions(trace, layer).items()
        if name.startswith("weight")
    }
    shares = {name: np.where(found > 0, found, np.nan) for name, found in norms.items()}
    lines(below, shares)
    say_if_zero(below, np.concatenate([*norms.values()]))
    above.set_title(f"layer {layer}: above 1 a step can amplify gradients")
    if len(tokens) == 1:
        above.axvline(1.0, color="0.5", ls="--", lw=1)
        above.set_xlabel(stretch)
        below.set_xlabel(f"share of the weights' gradient, {share}")
        return figure
    above.axhline(1.0, color="0.5", ls="--", lw=1)
    above.set_ylabel(stretch)
    log_axis(below, np.concatenate([*shares.values()]))
    below.set_ylabel(share)
    below.set_title("share of the weights' gradient", loc="left")
    legend(below)
    for axis in (above, below):
        axis.grid(alpha=0.3)
    named.write(below)
    return figure


DRAWINGS: dict[str, Callable[..., Any]] = {
    "losses": draw_losses,
    "forecast": draw_forecast,
    "states": draw_states,
    "gates": draw_gates,
    "norms": draw_norms,
    "gradients": draw_gradients,
    "flow": draw_flow,
    "attention": draw_attention,
    "beams": draw_beams,
    "frames": draw_frames,
    "lattice": draw_lattice,
}
NEEDS: dict[str, Callable[[ModelTrace], bool]] = {
    "losses": lambda trace: True,
    "forecast": lambda trace: bool(trace.forecasts),
    "states": lambda trace: bool(trace.parts),
    "gates": lambda trace: any(scan.gates for scan in trace.scans.values()),
    "norms": lambda trace: bool(trace.parts),
    "gradients": lambda trace: bool(trace.parts or trace.probes),
    "flow": lambda trace: bool(trace.parts),
    "attention": lambda trace: bool(trace.attention),
    "beams": lambda trace: trace.beams is not None,
    "frames": lambda trace: trace.frames is not None,
    "lattice": lambda trace: trace.frames is not None and trace.frames.lattice is not None,
}
OF_LAYERS = ("states", "gates", "gradients", "flow")  # drawn once per layer


def save_all(
    trace: ModelTrace,
    folder: Path,
    format: str = "png",
    width: str | float | None = None,
    only: Sequence[str] | None = None,
) -> list[Path]:
    """Save all figures of a trace, or those named in `only`; figures of layers once per layer."""
    width = read_width(width)
    kinds = trace.kinds if only is None else check_kinds(trace, only)
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    make_folder(folder)
    made = []
    for kind in kinds:
        layers: list[str | None] = [None]
        if kind in OF_LAYERS and (kind != "gradients" or trace.layers):
            layers = [name for name in trace.layers if kind != "gates" or trace.gates[name]]
        for layer in layers:
            name = [kind, *([layer] if layer and len(trace.layers) > 1 else [])]
            made.append(save_figure(trace.figure(kind, layer, width=width), folder, name, format))
        if kind == "attention":
            for number, map in enumerate(list(trace.attention)[1:], 2):
                figure = trace.figure("attention", width=width, map=map)
                made.append(save_figure(figure, folder, ["attention", str(number)], format))
    return made


def check_kinds(trace: ModelTrace, only: Sequence[str]) -> list[str]:
    """Reject figures that this trace does not have."""
    for kind in only:
        if (reason := trace.why_not(kind)) is not None:
            raise UserError(reason, f"Choices: {', '.join(trace.kinds)}.")
    if not only:
        raise UserError("No figure is named.", f"Choices: {', '.join(trace.kinds)}.")
    return list(dict.fromkeys(only))


def save_figure(figure: Any, folder: Path, name: Sequence[str], format: str) -> Path:
    place = folder / ".".join([*name, format])
    try:
        write_atomically(place, figure.as_bytes(format))
    except OSError as error:
        raise UserError(f"{place} cannot be written: {error.strerror}.", "Choose another folder.") from None
    return place


def make_folder(folder: Path) -> None:
    """Create the folder for the figures."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file.", "Give a folder for the figures.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be created: {error.strerror}.", "Choose another folder.") from None
