"""Dropout: how much is dropped, what the rest becomes, and where nothing is done."""

from __future__ import annotations

import pytest
import torch

from unrolled.nn.dropout import Dropout, keep_mask


@pytest.mark.parametrize("p", [0.0, 1e-6, 0.1, 0.3, 0.5, 0.9, 1 - 1e-7, 1.0])
def test_as_many_are_dropped_as_asked_for(p: float) -> None:
    shape = (37, 101, 27)
    mask = keep_mask(p, torch.zeros(()), *shape)
    assert mask.shape == shape
    share = float((mask == 0).double().mean())
    assert abs(share - p) < 5 * (max(p * (1 - p), 1e-5) / mask.numel()) ** 0.5 + 2**-16
    kept = mask[mask != 0]
    if p < 0.95:
        assert float((kept * (1 - p) - 1).abs().max()) < 2e-4


def test_neighbours_are_independent() -> None:
    """The numbers of one draw of 64 bits, and of the next."""
    mask = (keep_mask(0.5, torch.zeros(()), 100_000) != 0).double() - 0.5
    for distance in (1, 2, 3, 4, 5, 8):
        assert abs(float((mask[distance:] * mask[:-distance]).mean())) < 5 * 0.25 / 100_000**0.5


def test_the_same_seed_draws_the_same() -> None:
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(keep_mask(0.4, torch.zeros((), dtype=torch.float64), 5, 7))
    assert masks[0].dtype == torch.float64
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_the_layer_scales_what_it_keeps_and_its_gradient() -> None:
    layer, x = Dropout(0.5), torch.randn(30, 40, requires_grad=True)
    y = layer(x)
    kept = y != 0
    assert 0.3 < float(kept.float().mean()) < 0.7
    assert torch.equal(y[kept], 2 * x[kept])
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, 2.0 * kept)
    assert layer.eval()(x) is x
    assert isinstance(layer, torch.nn.Dropout)
