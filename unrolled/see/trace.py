"""What a model did with one input: states, gates, losses, attention and search."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from unrolled.cells import ScanTrace, Trace
from unrolled.errors import UserError, unknown_name
from unrolled.nn.dropin import DropIn
from unrolled.see.beams import Beams
from unrolled.see.frames import Frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unrolled.see.attribution import Attribution
    from unrolled.see.by_hand import ByHand
    from unrolled.see.places import Places

EXACT_STEPS = 512  # as many losses are followed back one by one
SAMPLED_ROWS = 64  # of more, at most so many, evenly spread
AT_ONCE = EXACT_STEPS**2  # steps that all followed losses go back together, which bounds the time
KEPT = 30  # numbers that a trace keeps of each unit at each step
Guesses = list[tuple[str, float]]
"""What the model thought likeliest, with probabilities, the best first."""


@dataclass(frozen=True)
class Part:
    """Recurrent layers that read one sequence, and the token, word or row at each of their steps."""

    name: str  # "" where a model has one such part, else "encoder" or "decoder"
    tokens: list[str]
    trace: Trace


@dataclass(frozen=True)
class AttentionMap:
    """Where each of `rows` looked among `columns`; of an RNN one layer and head. `grid` cuts an image into regions."""

    rows: list[str]
    columns: list[str]
    weights: Tensor  # (L, N, T, S)
    grid: tuple[int, int] | None = None  # regions down and across, where the columns are parts of an image
    image: Tensor | None = None  # (height, width) or (height, width, 3), 0 to 1


@dataclass(frozen=True)
class Forecasts:
    """One target at one horizon: what was forecast for each row, and what came, NaN where it is not known."""

    rows: list[int]  # that the numbers are about, from 0
    forecast: list[float]
    truth: list[float]


class Probe:
    """Stands between a network's input vectors and its layers: hides some, and lets each be asked for its gradient."""

    def __init__(self, tokens: Sequence[str], hidden: Sequence[int] = ()) -> None:
        self.tokens, self.hidden = list(tokens), check_places(hidden, len(tokens))
        self.added: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Vectors (1, T, D) as they were, but zeros at the hidden places."""
        if self.hidden:
            kept = torch.ones(x.shape[1], 1, device=x.device)
            kept[self.hidden] = 0
            x = x * kept
        self.added = torch.zeros_like(x).requires_grad_()
        return x + self.added


@dataclass(frozen=True, repr=False)
class ModelTrace:
    """A model's inside on one input. A task fills in what there is; everything else follows from that.

    `figure(kind)` draws it, `kinds` are those there are; `missing` says why others are not. Layers are named as torch
    names parameters, "l0", "l0_reverse", with "encoder." or "decoder." before them where there are two.
    """

    task: str
    answer: str
    losses_of: list[str]  # what each loss is about: the next token, a word's tag, a row
    _losses: Tensor  # (K,), with its graph
    parts: tuple[Part, ...] = ()
    probes: dict[str, Probe] = field(default_factory=dict)
    guesses: list[Guesses] = field(default_factory=list)  # for each loss
    aligned: str | None = None  # the part, or probe, at whose step t loss t was made
    attention: dict[str, AttentionMap] = field(default_factory=dict)
    beams: Beams | None = None
    frames: Frames | None = None  # CTC
    reasons: dict[str, str] = field(default_factory=dict)  # why there may be no figure of a kind
    truth: str | None = None  # what the answer should be, where it is known
    right: bool | None = None  # whether it is
    follows: str = "answer"  # whose losses these are: the truth's, the answer's, or of what was asked for
    compared: list[tuple[str, str, str]] = field(default_factory=list)  # of taggers: word, true tag, answered tag
    forecasts: dict[str, Forecasts] = field(default_factory=dict)
    attribute: Callable[[], Attribution] | None = None
    notes: tuple[str, ...] = ()  # what to know about the losses

    def __repr__(self) -> str:
        loss = float(self.losses.mean())
        return f"ModelTrace({self.task}, {len(self.tokens)} steps, mean loss {loss:.3f}: {self.summary})"

    @property
    def summary(self) -> str:
        """The answer, and the truth beside it where it is known."""
        return self.answer if self.truth is None else f"{self.answer} (truth: {self.truth})"

    @property
    def attribution(self) -> Attribution:
        """How much each word speaks for the label whose loss is followed: see `Attribution`."""
        if self.attribute is None:
            raise UserError(
                "There are no words to weigh.", "Words are weighed for labels: look at a classifier that reads text."
            )
        return self.attribute()

    @property
    def tokens(self) -> list[str]:
        """What stood at each step of the input."""
        first = self.parts[0].tokens if self.parts else next(iter(self.probes.values())).tokens
        return first

    @property
    def losses(self) -> Tensor:
        """L_t, (K,)."""
        return self._losses.detach()

    @property
    def scans(self) -> dict[str, ScanTrace]:
        """Every layer and direction, by name."""
        found = ((part, name, scan) for part in self.parts for name, scan in part.trace.scans.items())
        return {f"{part.name}.{name}" if part.name else name: scan for part, name, scan in found}

    @property
    def layers(self) -> list[str]:
        return list(self.scans)

    def part_of(self, layer: str) -> Part:
        """The part that a layer belongs to."""
        self.check_layer(layer)
        name = layer.rpartition(".")[0]
        return next(part for part in self.parts if part.name == name)

    @property
    def gates(self) -> dict[str, dict[str, Tensor]]:
        """`gates["l0"]["f"]`, (T, H)."""
        return {name: {gate: v[0].detach() for gate, v in scan.gates.items()} for name, scan in self.scans.items()}

    @property
    def states(self) -> dict[str, dict[str, Tensor]]:
        """`states["l0"]["h"]`, (T, H)."""
        return {name: {state: v[0].detach() for state, v in scan.states.items()} for name, scan in self.scans.items()}

    def values(self, layer: str, quantity: str) -> Tensor:
        """A gate or state by name, (T, H): `values("l0", "f")`."""
        self.check_layer(layer)
        scan = self.scans[layer]
        known = {**scan.states, **scan.gates}
        if quantity not in known:
            raise unknown_name("gate or state", quantity, known)
        return known[quantity][0].detach()

    def gradient_rows(self, most: int | None = None) -> list[int]:
        """The losses that are followed back: all of up to 512, of more at most 64, or `most`, evenly spread."""
        count = len(self._losses)
        if most is None:
            most = EXACT_STEPS if count <= EXACT_STEPS else max(4, min(SAMPLED_ROWS, AT_ONCE // len(self.tokens)))
        return spread(count, most)

    def gradients(self, of: str | None = None, most: int | None = None) -> Tensor:
        """‖∂L_t/∂h_j‖, (losses, steps): row t for each of `gradient_rows(most)`, column j for each step of a layer.

        `of` is a layer, the first if none is given, or one of `probes`: input vectors instead of states.
        """
        of = self.default_layer() if of is None else of
        if of in self.probes:
            wanted = self.probes[of].added
            assert wanted is not None
        else:
            self.check_layer(of)
            wanted = next(iter(self.scans[of].probes.values()))
        rows = []
        for t in self.gradient_rows(most):
            (gradient,) = torch.autograd.grad(self._losses[t], wanted, retain_graph=True, allow_unused=True)
            found = torch.zeros_like(wanted) if gradient is None else gradient
            rows.append(found[0].norm(dim=-1).detach().cpu())
        return torch.stack(rows)

    def by_distance(self, of: str | None = None) -> Tensor:
        """The mean of ‖∂L_t/∂h_{t-d}‖ over t, for every distance d, (T,); of a single loss, d counts from the end."""
        return by_distance(self.gradients(of), self.gradient_rows(), self.counts_back(of))

    def counts_back(self, of: str | None = None) -> bool:
        """Whether loss t belongs to step t; if not, distances are counted from the last step."""
        of = self.default_layer() if of is None else of
        home = of if of in self.probes else self.part_of(of).name
        return self.aligned == home

    def units_like(
        self, mark: Sequence[float], layer: str | None = None, quantity: str = "h"
    ) -> list[tuple[int, float]]:
        """Units whose values go with a mark made on the tokens: (unit, correlation), the strongest first.

        `mark` has a number for each token: 1 inside quotes and 0 outside, the place in the line, …
        """
        values = self.values(self.default_layer() if layer is None else layer, quantity).double()
        wanted = torch.tensor(list(mark), dtype=torch.float64)
        if len(wanted) != len(values):
            raise UserError(f"The mark has {len(wanted)} numbers.", f"Expected one for each of {len(values)} steps.")
        if float(wanted.std(correction=0)) == 0:
            raise UserError("The mark is the same everywhere.", "Mark some tokens, and not all of them.")
        centred, wanted = values.cpu() - values.cpu().mean(0), wanted - wanted.mean()
        spread = centred.norm(dim=0) * wanted.norm()
        correlations = torch.where(spread > 0, (centred.T @ wanted) / spread.clamp(min=1e-30), 0.0)
        order = correlations.abs().argsort(descending=True, stable=True)
        return [(int(unit), float(correlations[unit])) for unit in order]

    def by_hand(self, step: int, unit: int, layer: str | None = None) -> ByHand:
        """Every equation of one step with the numbers of one unit; `print` it."""
        from unrolled.see.by_hand import by_hand

        return by_hand(self, step, unit, layer)

    def places(self, unit: int, layer: str | None = None, quantity: str = "h", count: int = 20) -> Places:
        """Where a unit is most, and least, active: the steps, and what stands around them; `print` it."""
        from unrolled.see.places import places

        return places(self, unit, layer, quantity, count)

    @property
    def kinds(self) -> list[str]:
        """What `figure` can draw."""
        from unrolled.see.figures.kinds import DRAWINGS

        return [kind for kind in DRAWINGS if self.why_not(kind) is None]

    @property
    def missing(self) -> dict[str, str]:
        """What `figure` cannot draw, and why."""
        return {kind: why for kind, why in self.reasons.items() if kind not in self.kinds}

    def why_not(self, kind: str) -> str | None:
        """Why there is no such figure; None: there is."""
        from unrolled.see.figures.kinds import NEEDS

        if kind not in NEEDS:
            raise unknown_name("figure", kind, NEEDS)
        return None if NEEDS[kind](self) else self.reasons.get(kind, f"A model of {self.task} has no {kind}.")

    def figure(
        self,
        kind: str = "gates",
        layer: str | None = None,
        units: int = 48,
        width: str | float | None = None,
        **options: object,
    ) -> Figure:
        """Draws one aspect, of one layer where it is one of layers; of many units, those that move most.

        `width` is in inches, or "column" or "page" of a paper; without it, what is drawn decides.
        """
        from unrolled.see.figures.kinds import DRAWINGS
        from unrolled.see.figures.style import read_width, style, text_size

        if (reason := self.why_not(kind)) is not None:
            raise UserError(reason, f"There are: {', '.join(self.kinds)}.")
        if layer is not None and layer not in self.probes:
            self.check_layer(layer)
        inches = read_width(width)
        with style(text_size(inches)):
            figure: Figure = DRAWINGS[kind](self, layer, units, inches, **options)
        return figure

    def save(
        self,
        folder: str | Path,
        format: str = "png",
        width: str | float | None = None,
        only: Sequence[str] | None = None,
    ) -> list[Path]:
        """Draws everything there is to see, or the figures named in `only`, into a folder: PNG, SVG or PDF."""
        from unrolled.see.figures.kinds import save_all

        return save_all(self, Path(folder), format, width, only)

    def _repr_html_(self) -> str:
        """What a notebook shows: the losses over the tokens, and what else there is to see."""
        from unrolled.see.notebook import as_html

        return as_html(self)

    def default_layer(self) -> str:
        """The first layer; of a model without any, the first input."""
        names = [*self.scans, *self.probes]
        return names[0]

    def first_layer(self) -> str:
        """The first recurrent layer."""
        if (reason := self.why_not("states")) is not None:
            raise UserError(reason)
        return self.layers[0]

    def check_layer(self, layer: str) -> None:
        if layer not in self.scans:
            raise unknown_name("layer", layer, self.scans)


def spread(count: int, most: int) -> list[int]:
    """Numbers from 0 to count − 1: all, or at most so many, evenly spread.

    >>> spread(5, 9), spread(30, 5)
    ([0, 1, 2, 3, 4], [0, 7, 14, 22, 29])
    """
    if count <= most:
        return list(range(count))
    return torch.linspace(0, count - 1, max(1, most), dtype=torch.float64).round().long().tolist()


def by_distance(norms: Tensor, rows: Sequence[int], aligned: bool) -> Tensor:
    """The mean over rows t of column t - d, or of column T - 1 - d where rows are no steps, for every d."""
    steps = norms.shape[1]
    ends = torch.tensor(rows) if aligned else torch.full((len(rows),), steps - 1)
    columns = ends[:, None] - torch.arange(steps)  # (R, T): which state is d steps back
    there = (columns >= 0) & (columns < steps)
    found = norms.gather(1, columns.clamp(0, steps - 1)) * there
    return found.sum(0) / there.sum(0).clamp(min=1)


def check_places(places: Sequence[int], count: int) -> list[int]:
    """Places of tokens that a user named."""
    for place in places:
        if not 0 <= place < count:
            raise UserError(f"There is no token {place} to hide.", f"Expected places from 0 to {count - 1}.")
    return list(places)


def check_memory(steps: int, network: nn.Module, what: str = "tokens") -> None:
    """Refuses an input whose trace would not fit, and says what does."""
    free, each = free_memory(), bytes_per_step(network)
    if steps * each > free:
        raise UserError(
            f"The input has {steps:,} {what}: its trace needs about {steps * each / 2**30:.1f} GiB, "
            f"and {free / 2**30:.1f} GiB are free for it.",
            f"Give at most {max(1, free // each):,} {what}.",
        )


def bytes_per_step(network: nn.Module) -> int:
    """What a trace keeps of a step, roughly: gates, states, probes and buffers of every layer, and the scores."""
    numbers = 0
    for module in network.modules():
        if isinstance(module, DropIn):
            numbers += KEPT * module.hidden_size * module.num_layers * (2 if module.bidirectional else 1)
        elif isinstance(module, nn.Linear):
            numbers += 3 * module.out_features
    return 4 * numbers


def free_memory() -> int:
    """Bytes that a trace may take: half of what the machine has free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
