"""Pictures of a sweep: its history, its trials as lines across all keys, the importance of each key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from unrolled.see.figures.style import SIZE, style
from unrolled.sweeps.rows import TrialRow, best_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from unrolled.see.figures.canvas import Picture

DPI = 120
PRUNED, FAILED, BEST = "0.65", "#d55e00", "black"
UNUSED = "not used"  # of a key that does nothing in a trial
LONGEST = 14  # characters of a value on an axis


@dataclass(frozen=True)
class Scale:
    """An axis of the lines: the place of every value between 0 and 1, and labels."""

    name: str
    places: Sequence[float]  # of each trial
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class TrialsFigures:
    """The pictures of one sweep's trials."""

    rows: Sequence[TrialRow]
    keys: Sequence[str]
    logarithmic: Sequence[str]  # those of the keys whose range is logarithmic
    metric: str
    higher_is_better: bool
    importance: Mapping[str, float]

    def pictures(self) -> dict[str, bytes]:
        """PNGs by name; without trials to compare there are no lines, and no importance."""
        found: dict[str, bytes] = {}
        with style(SIZE):
            found["history"] = self._history().as_bytes("png", dpi=DPI)
            if len(self.complete) > 1:
                found["parallel"] = self._parallel().as_bytes("png", dpi=DPI)
            if self.importance:
                found["importance"] = self._importance().as_bytes("png", dpi=DPI)
        return found

    @cached_property
    def complete(self) -> list[TrialRow]:
        return [row for row in self.rows if row.state == "complete" and row.score is not None]

    @cached_property
    def pruned(self) -> list[TrialRow]:
        return [row for row in self.rows if row.state == "pruned" and row.score is not None]

    @cached_property
    def best(self) -> TrialRow | None:
        return best_of(self.rows, higher_is_better=self.higher_is_better)

    @property
    def aim(self) -> str:
        return f"validation {self.metric} ({'higher' if self.higher_is_better else 'lower'} is better)"

    def _history(self) -> Picture:
        from matplotlib.ticker import MaxNLocator

        from unrolled.see.figures.canvas import Picture, legend

        figure = Picture(8.5, 7.2)
        above, below = figure.subplots(2, 1)
        above.plot(*_points(self.complete), "o", ms=4, color="C0", label="complete")
        if self.pruned:
            above.plot(*_points(self.pruned), "v", ms=4, mfc="none", color="0.45", label="pruned, its last score")
        self._draw_best(above)
        failed = [row.number for row in self.rows if row.state == "failed"]
        if failed:
            place = above.get_xaxis_transform()
            above.plot(failed, [0.02] * len(failed), "x", ms=5, color=FAILED, transform=place, label="failed")
        above.set(xlabel="trial", ylabel=self.aim)
        above.xaxis.set_major_locator(MaxNLocator(integer=True))
        above.set_xlim(-0.7, max((row.number for row in self.rows), default=0) + 0.7)
        self._scale(above, [row.score for row in (*self.complete, *self.pruned) if row.score is not None])
        legend(above)
        above.grid(alpha=0.3)
        self._draw_curves(below)
        return figure

    def _draw_best(self, axis: Axes) -> None:
        """The best score so far, as steps."""
        best: TrialRow | None = None
        numbers, scores = list[int](), list[float]()
        for row in self.complete:
            best = best_of([*([best] if best else []), row], higher_is_better=self.higher_is_better)
            assert best is not None
            assert best.score is not None
            numbers.append(row.number)
            scores.append(best.score)
        axis.step(numbers, scores, where="post", color=BEST, label="best so far")

    def _draw_curves(self, axis: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        from unrolled.see.figures.canvas import legend

        seen = set[str]()

        def label(text: str) -> str | None:
            known = text in seen
            seen.add(text)
            return None if known else text

        for row in sorted((*self.pruned, *self.complete), key=lambda row: row.state != "pruned"):
            steps, scores = [step for step, _ in row.curve], [score for _, score in row.curve]
            if row.state == "pruned":
                axis.plot(steps, scores, "-", lw=0.8, color=PRUNED, label=label("pruned (ends at ×)"), zorder=1)
                axis.plot(steps[-1:], scores[-1:], "x", ms=5, color="0.3", zorder=2)
            elif self.best is None or row.number != self.best.number:
                mark = "o-" if len(steps) < 2 else "-"
                axis.plot(steps, scores, mark, lw=0.9, color="C0", alpha=0.6, label=label("complete"), zorder=3)
        if self.best is not None:
            points = [step for step, _ in self.best.curve], [score for _, score in self.best.curve]
            axis.plot(*points, "o-", ms=3, lw=1.8, color=BEST, label=f"best, trial {self.best.number}", zorder=4)
        axis.set(xlabel="updates of a trial", ylabel=f"validation {self.metric}")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        self._scale(axis, [score for row in (*self.complete, *self.pruned) for _, score in row.curve])
        legend(axis)
        axis.grid(alpha=0.3)

    def _scale(self, axis: Axes, values: Sequence[float]) -> None:
        """Losses and perplexities, which fall by factors, are drawn on a logarithmic axis."""
        from unrolled.see.figures.canvas import log_axis

        if not self.higher_is_better and values and min(values) > 0:
            log_axis(axis, values)

    def _parallel(self) -> Picture:
        from matplotlib import colormaps

        from unrolled.see.figures.canvas import Picture
        from unrolled.see.figures.labels import drawable

        drawn = [*self.pruned, *self.complete]
        scales = [*(self._scale_of(key, drawn) for key in self.keys), self._scores(drawn)]
        figure = Picture(max(7.0, 1.7 * len(scales) + 0.6), 4.8)
        axis = figure.subplots()
        colours = colormaps["viridis"]
        order = sorted(range(len(drawn)), key=lambda i: (drawn[i].state != "pruned", self._goodness(drawn[i])))
        for index in order:
            row, heights = drawn[index], [scale.places[index] for scale in scales]
            best = self.best is not None and row.number == self.best.number
            colour = PRUNED if row.state == "pruned" else colours(self._goodness(row))
            width = 2.6 if best else 0.7 if row.state == "pruned" else 1.2
            axis.plot(range(len(scales)), heights, "-", color=colour, lw=width, zorder=5 if best else 2, clip_on=False)
        for place, scale in enumerate(scales):
            axis.plot([place, place], [0, 1], "-", color="0.2", lw=0.9, zorder=6)
            for height, text in scale.ticks:
                axis.plot([place - 0.015, place + 0.015], [height, height], "-", color="0.2", lw=0.9, zorder=6)
                axis.text(
                    place + 0.03, height, drawable(text), va="center", ha="left", fontsize="small", zorder=7,
                    bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.8},
                )  # fmt: skip
        axis.set_xticks(range(len(scales)), [drawable(scale.name) for scale in scales])
        axis.tick_params(axis="x", length=0)
        axis.set_yticks([])
        axis.set(xlim=(-0.15, len(scales) - 0.55), ylim=(-0.16 if self._any_unused(drawn) else -0.04, 1.04))
        axis.spines[:].set_visible(False)
        title = "complete trials, coloured by their score; thick: the best"
        axis.set_title(title + ("; grey: pruned" if self.pruned else ""))
        return figure

    def _goodness(self, row: TrialRow) -> float:
        """0 for the worst of the complete trials, 1 for the best."""
        scores = [one.score for one in self.complete if one.score is not None]
        share = ((row.score or 0.0) - min(scores)) / ((max(scores) - min(scores)) or 1.0)
        return share if self.higher_is_better else 1 - share

    def _any_unused(self, drawn: Sequence[TrialRow]) -> bool:
        return any(key not in row.params for row in drawn for key in self.keys)

    def _scale_of(self, key: str, drawn: Sequence[TrialRow]) -> Scale:
        values = [row.params.get(key) for row in drawn]
        used = [value for row, value in zip(drawn, values, strict=True) if key in row.params]
        below = [(-0.12, UNUSED)] if len(used) < len(drawn) else []
        if used and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in used):
            numbers = [float(value) for value in used if value is not None]
            place, ticks = _numeric(numbers, logarithmic=key in self.logarithmic)
            heights = [place(float(row.params[key])) if key in row.params else -0.12 for row in drawn]
            return Scale(key, heights, [*below, *ticks])
        names = sorted({_text(value) for value in used})
        at = {name: 0.5 if len(names) == 1 else i / (len(names) - 1) for i, name in enumerate(names)}
        heights = [at[_text(row.params[key])] if key in row.params else -0.12 for row in drawn]
        return Scale(key, heights, [*below, *((height, name) for name, height in at.items())])

    def _scores(self, drawn: Sequence[TrialRow]) -> Scale:
        place, ticks = _numeric([row.score for row in drawn if row.score is not None], logarithmic=False)
        return Scale(self.metric, [place(row.score or 0.0) for row in drawn], ticks)

    def _importance(self) -> Picture:
        from unrolled.see.figures.canvas import Picture
        from unrolled.see.figures.labels import drawable

        names = list(self.importance)[::-1]
        shares = [100 * self.importance[name] for name in names]
        figure = Picture(7.0, 1.2 + 0.42 * len(names))
        axis = figure.subplots()
        axis.barh([drawable(name) for name in names], shares, color="C0", height=0.6)
        for place, share in enumerate(shares):
            axis.text(share + 0.8, place, f"{share:.0f} %", va="center", fontsize="small")
        axis.set(xlabel="importance for a good score, % (PED-ANOVA)", xlim=(0, max(shares) * 1.12))
        axis.grid(axis="x", alpha=0.3)
        axis.set_axisbelow(True)
        return figure


def _points(rows: Sequence[TrialRow]) -> tuple[list[int], list[float]]:
    return [row.number for row in rows], [row.score for row in rows if row.score is not None]


def _text(value: Any) -> str:
    """A value as a label.

    >>> _text(True), _text("a very long name of something")
    ('true', 'a very long n…')
    """
    text = str(value).lower() if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _numeric(values: Sequence[float], *, logarithmic: bool) -> tuple[Any, list[tuple[float, str]]]:
    """A function from a value to its place between 0 and 1, and ticks."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = min(values), max(values)
    if low == high:
        return lambda value: 0.5, [(0.5, f"{low:.4g}")]
    bend = math.log if logarithmic else float

    def place(value: float) -> float:
        return (bend(value) - bend(low)) / (bend(high) - bend(low))

    locator = LogLocator(subs=(1.0, 2.0, 5.0), numticks=9) if logarithmic else MaxNLocator(6)
    ticks = [float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high]
    ends = [end for end in (low, high) if all(abs(place(end) - place(tick)) > 0.06 for tick in ticks)]
    return place, [(place(tick), f"{tick:.4g}") for tick in sorted([*ticks, *ends])]
