"""A search as a picture: a tree from left to right (S26)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unrolled.see.beams import Beams
from unrolled.see.labels import fonts, shown
from unrolled.see.trace import ModelTrace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"winner": "#d55e00", "kept": "#0072b2", "ended": "#009e73", "cut": "#cc79a7", "pruned": "0.7"}
WIDEST = 60.0  # inches
BESIDE = 0.35  # inches between a token and the number on the edge that leads to it


def draw_beams(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """Tokens at their steps, numbers on the edges; what led nowhere is grey, the winner stands out.

    Of a search over frames a token stands at the frame where it came up, and a band shows how long it was held.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    beams = trace.beams
    assert beams is not None
    heights = beams.places
    leaves, inches = max(heights) + 1, _inches_per_step(beams)
    figure = Figure(figsize=(1.5 + inches * beams.steps, min(WIDEST, 1.2 + 0.3 * leaves)), layout="constrained")
    axis = figure.subplots()
    root = sum(heights[i] for i, node in enumerate(beams.nodes) if node.parent < 0)
    root /= sum(node.parent < 0 for node in beams.nodes)
    for i, node in enumerate(beams.nodes):
        start = (beams.nodes[node.parent].step, heights[node.parent]) if node.parent >= 0 else (0, root)
        _draw_node(axis, beams, i, heights[i], start, BESIDE / inches)
    for fate, colour in COLOURS.items():
        if any(node.fate == fate for node in beams.nodes):
            axis.plot([], [], color=colour, label=fate)
    # above the picture, however high it is
    axis.legend(loc="lower right", fontsize=7, ncols=5, bbox_to_anchor=(1.0, 1.0), frameon=False)
    axis.set(xlim=(-0.2 / inches, beams.steps + 0.5 / inches), ylim=(leaves - 0.4, -0.6))
    axis.set_yticks([])
    if beams.frames is None:
        axis.set_xlabel("step; on the edges, log-probabilities")
        axis.set_xticks(range(beams.steps + 1))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel("frames read; a band: held so long; on the edges, the largest share among all that was held")
    for side in ("top", "left", "right"):
        axis.spines[side].set_visible(False)
    return figure


def _draw_node(axis: Axes, beams: Beams, number: int, height: float, start: tuple[float, float], beside: float) -> None:
    """A token, the edge that leads to it from `start`, and the number on it."""
    node, (x, y) = beams.nodes[number], start
    colour, front = COLOURS[node.fate], 3 if node.fate == "winner" else 2
    line: dict[str, Any] = {"color": colour, "lw": 2.2 if node.fate == "winner" else 0.9, "zorder": front}
    beside = min(beside, 0.5 * (node.step - x))
    if beams.frames is None:
        axis.plot([x, node.step], [y, height], **line)
        on_edge = y + (height - y) * (1 - beside / (node.step - x))
    else:  # edges are long, and straight ones would run through other tokens
        axis.plot([x, x, node.step], [y, height, height], **line)
        axis.plot([node.step, node.last], [height, height], color=colour, lw=7, alpha=0.25, zorder=1)
        on_edge = height
    label: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "zorder": front + 3, "family": fonts()}
    box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": colour, "lw": 1.0}
    axis.text(node.step, height, shown(node.token), bbox=box, **label)
    axis.text(
        node.step - beside, on_edge, f"{node.edge:.2f}", fontsize=6, color="0.35", ha="center", va="center",
        zorder=front + 2, bbox={"fc": "white", "ec": "none", "pad": 0.4},
    )  # fmt: skip


def _inches_per_step(beams: Beams) -> float:
    """Room for tokens, and for the number between two of them."""
    longest = max((len(node.token) for node in beams.nodes), default=1)
    room = 0.75 + 0.09 * longest
    if beams.frames is not None:
        steps = [0 if node.parent < 0 else beams.nodes[node.parent].step for node in beams.nodes]
        nearest = min(max(1, node.step - before) for node, before in zip(beams.nodes, steps, strict=True))
        room = max(5.0 / beams.steps, room / nearest)
    return min(room, (WIDEST - 1.5) / beams.steps)
