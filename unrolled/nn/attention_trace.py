"""The trace of a decoder with attention: the reference loop around a cell that records its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled.cells import ScanTrace, State, Trace
from unrolled.cells.base import CellAround, Step
from unrolled.kernels.attention import reference as attention_reference
from unrolled.kernels.attention.scan import Attended, AttentionJob
from unrolled.nn.dropin import DropIn


@dataclass(frozen=True)
class FedCell(CellAround):
    """A cell with the input [x ; fed], so that a step of the decoder is a step of one cell."""

    weight_feed: Tensor  # (G, F)

    def project(self, x: Tensor) -> Tensor:
        width = x.shape[-1] - self.weight_feed.shape[1]
        own, fed = x[..., :width], x[..., width:]
        return self.cell.project(own) + F.linear(fed, self.weight_feed)

    def step(self, gates_x: Tensor, state: State) -> Step:
        return Step(*self.cell.step(gates_x, state))


@dataclass(frozen=True)
class _Recorder(CellAround):
    """Records the steps of a cell, and adds zeros to its states to obtain their gradients."""

    probes: State
    seen: list[tuple[Tensor, State, State, tuple[Tensor, ...]]] = field(default_factory=list)

    def project(self, x: Tensor) -> Tensor:
        return self.cell.project(x)

    def step(self, gates_x: Tensor, state: State) -> Step:
        step = Step(*self.cell.step(gates_x, state))
        new = tuple(s + probe[:, len(self.seen)] for s, probe in zip(step.state, self.probes, strict=True))
        self.seen.append((gates_x, state, new, step.gates))
        return Step(new[0], new, step.gates)  # the output of every built-in cell is h


def traced_attention(job: AttentionJob, x: Tensor, rnn: DropIn, weight_feed: Tensor) -> tuple[Attended, Trace]:
    """Run the job on the reference engine, bit for bit the same, and trace its layer, named "l0"."""
    inner = job.cell.cell
    batch, steps = x.shape[:2]
    probes = tuple(x.new_zeros(batch, steps, size).requires_grad_() for size in inner.state_sizes)
    recorder = _Recorder(inner, probes)
    seen = attention_reference.run(replace(job, cell=replace(job.cell, cell=recorder)))
    fed = seen.context
    if len(job.state) > len(inner.state_sizes):  # Luong's: the output of the step before
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

    def cell_of(weights: Mapping[str, Tensor]) -> FedCell:
        return FedCell(build(weights), weights["weight_feed_l0"])

    trace = Trace(seen.output, seen.state, {"l0": scan}, {"l0": (cell_of, parameters)}, "reference")
    return seen, trace
