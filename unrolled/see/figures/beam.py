"""The figure of a search: a tree from left to right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unrolled.see.beams import Beams
from unrolled.see.figures.labels import fonts, plain, shown
from unrolled.see.figures.steps import columns, short
from unrolled.see.figures.style import text_size
from unrolled.see.figures.titles import compared, wrapped
from unrolled.see.trace import ModelTrace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from unrolled.see.figures.canvas import Picture

COLOURS = {"winner": "#d55e00", "kept": "#0072b2", "ended": "#009e73", "cut": "#cc79a7", "pruned": "0.7"}
WIDEST = 30.0  # inches of a tree without a requested width
HIGHEST = 9.0  # inches of a tree that fits on a page
SMALLEST = 4.0  # points
LONGEST = 14  # letters of a token


@dataclass(frozen=True)
class Room:
    """Sizes of a tree: inches per step and leaf, text size, and flags for edge numbers and pruned tokens."""

    step: float
    leaf: float
    points: float
    numbers: bool
    pruned: bool


def draw_beams(trace: ModelTrace, layer: str | None = None, units: int = 48, width: float | None = None) -> Picture:
    """Tokens at their steps, numbers on the edges; pruned tokens are grey, the winner is highlighted.

    In a CTC search a token is at the frame where it appeared, and a band shows how long the search held it.
    In a narrow figure the numbers are left out first, then the pruned tokens.
    """
    from matplotlib.ticker import MaxNLocator

    from unrolled.see.figures.canvas import Picture

    beams = trace.beams
    assert beams is not None
    heights, size = beams.places, text_size(width)
    leaves, room = max(heights) + 1, room_for(beams, width)
    wide = width or min(WIDEST, max(4.0, 0.15 * size + room.step * beams.steps))
    title = wrapped(compared(trace), wide, size)
    high = (0.09 + 0.02 * len(title.splitlines())) * size + room.leaf * leaves
    figure = Picture(wide, high, width is not None)
    axis = figure.subplots()
    if title:
        figure.suptitle(title, family=fonts())
    root = sum(heights[i] for i, node in enumerate(beams.nodes) if node.parent < 0)
    root /= sum(node.parent < 0 for node in beams.nodes)
    for i, node in enumerate(beams.nodes):
        start = (beams.nodes[node.parent].step, heights[node.parent]) if node.parent >= 0 else (0, root)
        _draw_node(axis, beams, i, heights[i], start, room)
    for fate, colour in COLOURS.items():
        if any(node.fate == fate for node in beams.nodes):
            axis.plot([], [], color=colour, label=fate)
    axis.legend(
        loc="lower right", ncols=5, bbox_to_anchor=(1.0, 1.0), frameon=False, columnspacing=0.8, handlelength=1.0,
        handletextpad=0.4, borderaxespad=0.1,
    )  # fmt: skip
    longest = max((columns(short(plain(node.token), LONGEST)) for node in beams.nodes), default=1)
    beyond = (0.35 * longest + 0.5) * room.points / 72 / room.step  # of the last token, in steps
    axis.set(xlim=(-0.15 / room.step, beams.steps + beyond), ylim=(leaves - 0.4, -0.6))
    axis.set_yticks([])
    edges = "" if not room.numbers else "; on the edges, log-probabilities"
    if beams.frames is None:
        axis.set_xlabel(f"step{edges}")
        axis.xaxis.set_major_locator(MaxNLocator(nbins=max(2, min(beams.steps, 20)), integer=True))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        edges = "" if not room.numbers else "; on the edges, the largest share of the held probability"
        long = f"frames read; bands: frames that held the token{edges}"
        axis.set_xlabel(long if 0.55 * size * len(long) < 72 * wide else "frames read; bands: frames held")
    for side in ("top", "left", "right"):
        axis.spines[side].set_visible(False)
    return figure


def _draw_node(axis: Axes, beams: Beams, number: int, height: float, start: tuple[float, float], room: Room) -> None:
    """A token, its edge from `start`, and the number on the edge."""
    node, (x, y) = beams.nodes[number], start
    colour, front = COLOURS[node.fate], 3 if node.fate == "winner" else 2
    thin = room.points / 8
    line: dict[str, Any] = {"color": colour, "lw": (2.2 if node.fate == "winner" else 0.9) * thin, "zorder": front}
    token = short(plain(node.token), LONGEST)
    beside = min((0.33 * columns(token) + 2.1) * room.points / 72 / room.step, 0.5 * (node.step - x))
    if beams.frames is None:  # the last part is horizontal and has the number, so that numbers do not overlap
        knee = node.step - (min(1.7 * beside, 0.7) if room.numbers else 0.0)
        axis.plot([x, knee, node.step], [y, height, height], solid_joinstyle="round", **line)
    else:  # long straight edges would cross other tokens
        axis.plot([x, x, node.step], [y, height, height], **line)
        axis.plot([node.step, node.last], [height, height], color=colour, lw=7 * thin, alpha=0.25, zorder=1)
    if node.fate == "pruned" and not room.pruned:
        return
    label: dict[str, Any] = {"ha": "center", "va": "center", "zorder": front + 3, "family": fonts()}
    box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": colour, "lw": thin}
    axis.text(node.step, height, shown(token), fontsize=room.points, bbox=box, **label)
    if not room.numbers:
        return
    axis.text(
        node.step - beside, height, f"{node.edge:.2f}", fontsize=0.75 * room.points, color="0.35", ha="center",
        va="center", zorder=front + 2, bbox={"fc": "white", "ec": "none", "pad": 0.4},
    )  # fmt: skip


def room_for(beams: Beams, width: float | None) -> Room:
    """Sizes for the tokens and, if they fit, the numbers between them."""
    size = text_size(width)
    leaves = max(beams.places) + 1
    longest = max((columns(short(plain(node.token), LONGEST)) for node in beams.nodes), default=1)
    nearest = _nearest(beams)
    points = 0.8 * size
    token, number = (0.66 * longest + 1.0) / 72, 2.2 / 72  # inches, of text of one point
    if width is None:
        step = (token + number) * points / nearest
        step = max(step, 5.0 / beams.steps) if beams.frames is not None else step
        step = min(step, (WIDEST - 1.5) / beams.steps)
        return Room(step, 0.03 * size, min(points, max(SMALLEST, step * nearest / token)), step * nearest > 0.9 * (
            token + number) * points, pruned=True)  # fmt: skip
    step = (width - 0.05 * size) / (beams.steps + 0.5)
    numbers = step * nearest >= (token + number) * 0.75 * points
    points = min(points, step * nearest / (token + (number if numbers else 0.0)))
    leaf = min(0.026 * size, HIGHEST / leaves)
    points = max(min(points, 72 * leaf / 1.5), SMALLEST)
    return Room(step, leaf, points, numbers, pruned=step * nearest >= token * SMALLEST and 72 * leaf >= 1.1 * SMALLEST)


def _nearest(beams: Beams) -> float:
    """Steps between a token and its parent: 1, or, in a CTC search, the 10th percentile."""
    if beams.frames is None:
        return 1.0
    before = [0 if node.parent < 0 else beams.nodes[node.parent].step for node in beams.nodes]
    apart = sorted(max(1, node.step - step) for node, step in zip(beams.nodes, before, strict=True))
    return float(apart[len(apart) // 10])
