"""One step of Transformer layers with keys at fixed places, on kernels that join what torch does one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.kernels.blocks.cuda import engine
from unrolled.nn.linear import linear
from unrolled.nn.transformer_cache import FixedState, Kept

if TYPE_CHECKING:
    from unrolled.nn.transformer import TransformerLayer

FEW_ROWS, PART = 512, 256  # of a product in float32, and numbers in each of its parts


def has_kernels(x: Tensor, state: FixedState, layers: Sequence[TransformerLayer], norm: nn.LayerNorm | None) -> bool:
    """True if `quick_step` computes these layers here: on a GPU, for answers."""
    if not engine.ready(x.device) or x.dtype != torch.float32 or x.shape[-1] % 2 or torch.is_grad_enabled():
        return False
    first, dtype = layers[0], _dtype(x)
    if first.training or not all(engine.fits(one) and one.dtype == dtype for pair in state.kept for one in pair):
        return False
    memory = [one for pair in state.memory for one in pair]
    if not all(engine.fits(one) and one.dtype == dtype for one in memory):
        return False
    norms = [one for layer in layers for one in layer.modules() if isinstance(one, nn.LayerNorm)]
    return all(one is None or (one.weight is not None and one.bias is not None) for one in [*norms, norm])


def _dtype(x: Tensor) -> torch.dtype:
    """The dtype of matrix products."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class _Sum(NamedTuple):
    """The sum of all residuals in float32, and what the next layer reads."""

    x: Tensor
    normed: Tensor


def quick_step(x: Tensor, state: FixedState, layers: Sequence[TransformerLayer], norm: nn.LayerNorm | None) -> Tensor:
    """The output (B·W, D) of a step: x (B·W, D); new keys and values are written to their places.

    The ancestors of a hypothesis in this step are not read: a step sees its own keys.
    """
    dtype, before = _dtype(x), layers[0].norm_first

    def join(now: _Sum, added: Tensor | None, norm: nn.LayerNorm) -> _Sum:
        return _Sum(*engine.add_norm(now.x, added, norm.weight, norm.bias, norm.eps, dtype, after=not before))

    now = _Sum(x.contiguous(), x.to(dtype))
    now = join(now, None, layers[0].norm1) if before else now
    for depth, layer in enumerate(layers):
        added = _to_itself(layer, now.normed, state, state.kept[depth])
        now = join(now, added, layer.norm2 if before else layer.norm1)
        if layer.cross:
            added = _to_memory(layer, now.normed, state, state.memory[depth])
            now = join(now, added, layer.norm3 if before else layer.norm2)
        added = _long_product(layer.activation(layer.linear1(now.normed)), layer.linear2)
        if not before:
            now = join(now, added, layer.norm3 if layer.cross else layer.norm2)
        elif depth + 1 < len(layers):
            now = join(now, added, layers[depth + 1].norm1)
    if before:
        return now.x + added if norm is None else join(now, added, norm).normed
    return now.x if norm is None else F.layer_norm(now.x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _long_product(x: Tensor, layer: nn.Linear) -> Tensor:
    """`layer(x)`; for few rows in float32 several shorter products and their sum, which is faster in cuBLAS."""
    parts, rest = divmod(layer.in_features, PART)
    if x.dtype != torch.float32 or rest or parts < 2 or len(x) > FEW_ROWS:
        whole: Tensor = layer(x)
        return whole
    cut = x.view(len(x), parts, PART).transpose(0, 1)  # (P, R, ·)
    weight = layer.weight.view(layer.out_features, parts, PART).permute(1, 2, 0)
    product = torch.bmm(cut, weight).sum(0)
    return product if layer.bias is None else product + layer.bias


def _to_itself(layer: TransformerLayer, x: Tensor, state: FixedState, kept: Kept) -> Tensor:
    attention = layer.self_attn
    assert attention.in_proj_weight is not None
    query, keys, values = linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, dim=-1)
    ancestors = state.ancestors if kept[0].shape[2] > 1 else None
    seen = engine.attend(query, *kept, (keys, values), state.position, ancestors)
    output: Tensor = attention.out_proj(seen)
    return output


def _to_memory(layer: TransformerLayer, x: Tensor, state: FixedState, memory: Kept) -> Tensor:
    attention = layer.multihead_attn
    keys, values = (one[:, :, None] for one in memory)  # (B, N, 1, S, d)
    seen = engine.attend(attention.project_query(x), keys, values, mask=state.memory_mask)
    output: Tensor = attention.out_proj(seen)
    return output
