"""The ReLU of compiled Transformers has torch's numbers and gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

from unrolled.nn.relu import FloatMaskReLU, compiled_well


def test_numbers_and_gradients_are_torchs() -> None:
    given = torch.tensor([-math.inf, -1.0, -0.0, 0.0, 1e-38, 2.0, math.inf])
    ours, theirs = given.clone().requires_grad_(), given.clone().requires_grad_()
    weights = torch.arange(1.0, 8.0)
    apply: Any = FloatMaskReLU.apply
    found, expected = apply(ours), torch.relu(theirs)
    assert torch.equal(found, expected)
    (mine,) = torch.autograd.grad((found * weights)[:-1].sum(), ours)
    (right,) = torch.autograd.grad((expected * weights)[:-1].sum(), theirs)
    assert torch.equal(mine, right)


def test_second_derivatives() -> None:
    x = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(FloatMaskReLU.apply, (x,))
    assert torch.autograd.gradgradcheck(FloatMaskReLU.apply, (x,))


def test_it_is_for_compiled_training_alone() -> None:
    x = torch.randn(3, requires_grad=True)
    assert "ReluBackward" in str(compiled_well(torch.relu, x).grad_fn)
    kept = torch.compile(lambda x: compiled_well(torch.relu, x), fullgraph=True, backend="eager")(x)
    assert "Relu" not in str(kept.grad_fn)
    other = torch.compile(lambda x: compiled_well(torch.tanh, x), fullgraph=True, backend="eager")(x)
    assert "Tanh" in str(other.grad_fn)
