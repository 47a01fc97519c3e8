"""Operators on single numbers: arithmetic, comparisons, activations, choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from unrolled.export.onnx_graph import GraphValue, GraphWriter, Size

aten = torch.ops.aten


def _dtype_of(*values: Any) -> torch.dtype:
    """The dtype in which values are compared."""
    dtypes = [value.dtype for value in values if isinstance(value, GraphValue)]
    if any(isinstance(value, float) for value in values) and not any(dtype.is_floating_point for dtype in dtypes):
        return torch.float32
    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = torch.promote_types(found, dtype)
    return found


def _binary(kind: str) -> Callable[..., str]:
    def rule(graph: GraphWriter, made: GraphValue, a: Any, b: Any, *, alpha: float = 1) -> str:
        second = graph.tensor(b, made.dtype)
        if alpha != 1:
            second = graph.node("Mul", second, graph.scalar(alpha, made.dtype))
        return graph.node(kind, graph.tensor(a, made.dtype), second)

    return rule


def _reversed_sub(graph: GraphWriter, made: GraphValue, a: Any, b: Any) -> str:
    return graph.node("Sub", graph.tensor(b, made.dtype), graph.tensor(a, made.dtype))


def _divide(graph: GraphWriter, made: GraphValue, a: Any, b: Any, *, rounding_mode: str | None = None) -> str:
    found = graph.node("Div", graph.tensor(a, made.dtype), graph.tensor(b, made.dtype))
    if rounding_mode is None or not made.dtype.is_floating_point:  # whole numbers here are sizes, never negative
        return found
    assert rounding_mode == "floor", "no network of ours rounds otherwise"
    return graph.node("Floor", found)


def _compare(kind: str, negated: bool = False) -> Callable[..., str]:
    def rule(graph: GraphWriter, made: GraphValue, a: Any, b: Any) -> str:
        dtype = _dtype_of(a, b)
        if kind == "Equal" or dtype != torch.bool:
            found = graph.node(kind, graph.tensor(a, dtype), graph.tensor(b, dtype))
        else:
            found = graph.node(kind, *(graph.cast(graph.tensor(one, dtype), torch.int64) for one in (a, b)))
        return graph.node("Not", found) if negated else found

    return rule


def _logical(kind: str) -> Callable[..., str]:
    def rule(graph: GraphWriter, made: GraphValue, a: Any, b: Any) -> str:
        return graph.node(kind, graph.tensor(a, torch.bool), graph.tensor(b, torch.bool))

    return rule


def _unary(kind: str, **attributes: Any) -> Callable[..., str]:
    def rule(graph: GraphWriter, made: GraphValue, a: GraphValue) -> str:
        return graph.node(kind, graph.tensor(a, made.dtype), **attributes)

    return rule


def _not(graph: GraphWriter, made: GraphValue, a: GraphValue) -> str:
    return graph.node("Not", graph.tensor(a, torch.bool))


def _where(graph: GraphWriter, made: GraphValue, mask: GraphValue, a: Any, b: Any) -> str:
    return graph.node("Where", mask.name, graph.tensor(a, made.dtype), graph.tensor(b, made.dtype))


def _clamp(graph: GraphWriter, made: GraphValue, a: GraphValue, low: Any = None, high: Any = None) -> str:
    found = graph.tensor(a, made.dtype)
    if low is not None:
        found = graph.node("Max", found, graph.tensor(low, made.dtype))
    return found if high is None else graph.node("Min", found, graph.tensor(high, made.dtype))


def _log1p(graph: GraphWriter, made: GraphValue, a: GraphValue) -> str:
    return graph.node("Log", graph.node("Add", a.name, graph.scalar(1, made.dtype)))


def _gelu(graph: GraphWriter, made: GraphValue, a: GraphValue, *, approximate: str = "none") -> str:
    assert approximate == "none", "no network of ours approximates it"
    inside = graph.node("Erf", graph.node("Mul", a.name, graph.scalar(1 / math.sqrt(2), made.dtype)))
    share = graph.node("Mul", graph.node("Add", inside, graph.scalar(1, made.dtype)), graph.scalar(0.5, made.dtype))
    return graph.node("Mul", a.name, share)


def _silu(graph: GraphWriter, made: GraphValue, a: GraphValue) -> str:
    return graph.node("Mul", a.name, graph.node("Sigmoid", a.name))


def _elu(graph: GraphWriter, made: GraphValue, a: GraphValue, alpha: float = 1.0, *_: Any) -> str:
    return graph.node("Elu", a.name, alpha=float(alpha))


def _leaky_relu(graph: GraphWriter, made: GraphValue, a: GraphValue, slope: float = 0.01) -> str:
    return graph.node("LeakyRelu", a.name, alpha=float(slope))


def _rsqrt(graph: GraphWriter, made: GraphValue, a: GraphValue) -> str:
    return graph.node("Reciprocal", graph.node("Sqrt", a.name))


def _copy(graph: GraphWriter, made: GraphValue, a: Any, *_: Any, **__: Any) -> str:
    return graph.tensor(a, made.dtype)


def _number(graph: GraphWriter, made: GraphValue, value: Any, **_: Any) -> str:
    return graph.tensor(value, made.dtype)


def size_arithmetic(graph: GraphWriter, kind: str, a: int | Size, b: int | Size) -> Size:
    """Arithmetic on sizes, which are never negative: Div rounds down."""
    return Size(graph.node(kind, graph.size(a), graph.size(b)))


RULES: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: _binary("Add"),
    aten.add.Scalar: _binary("Add"),
    aten.sub.Tensor: _binary("Sub"),
    aten.sub.Scalar: _binary("Sub"),
    aten.rsub.Scalar: _reversed_sub,
    aten.mul.Tensor: _binary("Mul"),
    aten.mul.Scalar: _binary("Mul"),
    aten.div.Tensor: _divide,
    aten.div.Scalar: _divide,
    aten.div.Tensor_mode: _divide,
    aten.div.Scalar_mode: _divide,
    aten.floor_divide.default: _divide,
    aten.pow.Scalar: _binary("Pow"),
    aten.pow.Tensor_Scalar: _binary("Pow"),
    aten.pow.Tensor_Tensor: _binary("Pow"),
    aten.remainder.Scalar: _binary("Mod"),
    aten.maximum.default: _binary("Max"),
    aten.minimum.default: _binary("Min"),
    aten.lt.Tensor: _compare("Less"),
    aten.lt.Scalar: _compare("Less"),
    aten.le.Tensor: _compare("LessOrEqual"),
    aten.le.Scalar: _compare("LessOrEqual"),
    aten.gt.Tensor: _compare("Greater"),
    aten.gt.Scalar: _compare("Greater"),
    aten.ge.Tensor: _compare("GreaterOrEqual"),
    aten.ge.Scalar: _compare("GreaterOrEqual"),
    aten.eq.Tensor: _compare("Equal"),
    aten.eq.Scalar: _compare("Equal"),
    aten.ne.Tensor: _compare("Equal", negated=True),
    aten.ne.Scalar: _compare("Equal", negated=True),
    aten.bitwise_and.Tensor: _logical("And"),
    aten.bitwise_or.Tensor: _logical("Or"),
    aten.logical_and.default: _logical("And"),
    aten.logical_or.default: _logical("Or"),
    aten.bitwise_not.default: _not,
    aten.logical_not.default: _not,
    aten.where.self: _where,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.tanh.default: _unary("Tanh"),
    aten.sigmoid.default: _unary("Sigmoid"),
    aten.relu.default: _unary("Relu"),
    aten.exp.default: _unary("Exp"),
    aten.log.default: _unary("Log"),
    aten.log1p.default: _log1p,
    aten.sqrt.default: _unary("Sqrt"),
    aten.rsqrt.default: _rsqrt,
    aten.sin.default: _unary("Sin"),
    aten.cos.default: _unary("Cos"),
    aten.abs.default: _unary("Abs"),
    aten.neg.default: _unary("Neg"),
    aten.sign.default: _unary("Sign"),
    aten.floor.default: _unary("Floor"),
    aten.erf.default: _unary("Erf"),
    aten.reciprocal.default: _unary("Reciprocal"),
    aten.softplus.default: _unary("Softplus"),
    aten.gelu.default: _gelu,
    aten.silu.default: _silu,
    aten.elu.default: _elu,
    aten.leaky_relu.default: _leaky_relu,
    aten.clone.default: _copy,
    aten.alias.default: _copy,
    aten.detach.default: _copy,
    aten._to_copy.default: _copy,
    aten.lift_fresh_copy.default: _copy,
    aten.scalar_tensor.default: _number,
}
