"""Scores over a vocabulary against torch's own topk, log_softmax and cross_entropy, in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.kernels import ENGINES
from unrolled.kernels.vocabulary import reference
from unrolled.kernels.vocabulary.scores import linear_cross_entropy, linear_scores, top_scores

if "native" in ENGINES:
    from unrolled.kernels.native_core import NARROW

SIZES = (1, 2, 7, 16, 17, 63, 64, 65, 1000)


class TestTopScores:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("normalised", [True, False])
    @pytest.mark.parametrize("blocked", [None, "all rows", "each row"])
    def test_is_torchs(self, size: int, normalised: bool, blocked: str | None) -> None:
        scores = torch.randn(13, size) * 3
        mask = None if blocked is None else torch.rand(1 if blocked == "all rows" else 13, size) < 0.3
        count = min(10, size)
        expected, places = reference.top_scores(scores.double(), count, mask, normalised)
        values, tokens = top_scores(scores, count, mask, normalised=normalised)
        assert torch.equal(tokens[expected > -torch.inf], places[expected > -torch.inf])
        finite = expected > -torch.inf
        assert torch.equal(values > -torch.inf, finite)
        assert_close(values[finite], expected[finite].float())

    def test_of_equal_scores_the_first_come_first(self) -> None:
        tokens = top_scores(torch.zeros(2, 100), 5)[1]
        assert tokens.tolist() == [[0, 1, 2, 3, 4]] * 2 or "native" not in ENGINES

    def test_rows_of_a_wider_tensor(self) -> None:
        wide = torch.randn(5, 90)
        narrow = wide[:, 3:80]
        assert torch.equal(top_scores(narrow, 4)[1], narrow.topk(4).indices)
        assert torch.equal(top_scores(wide.t(), 2)[1], wide.t().topk(2).indices)

    def test_a_score_of_minus_infinity_is_no_choice(self) -> None:
        scores = torch.tensor([[0.0, -torch.inf, 1.0]])
        values, tokens = top_scores(scores, 3, normalised=False)
        assert tokens[0, :2].tolist() == [2, 0]
        assert_close(values[0, :2], scores.log_softmax(-1)[0, [2, 0]])
        assert values[0, 2] == -torch.inf

    def test_a_score_that_is_no_number_makes_none_of_its_row(self) -> None:
        scores = torch.zeros(2, 40)
        scores[1, 30] = torch.nan
        for normalised in (True, False):
            values = top_scores(scores, 3, normalised=normalised)[0]
            assert values[0].isfinite().all()
            assert values[1, 0].isnan()

    def test_other_dtypes_run_in_torch(self) -> None:
        scores = torch.randn(3, 20, dtype=torch.float64)
        assert torch.equal(top_scores(scores, 3, normalised=False)[0], scores.log_softmax(-1).topk(3).values)


class TestLinearScores:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("bias", [True, False])
    @torch.no_grad()
    def test_is_a_linear_layer(self, size: int, bias: bool) -> None:
        for rows, width in ((1, 1), (7, 30), (20, 33)):
            x, weight, more = torch.randn(rows, width), torch.randn(size, width), torch.randn(size) if bias else None
            wide = [None if t is None else t.double() for t in (x, weight, more)]
            assert_close(linear_scores(x, weight, more), F.linear(wide[0], wide[1], wide[2]).float())  # type: ignore[arg-type]

    @pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here")
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("bias", [True, False])
    @torch.no_grad()
    def test_autocast_rounds_what_is_multiplied_and_nothing_else(self, size: int, bias: bool) -> None:
        if not NARROW:
            pytest.skip("this processor does not multiply bfloat16")
        for rows, width in ((1, 1), (7, 30), (20, 33)):
            x, weight, more = torch.randn(rows, width), torch.randn(size, width), torch.randn(size) if bias else None
            with torch.autocast("cpu", dtype=torch.bfloat16):
                scores = linear_scores(x, weight, more)
            exact = x.bfloat16().double() @ weight.bfloat16().double().t()
            assert_close(scores, (exact if more is None else exact + more.double()).float())


def both(rows: int, width: int, size: int, smoothing: float, bias: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Loss and gradients, ours and torch's in float64."""
    given = [torch.randn(rows, width), torch.randn(size, width), torch.randn(size)][: 3 if bias else 2]
    targets = torch.randint(size, (rows,))
    results = []
    for kind in (torch.float32, torch.float64):
        x, weight, *rest = (tensor.to(kind, copy=True).requires_grad_() for tensor in given)
        of_bias = rest[0] if rest else None
        if kind == torch.float32:
            loss = linear_cross_entropy(x, weight, of_bias, targets, smoothing)
        else:
            scores = F.linear(x, weight, of_bias)
            loss = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
        (loss * 0.37).backward()  # type: ignore[no-untyped-call]
        gradients = [t.grad for t in (x, weight, *rest) if t.grad is not None]
        results.append([loss.detach().float(), *(g.float() for g in gradients)])
    return results[0], results[1]


