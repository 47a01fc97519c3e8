"""Decoders with attention for the cuda engine, drawn for a case, and their results and gradients."""

from __future__ import annotations

import math
import zlib
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from unrolled.cells import BahdanauCell, BuiltIn, GRUCell, LSTMCell, LuongCell, RNNCell, Score, VisualCell
from unrolled.kernels.attention import reference
from unrolled.kernels.attention.scan import Attended, AttentionJob, checked_job

Case = dict[str, Any]

CELLS = ("rnn", "relu", "lstm", "lstm_current", "lstm_previous", "gru", "gru_before")
SCORES = ("additive", "dot", "scaled", "projected", "plain_additive")
GATES = {"rnn": 1, "relu": 1, "gru": 3, "gru_before": 3}
PLAIN: Case = {
    "cell": "lstm", "luong": False, "score": "additive", "batch": 3, "steps": 3, "positions": 7, "hidden": 16,
    "keys": 24, "values": 8, "feed": 24, "mask": None, "lengths": False, "dropout": False, "bias": True,
    "dtype": torch.float16,
}  # fmt: skip


class Drawn:
    """Numbers drawn for a case, rounded to its dtype."""

    def __init__(self, case: Case, device: str) -> None:
        self.generator = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
        self.dtype, self.device = case["dtype"], device

    def normal(self, *shape: int, scale: float = 0.3) -> Tensor:
        return (torch.randn(shape, generator=self.generator) * scale).to(self.dtype).to(self.device)

    def dropped(self, *shape: int) -> Tensor:
        return ((torch.rand(shape, generator=self.generator) < 0.7).to(self.dtype) * 1.5).to(self.device)


def _cell(case: Case, drawn: Drawn, wide: int) -> Any:
    kind, hidden = case["cell"], case["hidden"]
    given: dict[str, Any] = {
        "weight_ih": drawn.normal(wide, 2),
        "weight_hh": drawn.normal(wide, hidden, scale=0.5 / hidden**0.5),
    }
    if case["bias"]:
        given |= {"bias_ih": drawn.normal(wide), "bias_hh": drawn.normal(wide)}
    if kind == "relu":
        given["activation"] = torch.relu
    if kind.startswith("gru"):
        given["reset_after"] = kind == "gru"
    if kind.startswith("lstm_"):
        given |= {"weight_peephole": drawn.normal(3, hidden), "peephole_output": kind.removeprefix("lstm_")}
    return (LSTMCell if kind.startswith("lstm") else GRUCell if kind.startswith("gru") else RNNCell)(**given)


def _attending(case: Case, drawn: Drawn, wide: int) -> Any:
    """The cell with its attention."""
    hidden, values = case["hidden"], case["values"]
    cell, keys = _cell(case, drawn, wide), _key_size(case)
    score = Score(scale={"scaled": hidden**-0.5, "projected": 0.5}.get(case["score"], 1.0))
    if case["score"] in ("additive", "projected"):
        score = replace(score, weight_query=drawn.normal(keys, hidden, scale=1 / hidden**0.5))
        score = replace(score, bias_query=drawn.normal(keys) if case["bias"] else None)
    if "additive" in case["score"]:
        score = replace(score, vector=drawn.normal(keys, scale=keys**-0.5))
    feed = _feed_size(case)
    weight_feed = drawn.normal(wide, feed, scale=0.5 / feed**0.5)
    if not case["luong"] and case.get("gate") and score.weight_query is not None:
        gate = drawn.normal(1, hidden, scale=2 / hidden**0.5)
        return VisualCell(cell, score, weight_feed, gate, drawn.normal(1, scale=1.0))
    if not case["luong"]:
        return BahdanauCell(cell, score, weight_feed)
    mix = drawn.normal(feed, values + hidden, scale=1 / (values + hidden) ** 0.5)
    return LuongCell(cell, score, weight_feed, mix, drawn.normal(feed) if case["bias"] else None)


def _key_size(case: Case) -> int:
    return int(case["keys"] if case["score"] in ("additive", "projected") else case["hidden"])


def _feed_size(case: Case) -> int:
    return int(case["feed"] if case["luong"] else case["values"])


