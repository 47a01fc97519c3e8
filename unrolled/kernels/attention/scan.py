"""`attention_scan`, the sibling of `scan` for decoders with attention."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from unrolled.cells import AttentionCell, BuiltIn, LuongCell, Score, State, VisualCell
from unrolled.errors import UserError
from unrolled.kernels import ENGINES
from unrolled.kernels.attention import reference as attention_reference
from unrolled.kernels.attention.attention_job import Attended, AttentionJob
from unrolled.kernels.attention.cuda import engine as attention_cuda
from unrolled.kernels.engine_choice import Choice, choose_of
from unrolled.kernels.lengths import check_lengths

__all__ = [
    "ATTENTION_ENGINES",
    "Attended",
    "AttentionJob",
    "attention_choice",
    "attention_scan",
    "checked_job",
    "quick_score",
    "run_attention_job",
]

# In the order in which `auto` tries them: modules with DESCRIPTION, refuses(job), run(job) and, if another engine is
# faster for some jobs, outdone(job).
ATTENTION_ENGINES: dict[str, ModuleType] = {"cuda": attention_cuda, "reference": attention_reference}

if "native" in ENGINES:
    from unrolled.kernels.attention import native as attention_native

    ATTENTION_ENGINES = {"native": attention_native, **ATTENTION_ENGINES}


def attention_scan(
    cell: AttentionCell,
    gates_x: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    state: State | None = None,
    *,
    lengths: Tensor | None = None,
    feed_mask: Tensor | None = None,
    mix_mask: Tensor | None = None,
    noise: Tensor | None = None,
    backend: str = "auto",
) -> Attended:
    """Run a decoder with attention over all steps (teacher forcing): outputs, contexts, weights, final state.

    `gates_x` (B, T, G) is the cell's projection of the inputs y for all steps; `keys` (B, S, A) and `values` (B, S, C)
    are the memory, with projected keys; `mask` (B, S) is True at real positions. `state` holds the initial states
    (default: zeros), in the order of `cell.state_names`. Steps past `lengths` (B,) keep the state and output zeros.
    Dropout masks are tensors: `feed_mask` (B, T, F) for the cell's second input, `mix_mask` (B, T, C + H) for the
    [c; h] of Luong's W_c; `noise` (B, T, S) is Gumbel noise for a hard `VisualCell`.

    >>> import torch
    >>> from unrolled.cells import BahdanauCell, RNNCell, Score
    >>> rnn = RNNCell(weight_ih=torch.eye(2), weight_hh=torch.eye(2))
    >>> cell = BahdanauCell(rnn, Score(), weight_feed=torch.eye(2))
    >>> memory = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]])
    >>> mask = torch.tensor([[True, True, False]])
    >>> seen = attention_scan(cell, rnn.project(torch.zeros(1, 4, 2)), memory, memory, mask)
    >>> seen.output.shape, seen.weights[0, 0]
    (torch.Size([1, 4, 2]), tensor([0.5000, 0.5000, 0.0000]))
    """
    if state is None:
        state = tuple(gates_x.new_zeros(*gates_x.shape[:1], size) for size in cell.state_sizes)
    job = AttentionJob(cell, gates_x, keys, values, mask, state, lengths, feed_mask, mix_mask, noise)
    return run_attention_job(checked_job(job), backend)


def run_attention_job(job: AttentionJob, backend: str = "auto") -> Attended:
    """Run the job on the chosen engine."""
    seen: Attended = ATTENTION_ENGINES[attention_choice(job, backend).engine].run(job)
    return seen


def attention_choice(job: AttentionJob, backend: str = "auto") -> Choice:
    """The engine that will run the job, and why; raises if the named engine cannot."""
    return choose_of(ATTENTION_ENGINES, job, backend)


def checked_job(job: AttentionJob) -> AttentionJob:
    """The job after a check of all shapes, its lengths on the input's device."""
    cell, gates_x, keys, mask, state = job.cell, job.gates_x, job.keys, job.mask, job.state
    if gates_x.dim() != 3 or gates_x.shape[1] == 0:
        raise UserError(
            f"gates_x has shape {tuple(gates_x.shape)}.", "Expected (batch, time, gates), one step or more."
        )
    batch, steps = gates_x.shape[:2]
    positions = keys.shape[1] if keys.dim() == 3 else None
    for name, part in (("keys", keys), ("values", job.values)):
        if part.dim() != 3 or part.shape[:2] != (batch, positions):
            problem = f"{name} have shape {tuple(part.shape)} with keys of shape {tuple(keys.shape)}."
            raise UserError(problem, f"Expected (batch, positions, size) of both, batch {batch}.")
    if mask is not None:
        _check("mask", mask, (batch, keys.shape[1]), "(batch, positions)")
        if mask.dtype != torch.bool:
            raise UserError(f"mask is {mask.dtype}.", "Expected torch.bool, True where the memory is real.")
    if len(state) != len(cell.state_names):
        names = ", ".join(cell.state_names)
        raise UserError(f"The state has {len(state)} tensors.", f"Expected {len(cell.state_names)}: {names}.")
    for name, size, part in zip(cell.state_names, cell.state_sizes, state, strict=True):
        _check(f"The state {name}", part, (batch, size), "(batch, size)")
    if job.lengths is not None:
        job = replace(job, lengths=check_lengths(job.lengths, batch, steps, gates_x.device))
    for name, dropout in (("feed_mask", job.feed_mask), ("mix_mask", job.mix_mask)):
        if dropout is not None and (dropout.dim() != 3 or dropout.shape[:2] != (batch, steps)):
            raise UserError(f"{name} has shape {tuple(dropout.shape)}.", f"Expected ({batch}, {steps}, size).")
    if job.noise is not None:
        _check("noise", job.noise, (batch, steps, keys.shape[1]), "(batch, time, positions)")
        if not isinstance(cell, VisualCell):
            raise UserError(f"noise was passed to a {type(cell).__name__}.", "Only a hard VisualCell uses it.")
    _check_widths(job)
    return job


