"""The trace of a model on one input: states, gates, losses, attention and search."""

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

EXACT_STEPS = 512  # up to this count, the gradient of every loss is computed
SAMPLED_ROWS = 64  # of more losses, at most this many, evenly spread
AT_ONCE = EXACT_STEPS**2  # backward steps of all sampled losses together, which bounds the time
KEPT = 30  # numbers that a trace stores per unit and step
Guesses = list[tuple[str, float]]
"""The likeliest predictions with their probabilities, best first."""


@dataclass(frozen=True)
class Part:
    """Recurrent layers that read one sequence, and the token, word or row at each of their steps."""

    name: str  # "" where a model has one such part, else "encoder" or "decoder"
    tokens: list[str]
    trace: Trace


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of `rows` over `columns`, (1, 1, T, S) for an RNN. `grid` divides an image into regions."""

    rows: list[str]
    columns: list[str]
    weights: Tensor  # (L, N, T, S)
    grid: tuple[int, int] | None = None  # rows and columns of regions, if the columns are parts of an image
    image: Tensor | None = None  # (height, width) or (height, width, 3), 0 to 1
    hard: bool = False  # only the column with the largest weight was read


@dataclass(frozen=True)
class Forecasts:
    """Forecasts and true values of one target at one horizon; unknown true values are NaN."""

    rows: list[int]  # row numbers, from 0
    forecast: list[float]
    truth: list[float]


class Probe:
    """A hook between a network's input vectors and its layers: hides tokens and exposes input gradients."""

    def __init__(self, tokens: Sequence[str], hidden: Sequence[int] = ()) -> None:
        self.tokens, self.hidden = list(tokens), check_places(hidden, len(tokens))
        self.added: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The vectors (1, T, D) with zeros at the hidden positions."""
        if self.hidden:
            kept = torch.ones(x.shape[1], 1, device=x.device)
            kept[self.hidden] = 0
            x = x * kept
        self.added = torch.zeros_like(x).requires_grad_()
        return x + self.added


@dataclass(frozen=True, repr=False)
class ModelTrace:
    """The internals of a model on one input. The task sets the fields; everything else is computed from them.

    `figure(kind)` draws one of `kinds`; `missing` gives the reasons for the others. Layers are named as torch names
    parameters, "l0", "l0_reverse", with the prefix "encoder." or "decoder." in models that have both.
    """

    task: str
    answer: str
    losses_of: list[str]  # the target of each loss: the next token, a word's tag, a row
    _losses: Tensor  # (K,), with its graph
    parts: tuple[Part, ...] = ()
    probes: dict[str, Probe] = field(default_factory=dict)
    guesses: list[Guesses] = field(default_factory=list)  # for each loss
    aligned: str | None = None  # the part or probe whose step t predicts loss t
    attention: dict[str, AttentionMap] = field(default_factory=dict)
    beams: Beams | None = None
    frames: Frames | None = None  # CTC
    reasons: dict[str, str] = field(default_factory=dict)  # figure kind → reason it is unavailable
    truth: str | None = None  # the correct answer, if known
    right: bool | None = None  # answer == truth, if known
    follows: str = "answer"  # the target of the losses: truth, answer, or a requested label or text
    compared: list[tuple[str, str, str]] = field(default_factory=list)  # of taggers: word, true tag, predicted tag
    forecasts: dict[str, Forecasts] = field(default_factory=dict)
    attribute: Callable[[], Attribution] | None = None
    notes: tuple[str, ...] = ()  # remarks about the losses
    _norms: dict[tuple[int, ...], dict[str, Tensor]] = field(default_factory=dict, init=False)  # by the losses

    def __repr__(self) -> str:
        loss = float(self.losses.mean())
        return f"ModelTrace({self.task}, {len(self.tokens)} steps, mean loss {loss:.3f}: {self.summary})"

    @property
    def summary(self) -> str:
        """The answer, and the truth if it is known."""
        return self.answer if self.truth is None else f"{self.answer} (truth: {self.truth})"

    @property
    def attribution(self) -> Attribution:
        """The contribution of each word to the label of the loss: see `Attribution`."""
        if self.attribute is None:
            raise UserError("This model has no word attribution.", "Only classifiers of text have one.")
        return self.attribute()

    @property
    def tokens(self) -> list[str]:
        """The token at each step of the input."""
        return self.tokens_of(self.default_layer())

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

    def tokens_of(self, of: str) -> list[str]:
        """The tokens at the steps of a layer or probe."""
        return self.probes[of].tokens if of in self.probes else self.part_of(of).tokens

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
        """The losses with gradients: all of up to 512, of more at most 64, or `most`, evenly spread."""
        count = len(self._losses)
        if most is None:
            most = EXACT_STEPS if count <= EXACT_STEPS else max(4, min(SAMPLED_ROWS, AT_ONCE // len(self.tokens)))
        return spread(count, most)

    def gradients(self, of: str | None = None, most: int | None = None) -> Tensor:
        """‖∂L_t/∂h_j‖, (losses, steps): row t for each of `gradient_rows(most)`, column j for each step of a layer.

        `of` is a layer (default: the first) or one of `probes`, for input vectors instead of states.
        """
        of = self.default_layer() if of is None else of
        if of not in self.probes:
            self.check_layer(of)
        rows = tuple(self.gradient_rows(most))
        if rows not in self._norms:
            self._norms[rows] = self._gradient_norms(rows)
        return self._norms[rows][of]

    def _gradient_norms(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The norms at every layer and probe: one way back through the network passes them all."""
        wanted = {name: next(iter(scan.probes.values())) for name, scan in self.scans.items()}
        wanted |= {name: probe.added for name, probe in self.probes.items() if probe.added is not None}
        found: dict[str, list[Tensor]] = {name: [] for name in wanted}
        for t in rows:
            inputs = list(wanted.values())
            gradients = torch.autograd.grad(
                self._losses[t], inputs, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for norms, gradient in zip(found.values(), gradients, strict=True):
                norms.append(gradient[0].norm(dim=-1).detach().cpu())
        return {name: torch.stack(norms) for name, norms in found.items()}

    def by_distance(self, of: str | None = None) -> Tensor:
        """The mean of ‖∂L_t/∂h_{t-d}‖ over t for every distance d, (T,); see `counts_back`."""
        return by_distance(self.gradients(of), self.gradient_rows(), self.counts_back(of))

    def counts_back(self, of: str | None = None) -> bool:
        """True if loss t belongs to step t; if not, distances are counted from the last step."""
        of = self.default_layer() if of is None else of
        home = of if of in self.probes else self.part_of(of).name
        return self.aligned == home

    def units_like(
        self, mark: Sequence[float], layer: str | None = None, quantity: str = "h"
    ) -> list[tuple[int, float]]:
        """Units by their correlation with a mark on the tokens: (unit, correlation), strongest first.

        `mark` has a number for each token: 1 inside quotes and 0 outside, the position in the line, …
        """
        values = self.values(self.default_layer() if layer is None else layer, quantity).double()
        wanted = torch.tensor(list(mark), dtype=torch.float64)
        if len(wanted) != len(values):
            raise UserError(f"The mark has {len(wanted)} numbers.", f"Expected one for each of {len(values)} steps.")
        if float(wanted.std(correction=0)) == 0:
            raise UserError("The mark is the same for all tokens.", "Mark some tokens, but not all.")
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
        """The steps where a unit is most and least active, with the text around them; `print` it."""
        from unrolled.see.places import places

        return places(self, unit, layer, quantity, count)

    @property
    def kinds(self) -> list[str]:
        """The kinds that `figure` can draw."""
        from unrolled.see.figures.kinds import DRAWINGS

        return [kind for kind in DRAWINGS if self.why_not(kind) is None]

    @property
    def missing(self) -> dict[str, str]:
        """The kinds that `figure` cannot draw, with the reasons."""
        return {kind: why for kind, why in self.reasons.items() if kind not in self.kinds}

    def why_not(self, kind: str) -> str | None:
        """Reason a figure is unavailable, or None."""
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
        """Draw one kind of figure; figures of states show one layer and its `units` most active units.

        `width` is in inches, or "column" or "page" of a paper; without it, the content decides.
        """
        from unrolled.see.figures.kinds import DRAWINGS
        from unrolled.see.figures.style import read_width, style, text_size

        if (reason := self.why_not(kind)) is not None:
            raise UserError(reason, f"Choices: {', '.join(self.kinds)}.")
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
        """Save all figures, or those named in `only`, in a folder: PNG, SVG or PDF."""
        from unrolled.see.figures.kinds import save_all

        return save_all(self, Path(folder), format, width, only)

    def _repr_html_(self) -> str:
        """The notebook view: losses over the tokens and one figure."""
        from unrolled.see.notebook import as_html

        return as_html(self)

    def default_layer(self) -> str:
        """The first layer, or, in a model without layers, the first input."""
        return [*self.scans, *self.probes][0]

    def first_layer(self) -> str:
        """The first recurrent layer."""
        if (reason := self.why_not("states")) is not None:
            raise UserError(reason)
        return self.layers[0]

    def check_layer(self, layer: str) -> None:
        if layer not in self.scans:
            raise unknown_name("layer", layer, self.scans)


def spread(count: int, most: int) -> list[int]:
    """All numbers from 0 to count − 1, or at most `most` of them, evenly spread.

    >>> spread(5, 9), spread(30, 5)
    ([0, 1, 2, 3, 4], [0, 7, 14, 22, 29])
    """
    if count <= most:
        return list(range(count))
    return torch.linspace(0, count - 1, max(1, most), dtype=torch.float64).round().long().tolist()


def by_distance(norms: Tensor, rows: Sequence[int], aligned: bool) -> Tensor:
    """The mean over rows t of column t − d for every d, or of column T − 1 − d if rows and steps are not aligned."""
    steps = norms.shape[1]
    ends = torch.tensor(rows) if aligned else torch.full((len(rows),), steps - 1)
    columns = ends[:, None] - torch.arange(steps)  # (R, T): the state d steps back
    there = (columns >= 0) & (columns < steps)
    found = norms.gather(1, columns.clamp(0, steps - 1)) * there
    return found.sum(0) / there.sum(0).clamp(min=1)


def check_places(places: Sequence[int], count: int) -> list[int]:
    """Token positions from a user, checked."""
    for place in places:
        if not 0 <= place < count:
            raise UserError(f"There is no token {place} to hide.", f"Expected positions from 0 to {count - 1}.")
    return list(places)


def check_memory(steps: int, network: nn.Module, what: str = "tokens") -> None:
    """Reject an input whose trace would not fit into memory."""
    free, each = free_memory(), bytes_per_step(network)
    if steps * each > free:
        raise UserError(
            f"The input has {steps:,} {what}: its trace needs about {steps * each / 2**30:.1f} GiB, "
            f"and {free / 2**30:.1f} GiB are available.",
            f"Give at most {max(1, free // each):,} {what}.",
        )


def bytes_per_step(network: nn.Module) -> int:
    """Estimated bytes of a trace per step: gates, states, probes and buffers of every layer, and the logits."""
    numbers = 0
    for module in network.modules():
        if isinstance(module, DropIn):
            numbers += KEPT * module.hidden_size * module.num_layers * (2 if module.bidirectional else 1)
        elif isinstance(module, nn.Linear):
            numbers += 3 * module.out_features
    return 4 * numbers


def free_memory() -> int:
    """Bytes that a trace may use: half of the machine's free memory."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
