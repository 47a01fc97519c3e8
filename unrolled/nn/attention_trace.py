"""The trace of an attending decoder: the reference loop, with a cell inside that writes down what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.cells import ScanTrace, State, Trace
from unrolled.cells.base import AnyCell, Step
from unrolled.kernels.attention import reference as attention_reference
from unrolled.kernels.attention.scan import Attended, AttentionJob
from unrolled.nn.dropin import DropIn


@dataclass(frozen=True)
class FedCell:
    """A cell whose input is [x ; what it is fed], so that a step of the decoder is a step of a cell alone."""

    cell: AnyCell
    weight_feed: Tensor  # (G, F)

    @property
    def state_names(self) -> tuple[str, ...]:
        return self.cell.state_names

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return self.cell.state_sizes

    @property
    def gate_names(self) -> tuple[str, ...]:
        return self.cell.gate_names

    def project(self, x: Tensor) -> Tensor:
        width = x.shape[-1] - self.weight_feed.shape[1]
        own, fed = x[..., :width], x[..., width:]
        return self.cell.project(own) + F.linear(fed, self.weight_feed)

    def step(self, gates_x: Tensor, state: State) -> Step:
        return Step(*self.cell.step(gates_x, state))


class _Recorder:
    """A cell that does what another does, keeps it, and adds zeros to its states whose gradient can be asked for."""

    def __init__(self, cell: AnyCell, probes: State) -> None:
        self.cell, self.probes = cell, probes
        self.state_names, self.state_sizes, self.gate_names = cell.state_names, cell.state_sizes, cell.gate_names
        self.seen: list[tuple[Tensor, State, State, tuple[Tensor, ...]]] = []

    def project(self, x: Tensor) -> Tensor:
        return self.cell.project(x)

    def step(self, gates_x: Tensor, state: State) -> Step:
        step = Step(*self.cell.step(gates_x, state))
        new = tuple(s + probe[:, len(self.seen)] for s, probe in zip(step.state, self.probes, strict=True))
        self.seen.append((gates_x, state, new, step.gates))
        return Step(new[0], new, step.gates)  # the output of every built-in cell is h


def traced_attention(job: AttentionJob, x: Tensor, rnn: DropIn, weight_feed: Tensor) -> tuple[Attended, Trace]:
    """The job on the reference engine, the same numbers to the bit, and the trace of its layer, named "l0"."""
    inner = job.cell.cell
    batch, steps = x.shape[:2]
    probes = tuple(x.new_zeros(batch, steps, size).requires_grad_() for size in inner.state_sizes)
    recorder = _Recorder(inner, probes)
    seen = attention_reference.run(replace(job, cell=replace(job.cell, cell=recorder)))
    fed = seen.context
    if len(job.state) > len(inner.state_sizes):  # Luong's: what was said a step before
        fed = torch.cat([job.state[-1][:, None], seen.output[:, :-1]], dim=1)
    names = inner.state_names
    columns = list(zip(*recorder.seen, strict=True))
    scan = ScanTrace(
        x=torch.cat([x, fed], dim=-1),
        gates_x=torch.stack(columns[0], dim=1),
        output=seen.output,
        entering={n: torch.stack([s[i] for s in columns[1]], dim=1) for i, n in enumerate(names)},
        states={n: torch.stack([s[i] for s in columns[2]], dim=1) for i, n in enumerate(names)},
        gates={n: torch.stack([g[i] for g in columns[3]], dim=1) for i, n in enumerate(inner.gate_names)},
        probes=dict(zip(names, probes, strict=True)),
        taken={n: x.new_ones(batch, steps, 1) for n in names},
        output_is_state=True,
    )
    parameters = {f"{kind}_l0": getattr(rnn, f"{kind}_l0") for kind in rnn._kinds()} | {"weight_feed_l0": weight_feed}
    build = rnn._cell_builder("l0", None, None)

    def cell_of(given: Mapping[str, Tensor]) -> FedCell:
        return FedCell(build(given), given["weight_feed_l0"])

    trace = Trace(seen.output, seen.state, {"l0": scan}, {"l0": (cell_of, parameters)}, "reference")
    return seen, trace
