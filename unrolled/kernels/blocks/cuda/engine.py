"""Steps of Transformer blocks on an NVIDIA GPU, without gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.kernels.blocks.cuda import plan
from unrolled.kernels.blocks.cuda.arguments import BlockArguments
from unrolled.kernels.cuda import compiler, launch

DEVICE = "cuda"


def ready(device: torch.device) -> bool:
    """True if the kernels run on a device."""
    if device.type != DEVICE or compiler.missing() is not None:
        return False
    return torch.cuda.get_device_capability(device)[0] >= 8


def fits(keys: Tensor) -> bool:
    """True if `attend` is for such keys (…, d)."""
    known = keys.dtype in plan.NUMBERS and keys.stride(-1) == 1 and keys.data_ptr() % plan.VECTOR_BYTES == 0
    strides = (stride * keys.dtype.itemsize % plan.VECTOR_BYTES == 0 for stride in keys.stride()[:-1])
    return known and all(strides) and plan.lanes_of_a_key(keys.dtype, keys.shape[-1]) > 0


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    new: tuple[Tensor, Tensor] | None = None,
    position: Tensor | None = None,
    ancestors: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention of each row of a query (R, E) to keys and values (B, N, ·, S, d) of its input → (R, E).

    Rows are W = R / B hypotheses of each input. A hypothesis sees `mask` (B, S); or the places before its `position`
    (R,), at each of which it sees the keys of one of its `ancestors` (R, S; None: it is alone), and `new` ones of its
    own (R, E), which are written to its place. Query and new keys may be columns of one tensor. Keys and values have
    the same strides.
    """
    inputs, heads, _, places, size = keys.shape
    seen = query.new_empty(len(query), heads * size)
    given = BlockArguments(rows=len(query), width=len(query) // inputs, heads=heads, places=places)
    given.query, given.query_stride, given.seen = query.data_ptr(), query.stride(0), seen.data_ptr()
    given.keys, given.values, given.scale = keys.data_ptr(), values.data_ptr(), size**-0.5
    given.input_stride, given.head_stride, given.hypothesis_stride, given.place_stride, _ = keys.stride()
    assert values.stride() == keys.stride()
    if new is not None:
        given.new_keys, given.new_values = (one.data_ptr() for one in new)
    for name, tensor in (("position", position), ("ancestors", ancestors), ("mask", mask)):
        if tensor is not None:
            setattr(given, name, tensor.data_ptr())
    how = plan.attend(len(query) * heads, places, keys.dtype, size)
    launch.run(plan.attend_program(keys.dtype, size, plan.parts(places)), "attend_step", how, given, query.device)
    return seen


def add_norm(
    x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype, *, after: bool
) -> tuple[Tensor, Tensor]:
    """x + added (R, E) in float32, and its layer norm in a dtype; `after`: the norm in float32 instead of the sum."""
    total, normed = torch.empty_like(x), torch.empty_like(x, dtype=dtype)
    given = BlockArguments(rows=len(x), size=x.shape[1], after=after, eps=eps)
    given.x, given.sum, given.normed = x.data_ptr(), total.data_ptr(), normed.data_ptr()
    given.weight, given.bias = weight.data_ptr(), bias.data_ptr()
    if added is not None:
        added = added.to(dtype).contiguous()
        given.added = added.data_ptr()
    launch.run(plan.add_norm_program(dtype), "add_norm", plan.add_norm(len(x)), given, x.device)
    return total, normed
