"""Products and attention of `unrolled.cells.apart` on the native engine (native/apart/apart.h)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

import unrolled.kernels._native as _native
from unrolled.kernels.native_buffers import address, empty


class NativeRows:
    """The engine of `unrolled.cells.apart`."""

    def fits(self, *tensors: Tensor | None) -> bool:
        """True of float32 on a CPU."""
        return all(t is None or (t.dtype == torch.float32 and not t.is_cuda) for t in tensors)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x Wᵀ + b: x (…, D), weight (F, D) → (…, F)."""
        rows, job = _rows(x), _native.ApartProductJob()
        output = empty(*x.shape[:-1], len(weight))
        if not output.numel() or not x.shape[-1]:
            return F.linear(x, weight, bias)
        alive: list[Tensor] = [rows]
        job.rows, job.depth = rows.shape
        job.columns, job.x, job.x_row = len(weight), rows.data_ptr(), rows.stride(0)
        job.w, job.out = address(weight, alive), output.data_ptr()
        if bias is not None:
            job.bias = address(bias, alive)
        job.run(torch.get_num_threads())
        return output

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b: (…, M, K) and (…, K, N), with the same leading dimensions, or none of b → (…, M, N)."""
        if b.dim() == 2:
            return self.linear(a, b.t(), None)
        leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]  # torch's
        a, b = a.expand(*leading, *a.shape[-2:]), b.expand(*leading, *b.shape[-2:])
        output = empty(*leading, a.shape[-2], b.shape[-1])
        if not output.numel() or not a.shape[-1]:
            return a @ b
        job, alive = _native.ApartProductJob(), list[Tensor]()
        job.count, job.rows, job.depth, job.columns = math.prod(leading), *a.shape[-2:], b.shape[-1]
        job.x, job.x_row, job.x_next = address(a, alive), a.shape[-1], a.shape[-2] * a.shape[-1]
        job.w, job.w_next, job.upright = address(b, alive), b.shape[-2] * b.shape[-1], True
        job.out = output.data_ptr()
        job.run(torch.get_num_threads())
        return output

    def attention(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, *, show: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Scaled dot attention of query (B, N, T, d) → (B, T, N·d), and with `show` the weights (B, N, T, S).

        `mask` (B, S) or (B, T, S) is True at visible positions; a query without any gets zeros.
        """
        batch, heads, steps, size = query.shape
        output = empty(batch, steps, heads * size)
        weights = empty(batch, heads, steps, keys.shape[2]) if show else None
        if not output.numel():
            return output, weights
        job = _native.ApartAttentionJob()
        job.batch, job.heads, job.queries, job.size = query.shape
        job.positions, job.causal, job.scale = keys.shape[2], causal and steps > 1, 1 / math.sqrt(size)
        query, keys, values = (part if part.stride(-1) == 1 else part.contiguous() for part in (query, keys, values))
        job.q, job.k, job.v = query.data_ptr(), keys.data_ptr(), values.data_ptr()
        job.q_batch, job.q_head, job.q_row = query.stride()[:3]
        job.k_batch, job.k_head, job.k_row = keys.stride()[:3]
        job.v_batch, job.v_head, job.v_row = values.stride()[:3]
        if mask is not None:
            mask = mask.contiguous()
            job.mask, job.mask_batch = mask.data_ptr(), mask.stride(0)
            job.mask_row = mask.stride(1) if mask.dim() == 3 else 0
        job.out = output.data_ptr()
        if weights is not None:
            job.weights = weights.data_ptr()
        job.run(torch.get_num_threads())
        return output, weights


def _rows(x: Tensor) -> Tensor:
    """x (…, D) as a matrix whose rows are contiguous."""
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


NATIVE_ROWS = NativeRows()
