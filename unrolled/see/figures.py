"""Traces as pictures for a paper: one function for each kind, in one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unrolled.errors import UserError, unknown_name
from unrolled.see.attention import draw_attention
from unrolled.see.beam_figure import draw_beams
from unrolled.see.flow import contributions, largest_singular_values
from unrolled.see.frames_figure import draw_frames, draw_lattice
from unrolled.see.labels import GATES, SQUASHED, drawable, fonts, shown
from unrolled.see.trace import ModelTrace, by_distance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
WIDEST = 40.0  # inches
MOST_LABELS = 200  # of the steps
FEW = 40  # steps that are named on both sides of a square


def draw_losses(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """The loss of every step, over what it is about."""
    figure = _wide(len(trace.losses_of), 2.6)
    axis = figure.subplots()
    axis.bar(range(len(trace.losses)), trace.losses.cpu().numpy(), color="#0072b2")
    axis.set_ylabel("loss, nats")
    title = _short(f"{trace.task}: {trace.answer}", int(12 * figure.get_figwidth()))
    axis.set_title(title, fontsize=10, family=fonts())
    _name_steps(axis, trace.losses_of)
    return figure


def draw_states(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    layer = layer or trace.layers[0]
    return _heat(trace, layer, trace.states[layer], units, "states")


def draw_gates(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    layer = layer or next(name for name, gates in trace.gates.items() if gates)
    return _heat(trace, layer, trace.gates[layer], units, "gates")


def _heat(trace: ModelTrace, layer: str, rows: dict[str, Tensor], units: int, kind: str) -> Figure:
    if not rows:
        raise UserError("A vanilla RNN has no gates.", 'Use figure("states").')
    tokens = trace.part_of(layer).tokens
    figure = _wide(len(tokens), 1.2 + 1.9 * len(rows))
    axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, values) in zip(axes, rows.items(), strict=True):
        chosen = values.std(dim=0, correction=0).argsort(descending=True)[:units].sort().values
        limit = 1.0 if name in (*SQUASHED, "h", "g", "n") else float(values.abs().max()) or 1.0
        image = axis.imshow(
            values[:, chosen].T.cpu().numpy(),
            aspect="auto",
            interpolation="nearest",
            cmap="viridis" if name in SQUASHED else "RdBu",
            vmin=0.0 if name in SQUASHED else -limit,
            vmax=limit,
        )
        few = len(chosen) < values.shape[1]
        which = f"{len(chosen)} liveliest of {values.shape[1]}" if few else f"all {len(chosen)}"
        axis.set_ylabel(f"{GATES.get(name, name)}\n{which} units")
        axis.set_yticks([])
        figure.colorbar(image, ax=axis, fraction=0.03, pad=0.01)
    _name_steps(axes[-1], tokens)
    figure.suptitle(f"{kind} of layer {layer}; under each column stands what was just read", fontsize=10)
    return figure


def draw_norms(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """‖h‖ of every layer, and the mean of every gate, over the steps of each part."""
    parts = trace.parts
    figure = _wide(max(len(part.tokens) for part in parts), 0.8 + 4.2 * len(parts))
    axes = figure.subplots(2 * len(parts), 1, squeeze=False)[:, 0]
    for number, part in enumerate(parts):
        above, below = axes[2 * number], axes[2 * number + 1]
        for name, scan in part.trace.scans.items():
            for state, values in scan.states.items():
                above.plot(values[0].detach().norm(dim=-1).cpu().numpy(), "o-", ms=3, label=f"‖{state}‖ {name}")
            for gate, values in scan.gates.items():
                if gate in SQUASHED:
                    below.plot(values[0].detach().mean(-1).cpu().numpy(), "o-", ms=3, label=f"{gate} {name}")
        above.set(ylabel="norm of the state", title=part.name)
        below.set(ylabel="mean of the gate", ylim=(0, 1))
        for axis in (above, below):
            axis.grid(alpha=0.3)
            if axis.get_legend_handles_labels()[0]:
                axis.legend(fontsize=7, ncols=4)
            _name_steps(axis, part.tokens)
    return figure


def draw_gradients(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    return compare_gradients({"": trace}, layer)


def compare_gradients(traces: dict[str, ModelTrace], layer: str | None = None) -> Figure:
    """‖∂L_t/∂h_j‖ of several models side by side, and their curves by distance in one picture."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.5 * (len(traces) + 1), 4.6), layout="constrained")
    *heats, curve = figure.subplots(1, len(traces) + 1, squeeze=False)[0]
    found = {name: (trace, layer or trace.default_layer()) for name, trace in traces.items()}
    tables = {name: trace.gradients(of) for name, (trace, of) in found.items()}
    shades = {name: _logarithm(norms) for name, norms in tables.items()}
    low = min(float(shade.nan_to_num(torch.inf).min()) for shade in shades.values())
    high = max(float(shade.nan_to_num(-torch.inf).max()) for shade in shades.values())
    for axis, (name, (trace, of)) in zip(heats, found.items(), strict=True):
        norms, rows = tables[name], trace.gradient_rows()
        image = axis.imshow(
            shades[name].numpy(), aspect="auto", interpolation="nearest", cmap="magma", vmin=low, vmax=high
        )
        kind = "input" if of in trace.probes else "state"
        axis.set(xlabel=f"{kind} j", ylabel="loss t")
        axis.set_title(f"{drawable(name) or f'every loss to every {kind}'}, {of}", family=fonts())
        if len(rows) < len(trace.losses):
            axis.set_ylabel(f"loss t, {len(rows)} of {len(trace.losses)}")
        aligned = trace.counts_back(of)
        means = by_distance(norms, rows, aligned)
        curve.semilogy(torch.where(means > 0, means, torch.nan).numpy(), "o-", ms=3, label=drawable(name) or of)
        tokens = trace.probes[of].tokens if of in trace.probes else trace.part_of(of).tokens
        if max(len(tokens), len(rows)) <= FEW:
            _name_steps(axis, tokens)
            axis.set_yticks(range(len(rows)), [shown(trace.losses_of[t]) for t in rows], family=fonts(), fontsize=8)
        else:
            for one in (axis.xaxis, axis.yaxis):
                one.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=heats, label="log10 ‖∂L_t/∂h_j‖", fraction=0.05)
    back = all(trace.counts_back(of) for trace, of in found.values())
    distance = "distance t − j" if back else "distance from the last step"
    curve.set(xlabel=distance, ylabel="mean ‖∂L_t/∂h_j‖", title="by distance")
    curve.xaxis.set_major_locator(MaxNLocator(integer=True))
    curve.grid(alpha=0.3)
    if len(traces) > 1:
        curve.legend(prop={"family": fonts()})
    return figure


