"""An embedding whose gradient on a GPU is the same in every run."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unrolled.kernels.native_operator import transformed
from unrolled.kernels.vocabulary.cuda import engine


class Embedding(nn.Embedding):
    """torch.nn.Embedding; on a GPU its gradient is added up by our kernel, in a fixed order.

    >>> Embedding(10, 3)(torch.tensor([[1, 2], [9, 0]])).shape
    torch.Size([2, 2, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self._by_kernel():
            return super().forward(input)
        found: Tensor = _Lookup.apply(self.weight, input, self.padding_idx)  # type: ignore[no-untyped-call]  # torch's
        return found

    def _by_kernel(self) -> bool:
        weight = self.weight
        if not (weight.is_cuda and weight.dtype == torch.float32 and weight.requires_grad and torch.is_grad_enabled()):
            return False
        if self.max_norm is not None or self.scale_grad_by_freq or self.sparse or torch.compiler.is_compiling():
            return False
        return not transformed() and engine.ready(weight.device)


class _Lookup(torch.autograd.Function):
    """Rows of a matrix by their numbers; the gradient of a row is the sum over its places."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, tokens: Tensor, padding: int | None) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.size, ctx.padding = len(weight), -1 if padding is None else padding
        return F.embedding(tokens, weight)

    @staticmethod
    def backward(ctx: Any, d_vectors: Tensor) -> tuple[Tensor, None, None]:
        (tokens,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            given = (d_vectors, tokens, ctx.size, ctx.padding, False)
            return torch.ops.aten.embedding_dense_backward(*given), None, None
        flat = d_vectors.reshape(-1, d_vectors.shape[-1]).contiguous()
        return engine.embedding_gradient(flat, tokens.reshape(-1).contiguous(), ctx.size, ctx.padding), None, None
