"""One vector of many: what padding holds never matters, and each kind is its definition."""

from __future__ import annotations

import pytest
import torch

from tests.tolerances import assert_close
from unrolled import LSTM, UserError
from unrolled.nn.pooling import POOLINGS, Pooling


@pytest.mark.parametrize("kind", [*POOLINGS, "max+last", "mean+attention"])
def test_padding_never_matters(kind: str) -> None:
    pool = Pooling(kind, 6, directions=2)
    states = torch.randn(3, 5, 6)
    lengths = torch.tensor([5, 2, 0])
    mask = torch.arange(5) < lengths[:, None]
    padded = torch.where(mask[..., None], states, torch.nan)
    result = pool(padded, mask)
    assert result.shape == (3, 6 * len(kind.split("+")))
    for row, length in enumerate(lengths.tolist()):
        if length:
            alone = pool(states[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool))
            assert_close(result[row], alone[0])
    assert not result[2].any()


def test_padding_gets_no_gradient() -> None:
    mask = torch.tensor([[True, True, False]])
    for kind in POOLINGS:
        states = torch.randn(1, 3, 4, requires_grad=True)
        Pooling(kind, 4, directions=2)(states, mask).sum().backward()
        assert states.grad is not None
        assert torch.isfinite(states.grad).all()
        assert not states.grad[0, 2].any()


def test_last_is_torchs_final_state() -> None:
    """[h→_T ; h←_1] is h_n of both directions."""
    layer = LSTM(3, 4, bidirectional=True, batch_first=True)
    x, lengths = torch.randn(3, 7, 3), torch.tensor([7, 3, 1])
    output, (h_n, _) = layer(x, lengths=lengths)
    mask = torch.arange(7) < lengths[:, None]
    assert_close(Pooling("last", 8, directions=2)(output, mask), torch.cat([h_n[0], h_n[1]], dim=-1))


def test_max_and_mean() -> None:
    states, mask = torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]])
    assert Pooling("max", 1)(states, mask).item() == 3
    assert Pooling("mean", 1)(states, mask).item() == 2


def test_attention_weights_add_up_over_real_steps() -> None:
    pool, mask = Pooling("attention", 4), torch.tensor([[True, True, False], [False, False, False]])
    weights = pool.weights("attention", torch.randn(2, 3, 4), mask)
    assert_close(weights.sum(dim=1), torch.tensor([1.0, 0.0]))
    assert weights[0, 2] == 0


def test_an_unknown_kind() -> None:
    with pytest.raises(UserError) as error:
        Pooling("max+lasst", 4)
    assert str(error.value) == "Unknown pooling 'lasst'. Did you mean 'last'? Choices: attention, last, max, mean."
