"""The cross-entropy of a linear layer in chunks equals torch's, with its gradients; the code runs on any device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from unrolled.kernels.vocabulary import chunked


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_equals_torch(rows: int, smoothing: float, biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MOST_SCORES", 8 * 33)  # eight rows at a time
    x, weight = torch.randn(rows, 12, requires_grad=True), torch.randn(33, 12, requires_grad=True)
    bias = torch.randn(33, requires_grad=True) if biased else None
    targets = torch.randint(33, (rows,))
    targets[::3] = chunked.IGNORED
    wanted = [one for one in (x, weight, bias) if one is not None]

    def gradients(loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(2.5 * loss, wanted, retain_graph=True)
        again = torch.autograd.grad(2.5 * loss, wanted, create_graph=True)
        return *first, *again, *torch.autograd.grad([one.pow(2).sum() for one in again], wanted)

    loss = chunked.linear_cross_entropy(x, weight, bias, targets, smoothing)
    expected = F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    for got, true in zip(gradients(loss), gradients(expected), strict=True):
        torch.testing.assert_close(got, true, rtol=1e-4, atol=1e-5)


def test_scores_are_never_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    whole = chunked._losses

    def watched(scores: torch.Tensor, *more: object) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(scores.numel())
        return whole(scores, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(chunked, "MOST_SCORES", 500)
    monkeypatch.setattr(chunked, "_losses", watched)
    x, weight = torch.randn(64, 4), torch.randn(100, 4, requires_grad=True)
    chunked.linear_cross_entropy(x, weight, None, torch.randint(100, (64,)), 0.0).backward()  # type: ignore[no-untyped-call]
    assert max(sizes) <= 500
    assert sum(sizes) == 6400