def quick_score(score: Score, like: Tensor, backend: str = "auto") -> Score:
    """The same score, on the native engine if it needs no gradient and the engine takes tensors like `like`."""
    if backend == "reference" or "native" not in ATTENTION_ENGINES or like.device.type != "cpu":
        return score
    if like.dtype != torch.float32 and not torch.is_autocast_enabled("cpu"):
        return score
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or (score.heads > 1 and score.vector is not None):
        return score
    return attention_native.NativeScore(**vars(score))


def _check_widths(job: AttentionJob) -> None:
    """Check that the factors of every product fit."""
    cell, score = job.cell, job.cell.score
    gates, feed = cell.weight_feed.shape
    query, values = cell.cell.state_sizes[0], job.values.shape[2]
    key = query if score.weight_query is None else score.weight_query.shape[0]
    context = values if score.weight_out is None else score.weight_out.shape[0]
    widths = [
        ("gates_x", job.gates_x.shape[2], gates, "as many as weight_feed has rows"),
        ("keys", job.keys.shape[2], key, "as the query they are compared with"),
    ]
    if isinstance(cell.cell, BuiltIn):
        widths.append(("gates_x", job.gates_x.shape[2], cell.cell.weight_hh.shape[0], "as many as weight_hh has rows"))
    if score.vector is not None:
        widths.append(("The vector of the score", score.vector.shape[0], key, "as the keys"))
    if isinstance(cell, LuongCell):
        widths.append(("weight_mix", cell.weight_mix.shape[1], context + query, "context and h side by side"))
        widths.append(("weight_feed", feed, cell.weight_mix.shape[0], "as what weight_mix gives"))
        if job.mix_mask is not None:
            widths.append(("mix_mask", job.mix_mask.shape[2], context + query, "context and h side by side"))
    else:
        widths.append(("weight_feed", feed, context, "as the context"))
    if job.feed_mask is not None:
        widths.append(("feed_mask", job.feed_mask.shape[2], feed, "as what the cell is fed"))
    for name, got, expected, meaning in widths:
        if got != expected:
            raise UserError(f"{name} is {got} wide.", f"Expected {expected}: {meaning}.")


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], meaning: str) -> None:
    if tuple(tensor.shape) != shape:
        raise UserError(f"{name} has shape {tuple(tensor.shape)}.", f"Expected {shape}: {meaning}.")