class TestLinearCrossEntropy:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("bias", [True, False])
    def test_loss_and_gradients_are_torchs(self, size: int, smoothing: float, bias: bool) -> None:
        for rows in (1, 9):
            ours, expected = both(rows, 12, size, smoothing, bias)
            assert len(ours) == (4 if bias else 3)
            for name, one, other in zip(("loss", "x", "weight", "bias"), ours, expected, strict=False):
                assert_close(one, other, name)

    def test_inputs_without_gradient_get_none(self) -> None:
        x, weight = torch.randn(4, 3), torch.randn(5, 3, requires_grad=True)
        linear_cross_entropy(x, weight, None, torch.tensor([0, 1, 2, 4])).backward()  # type: ignore[no-untyped-call]
        assert x.grad is None
        assert weight.grad is not None
        with torch.no_grad():
            assert not linear_cross_entropy(x, weight, None, torch.tensor([0, 1, 2, 4])).requires_grad

    def test_autocast_computes_in_bfloat16(self) -> None:
        x, weight = torch.randn(40, 64), torch.randn(300, 64).requires_grad_()
        targets = torch.randint(300, (40,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = linear_cross_entropy(x, weight, None, targets, 0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None
        assert (loss.dtype, weight.grad.dtype) == (torch.float32, torch.float32)
        narrow = weight.detach().bfloat16().double().requires_grad_()
        scores = F.linear(x.bfloat16().double(), narrow).bfloat16().double()
        exact = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=0.1)
        assert abs(loss.item() - exact.item()) < 1e-4 * exact.item()
        (expected,) = torch.autograd.grad(exact, narrow)
        assert (weight.grad - expected).abs().max() < 0.01 * expected.abs().max()  # bfloat16 keeps 8 bits

    @pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built here")
    def test_targets_outside_the_vocabulary(self) -> None:
        with pytest.raises(UserError, match=r"Targets go from 0 to 5, with 5 scores\. Use targets from 0 to 4\."):
            linear_cross_entropy(torch.zeros(2, 3), torch.zeros(5, 3), None, torch.tensor([0, 5]))

    @pytest.mark.parametrize("biased", [True, False])
    def test_second_derivatives_are_torchs(self, biased: bool) -> None:
        leaves = [torch.randn(4, 3), torch.randn(5, 3), *([torch.randn(5)] if biased else [])]
        found = []
        for loss in (linear_cross_entropy, reference.linear_cross_entropy):
            x, weight, *bias = (leaf.clone().requires_grad_() for leaf in leaves)
            value = loss(x, weight, bias[0] if bias else None, torch.tensor([0, 1, 2, 4]), 0.1).pow(2)
            first = torch.autograd.grad(value, [x, weight, *bias], create_graph=True)
            second = torch.autograd.grad([g.pow(2).sum() for g in first], [x, weight, *bias])
            found.append([*first, *second])
        for mine, other in zip(*found, strict=True):
            assert_close(mine, other)