def draw_flow(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """Each step's largest singular value, and its share of the shared weights' gradient."""
    layer = layer or trace.layers[0]
    tokens = trace.part_of(layer).tokens
    figure = _wide(len(tokens), 6.0)
    above, below = figure.subplots(2, 1)
    above.plot(largest_singular_values(trace, layer).cpu().numpy(), "o-", ms=3, color="#0072b2")
    above.axhline(1.0, color="0.5", ls="--", lw=1)
    above.set(ylabel="σ_max of ∂state_t/∂state_{t−1}", title=f"layer {layer}: above 1 a step can stretch gradients")
    for name, norms in contributions(trace, layer).items():
        if name.startswith("weight"):
            below.semilogy(torch.where(norms > 0, norms, torch.nan).cpu().numpy(), "o-", ms=3, label=name)
    below.set(ylabel="‖∇_{W(t)} L‖", title="each step's own share of the shared weights' gradient")
    below.legend(fontsize=7)
    for axis in (above, below):
        axis.grid(alpha=0.3)
        _name_steps(axis, tokens)
    return figure


DRAWINGS: dict[str, Callable[..., Any]] = {
    "losses": draw_losses,
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
OF_LAYERS = ("states", "gates", "gradients", "flow")  # drawn once for every layer


def save_all(trace: ModelTrace, folder: Path, format: str = "png") -> list[Path]:
    """Every picture there is of a trace, those of layers once for each."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    make_folder(folder)
    made = []
    for kind in trace.kinds:
        layers: list[str | None] = [None]
        if kind in OF_LAYERS and (kind != "gradients" or trace.layers):
            layers = [name for name in trace.layers if kind != "gates" or trace.gates[name]]
        for layer in layers:
            name = [kind, *([layer] if layer and len(trace.layers) > 1 else [])]
            made.append(_saved(trace.figure(kind, layer), folder, name, format))
    for number, map in enumerate(list(trace.attention)[1:], 2):
        made.append(_saved(trace.figure("attention", map=map), folder, ["attention", str(number)], format))
    return made


def _saved(figure: Figure, folder: Path, name: list[str], format: str) -> Path:
    place = folder / ".".join([*name, format])
    figure.savefig(place, dpi=120)
    return place


def make_folder(folder: Path) -> None:
    """The folder that pictures go to."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file.", "Give a folder for the figures.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}.", "Choose another folder.") from None


def _logarithm(norms: Tensor) -> Tensor:
    """log10, NaN where nothing flows, floored at 1e-12."""
    return torch.where(norms > 0, norms.clamp(min=1e-12).log10(), torch.nan)


def _wide(steps: int, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(min(WIDEST, 2.5 + 0.16 * max(steps, 30)), height), layout="constrained")


def _name_steps(axis: Axes, tokens: list[str]) -> None:
    every = -(-len(tokens) // MOST_LABELS)
    places = range(0, len(tokens), every)
    axis.set_xticks(places, [shown(tokens[i]) for i in places], family=fonts("DejaVu Sans Mono"), fontsize=8)
    axis.tick_params(axis="x", rotation=0 if max(map(len, tokens), default=0) <= 2 else 90)


def _short(text: str, most: int) -> str:
    """A title on one line."""
    text = " ".join(text.split())
    return drawable(text if len(text) <= most else f"{text[: most - 1]}…")
