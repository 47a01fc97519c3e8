"""Stacked layers in one or both directions, shared by the drop-ins and `Recurrent`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.cells import AnyCell, CellOf, ScanTrace, State
from unrolled.cells.apart import mean, row_engine, total
from unrolled.kernels import Keep, ScanJob, make_job, run_job_traced, run_jobs
from unrolled.nn.dropout import keep_mask

COMBINATIONS = ("last", "concat", "mean", "mix")


@dataclass(frozen=True)
class DirectionRun:
    """One direction of one layer, ready to run."""

    name: str  # as torch names its parameters: "l0", "l0_reverse", …
    cell: AnyCell
    cell_of: CellOf  # the same cell from other parameters, with the same masks
    parameters: dict[str, Tensor]  # the cell's, under the layer's names
    state: State  # (B, size) each
    reverse: bool
    fresh: bool = False  # the state is zero, because none was passed
    reset_state: State | None = None
    keep: Keep | None = None
    input_mask: Tensor | None = None  # (B, 1, D), one mask for all steps (variational dropout)

    def job(self, x: Tensor, lengths: Tensor | None, resets: Tensor | None) -> ScanJob:
        """The work for an engine: x (B, T, D) is this layer's input."""
        x = x if self.input_mask is None else x * self.input_mask
        options = (lengths, resets, self.reset_state, self.keep, self.reverse)
        return make_job(self.cell, x, self.state, *options, fresh=self.fresh)


@dataclass(frozen=True)
class Stacked:
    """The results of a stack: every layer's output (B, T, O), and each run's final state and trace, by name."""

    outputs: list[Tensor]
    states: dict[str, State]
    scans: dict[str, ScanTrace]


def run_stack(
    layers: Sequence[Sequence[DirectionRun]],
    x: Tensor,
    lengths: Tensor | None,
    resets: Tensor | None,
    dropout: float,
    backend: str,
    *,
    first: tuple[ScanJob, str] | None = None,
    traced: bool = False,
) -> Stacked:
    """x (B, T, D) through all layers; `dropout` acts between them (0 when not training).

    `first` is the first run's job and its engine, if they are there already.
    """
    outputs: list[Tensor] = []
    states: dict[str, State] = {}
    scans: dict[str, ScanTrace] = {}
    for depth, layer in enumerate(layers):
        if depth > 0:
            x = _time_first_dropout(outputs[-1], dropout)
        begun, engine = first if first is not None and depth == 0 else (None, None)
        jobs = [run.job(x, lengths, resets) if begun is None or i else begun for i, run in enumerate(layer)]
        if traced:
            found = [run_job_traced(job, backend, None if i else engine) for i, job in enumerate(jobs)]
            scans |= {run.name: trace for run, (_, _, trace) in zip(layer, found, strict=True)}
            results = [(output, state) for output, state, _ in found]
        else:
            results = run_jobs(jobs, backend, engine)
        states |= {run.name: state for run, (_, state) in zip(layer, results, strict=True)}
        directions = [output for output, _ in results]
        outputs.append(directions[0] if len(directions) == 1 else torch.cat(directions, dim=-1))
    return Stacked(outputs, states, scans)


def traced_cells(layers: Sequence[Sequence[DirectionRun]]) -> dict[str, tuple[CellOf, dict[str, Tensor]]]:
    """The cells of a `Trace`: name → its builder and parameters."""
    return {run.name: (run.cell_of, run.parameters) for layer in layers for run in layer}


def _time_first_dropout(x: Tensor, p: float) -> Tensor:
    """Dropout sampled time first, as torch.nn does, so that a seed gives the same mask on every engine."""
    if p == 0:
        return x
    return F.dropout(x.transpose(0, 1).contiguous(), p).transpose(0, 1)


def combine(outputs: list[Tensor], how: str, weight: Tensor | None) -> Tensor:
    """Combine the outputs of all layers: the last, concatenated, the mean, or a mix (softmax of `weight`)."""
    if how == "last":
        return outputs[-1]
    if how == "concat":
        return torch.cat(outputs, dim=-1)
    stacked = torch.stack(outputs)  # (L, B, T, O)
    if how == "mean":
        return mean(stacked, 0)
    assert weight is not None
    shares = weight.softmax(dim=0)
    if row_engine() is not None:
        return total(shares[:, None, None, None] * stacked, 0)
    return torch.einsum("l,lbto->bto", shares, stacked)


def suffix(depth: int, reverse: bool) -> str:
    """The name of a layer and direction, as in torch's parameter names."""
    return f"l{depth}{'_reverse' if reverse else ''}"


def variational_mask(p: float, like: Tensor, *shape: int) -> Tensor | None:
    """A dropout mask for all steps, scaled by 1 / (1 - p) (Gal & Ghahramani 2016); None for p = 0."""
    return None if p == 0 else keep_mask(p, like, *shape)


def zoneout_keep(rates: Sequence[float], sizes: Sequence[int], x: Tensor, training: bool) -> Keep | None:
    """The share of the old state that zoneout keeps: sampled in training, else its mean (Krueger et al. 2017)."""
    if not any(rates):
        return None
    if not training:
        return tuple(rates)
    batch, steps = x.shape[:2]
    return tuple(
        torch.empty(batch, steps, size, dtype=x.dtype, device=x.device).bernoulli_(rate)
        for rate, size in zip(rates, sizes, strict=True)
    )
