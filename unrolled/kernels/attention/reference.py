"""The reference of decoders with attention: a loop over steps in plain torch; any cell, score and dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.kernels.attention.attention_job import Attended, AttentionJob

DESCRIPTION = "a plain loop over steps in torch; any cell, score, dtype and order of derivative"


def refuses(job: AttentionJob) -> str | None:
    """The reason why this engine cannot run the job: always None."""
    return None


def run(job: AttentionJob) -> Attended:
    """Run every step of the decoder."""
    active, gates_x, keys, values = job.active, job.gates_x, job.keys, job.values
    if active is not None:  # a NaN in the padding must not reach a gradient
        gates_x = torch.where(active[..., None], gates_x, 0)
    if job.mask is not None:
        keys, values = (torch.where(job.mask[..., None], part, 0) for part in (keys, values))
    outputs: list[tuple[Tensor, Tensor, Tensor]] = []
    state = job.state
    for t in range(gates_x.shape[1]):
        drawn = [_at(job.noise, t)] if job.noise is not None else []
        masks = (_at(job.feed_mask, t), _at(job.mix_mask, t), *drawn)
        *seen, new = job.cell.step(gates_x[:, t], state, keys, values, job.mask, *masks)
        if active is not None:
            real = active[:, t, None]  # (B, 1)
            new = tuple(torch.where(real, n, old) for n, old in zip(new, state, strict=True))
            seen = [torch.where(real, part, 0) for part in seen]
        output, context, weights = seen
        outputs.append((output, context, weights))
        state = new
    output, context, weights = (torch.stack(part, dim=1) for part in zip(*outputs, strict=True))
    return Attended(output, context, weights, state)


def _at(mask: Tensor | None, t: int) -> Tensor | None:
    return None if mask is None else mask[:, t]
