"""The beam of a search as a picture: a tree from left to right (S26)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unrolled.see.labels import fonts, shown
from unrolled.see.trace import ModelTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"winner": "#d55e00", "kept": "#0072b2", "ended": "#009e73", "cut": "#cc79a7", "pruned": "0.7"}


def draw_beams(trace: ModelTrace, layer: str | None = None, units: int = 48) -> Figure:
    """Tokens at their steps, log-probabilities on the edges; what led nowhere is grey, the winner stands out."""
    from matplotlib.figure import Figure

    beams = trace.beams
    assert beams is not None
    heights = beams.places
    longest = max((len(node.token) for node in beams.nodes), default=1)
    steps, leaves = max(node.step for node in beams.nodes), max(heights) + 1
    size = (min(60.0, 1.5 + steps * (0.75 + 0.09 * longest)), min(60.0, 1.2 + 0.3 * leaves))
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    family = fonts()
    for node, height in zip(beams.nodes, heights, strict=True):
        x, y = (beams.nodes[node.parent].step, heights[node.parent]) if node.parent >= 0 else (0, heights[0])
        colour, front = COLOURS[node.fate], 3 if node.fate == "winner" else 2
        axis.plot([x, node.step], [y, height], color=colour, lw=2.2 if node.fate == "winner" else 0.9, zorder=front)
        box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": colour, "lw": 1.0}
        label: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "zorder": front + 3, "family": family}
        axis.text(node.step, height, shown(node.token), bbox=box, **label)
        # on the edge, near the token that it leads to
        axis.text(
            node.step - 0.42, y + (height - y) * 0.58, f"{node.edge:.2f}", fontsize=6, color="0.35", ha="center",
            va="center", zorder=front + 2, bbox={"fc": "white", "ec": "none", "pad": 0.4},
        )  # fmt: skip
    for fate, colour in COLOURS.items():
        if any(node.fate == fate for node in beams.nodes):
            axis.plot([], [], color=colour, label=fate)
    axis.legend(loc="upper right", fontsize=7, ncols=5, bbox_to_anchor=(1.0, 1.12), frameon=False)
    axis.set(xlim=(-0.2, steps + 0.6), ylim=(leaves - 0.4, -0.6), xlabel="step")
    axis.set_yticks([])
    axis.set_xticks(range(steps + 1))
    for side in ("top", "left", "right"):
        axis.spines[side].set_visible(False)
    return figure