def _mask(case: Case, drawn: Drawn) -> Tensor | None:
    """The positions that are real; None: all."""
    batch, positions = case["batch"], case["positions"]
    if case["mask"] == "ragged":
        mask = torch.arange(positions) < torch.randint(0, positions + 1, (batch, 1), generator=drawn.generator)
    elif case["mask"] == "holes":
        mask = torch.rand(batch, positions, generator=drawn.generator) < 0.6
    elif case["mask"] == "one":
        mask = torch.arange(positions).expand(batch, -1) < 1
    else:
        return None
    return mask.to(drawn.device)


def make(case: Case, device: str = "cpu") -> AttentionJob:
    """A job whose numbers are rounded to the case's dtype."""
    batch, steps, positions, values = case["batch"], case["steps"], case["positions"], case["values"]
    drawn = Drawn(case, device)
    wide = GATES.get(case["cell"], 4) * case["hidden"]
    attending, mask = _attending(case, drawn, wide), _mask(case, drawn)
    lengths = None
    if case["lengths"]:
        lengths = torch.randint(0, steps + 1, (batch,), generator=drawn.generator).to(device)
    gates_x = drawn.normal(batch, steps, wide, scale=0.7)
    k, v = (drawn.normal(batch, positions, size, scale=1.0) for size in (_key_size(case), values))
    if case["cell"] == "relu":  # the sums stay away from 0, where the slope jumps and rounding decides
        gates_x = gates_x.sign() * (gates_x.abs() + 3)
    if mask is not None:  # nobody reads the padding
        k, v = (torch.where(mask[..., None], part, torch.nan) for part in (k, v))
    if lengths is not None:
        gates_x = torch.where((torch.arange(steps, device=device) < lengths[:, None])[..., None], gates_x, torch.nan)
    state = tuple(drawn.normal(batch, size) for size in attending.state_sizes)
    job = AttentionJob(attending, gates_x, k, v, mask, state, lengths=lengths)
    if case["dropout"]:
        job = replace(job, feed_mask=drawn.dropped(batch, steps, _feed_size(case)))
        if case["luong"]:
            job = replace(job, mix_mask=drawn.dropped(batch, steps, values + case["hidden"]))
    return checked_job(job)


def cast(job: AttentionJob, dtype: torch.dtype) -> tuple[AttentionJob, dict[str, Tensor]]:
    """The same job in another dtype, and everything in it that has a gradient, by name."""
    leaves: dict[str, Tensor] = {}

    def new(name: str, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        copied = value.detach().to(dtype, copy=True)
        if not name.endswith("_mask"):
            leaves[name] = copied.requires_grad_()
        return copied

    def remade(thing: Any) -> Any:
        return replace(thing, **{f.name: new(f.name, getattr(thing, f.name)) for f in fields(thing)})

    assert isinstance(job.cell.cell, BuiltIn)
    cell = replace(remade(job.cell), cell=remade(job.cell.cell), score=remade(job.cell.score))
    state = tuple(new(f"{name}_0", s) for name, s in zip(job.cell.state_names, job.state, strict=True))
    leaves.pop("weight_ih", None)  # those of the projection, which is done
    leaves.pop("bias_ih", None)
    return replace(remade(job), cell=cell, state=state), leaves


def results(job: AttentionJob, leaves: dict[str, Tensor], engine: Any) -> dict[str, Tensor]:
    """Everything a decoder gives, and gradients of a loss that weighs all of it differently, in numbers of few bits."""
    seen: Attended = engine.run(job)
    parts = {"output": seen.output, "context": seen.context, "weights": seen.weights}
    parts |= {f"final {name}": s for name, s in zip(job.cell.state_names, seen.state, strict=True)}
    scale = 2.0 ** -round(math.log2(job.gates_x.shape[0] * job.gates_x.shape[1]) / 4 + 3)
    loss = seen.output.new_zeros((), dtype=torch.float64)
    for value in parts.values():
        weights = (torch.arange(value.numel(), device=value.device) % 13 - 4) * scale
        loss = loss + (value.double() * weights.view(value.shape)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        parts[f"gradient of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    if "gradient of bias_gate" in parts:  # one number, in which most cancels out: it is judged with its weights
        gate = [parts.pop(f"gradient of {name}").flatten() for name in ("weight_gate", "bias_gate")]
        parts["gradient of the gate"] = torch.cat(gate)
    return {name: value.detach() for name, value in parts.items()}


def exact(job: AttentionJob) -> dict[str, Tensor]:
    """The same from `reference` in float64."""
    return results(*cast(job, torch.float64), reference)
