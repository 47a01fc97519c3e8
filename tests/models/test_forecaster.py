"""The forecasting network and its losses, held to definitions written out here and to torch.distributions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.tolerances import assert_close
from unrolled.models.forecaster import Forecaster, ForecasterSettings, ForecastStepper, calmed
from unrolled.models.forecaster_sizes import ForecasterSizes
from unrolled.models.outputs import LossName, make_output

QUANTILES = [0.1, 0.5, 0.9]


def forecaster(
    loss: LossName = "mse", *, missing: bool = False, horizons: tuple[int, ...] = (1,), lags: int = 3, **model: Any
) -> Forecaster:
    settings = ForecasterSettings(**{"hidden_size": 6, "dropout": 0.0, **model})
    layout = ForecasterSizes(2, missing, horizons, (1, -1), residual=loss != "bernoulli", changes=True, lags=lags)
    network = Forecaster(settings, layout, make_output(loss, QUANTILES)).eval()
    with torch.no_grad():
        network.scale.copy_(torch.rand(network.scale.shape) + 0.5)
        network.change_scale.copy_(torch.rand(2) + 0.5)
    return network


LOSSES: list[LossName] = ["mse", "mae", "gaussian", "quantiles", "bernoulli"]


def test_losses_are_their_definitions() -> None:
    raw, base, scale = torch.randn(4, 5, 3, 2), torch.randn(4, 5, 3), torch.rand(3) + 0.5
    target = torch.randn(4, 5, 3)
    value = make_output("mse", [])
    estimate = value.place(raw[..., :1], base, scale)
    assert_close(estimate[..., 0], base + scale * raw[..., 0])
    assert_close(value.loss(estimate, target, scale), ((estimate[..., 0] - target) / scale) ** 2)
    absolute = make_output("mae", [])
    assert_close(absolute.loss(estimate, target, scale), ((estimate[..., 0] - target) / scale).abs())
    gaussian = make_output("gaussian", [])
    estimate = gaussian.place(raw, base, scale)
    normal = torch.distributions.Normal(base + scale * raw[..., 0], scale * raw[..., 1].exp())
    nll = gaussian.nll(estimate, target)
    assert nll is not None
    assert_close(nll, -normal.log_prob(target))  # type: ignore[no-untyped-call]
    assert_close(gaussian.details(estimate)["deviation"], normal.stddev)
    bernoulli = make_output("bernoulli", [])
    ones = (target > 0).float()
    nats = -torch.distributions.Bernoulli(logits=raw[..., 0]).log_prob(ones)  # type: ignore[no-untyped-call]
    assert_close(bernoulli.loss(bernoulli.place(raw[..., :1], base, scale), ones, scale), nats)


def test_the_best_quantiles_are_the_quantiles() -> None:
    """The pinball loss is least at the sample's own quantiles."""
    sample = torch.randn(4001).double()
    output = make_output("quantiles", QUANTILES)
    best = torch.quantile(sample, torch.tensor(QUANTILES).double())
    unit = torch.ones(1).double()

    def loss(estimate: torch.Tensor) -> float:
        return float(output.loss(estimate.expand(4001, 1, 3), sample[:, None], unit).mean())

    for move in itertools.product((-0.05, 0, 0.05), repeat=3):
        assert loss(best) <= loss(best + torch.tensor(move)) + 1e-12
    crossed = torch.tensor([[3.0, 1.0, 2.0]])
    assert output.point(crossed).item() == 2
    assert [v.item() for v in output.details(crossed).values()] == [1, 2, 3]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cuts", [[1], [3, 4], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_a_sequence_may_be_cut_anywhere(loss: LossName, cuts: list[int]) -> None:
    network = forecaster(loss, horizons=(1, 4))
    x = torch.randn(3, 9, 2)
    whole, end = network(x)
    state, parts = None, []
    for a, b in itertools.pairwise([0, *cuts, 9]):
        part, state = network(x[:, a:b], state)
        parts.append(part)
    assert_close(torch.cat(parts, 1), whole)
    for ours, theirs in zip(state, end, strict=True):  # type: ignore[arg-type]
        assert_close(ours, theirs)


def test_padding_and_resets_change_nothing() -> None:
    network = forecaster(missing=True)
    first, second = torch.randn(1, 7, 4), torch.randn(1, 4, 4)
    padded = torch.cat([first, torch.cat([second, torch.full((1, 3, 4), 1e3)], 1)])
    together, state = network(padded, lengths=torch.tensor([7, 4]))
    assert_close(together[0], network(first)[0][0])
    assert_close(together[1, :4], network(second)[0][0])
    # the first row goes on, the second begins anew
    more = torch.randn(2, 5, 4)
    after, _ = network(more, state, resets=torch.tensor([False, True]))
    assert_close(after[0], network(torch.cat([first[0], more[0]])[None])[0][0, 7:])
    assert_close(after[1], network(more[1:])[0][0])


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("lags", [0, 1, 5])
def test_one_row_at_a_time_is_the_same(cell: str, lags: int) -> None:
    network = forecaster(cell=cell, lags=lags, num_layers=2, front=[5])
    x = 3 * torch.randn(1, 12, 2)  # some of it far enough out to be drawn in
    with torch.no_grad():
        whole, _ = network(x)
    step, state, rows = ForecastStepper(network), None, []
    for t in range(12):
        estimate, state = step(x[:, t].numpy(), state)
        rows.append(estimate)
    assert_close(torch.cat(rows), whole[0])
    assert torch.equal(
        ForecastStepper(network)(x[0].numpy(), None)[0], torch.cat(rows)
    )  # how rows are cut changes no bit


def test_the_equation_is_the_documented_one() -> None:
    """ŷ = base + scale ∘ (W h + V [x ; Δx …] + b), step by step with the layer itself as the recurrence."""
    network = forecaster(lags=2)
    x = torch.randn(1, 6, 2)
    got, _ = network(x)
    past = torch.cat([x[:, :1], x[:, :1], x], 1)[0]
    changes = (past[1:] - past[:-1]) / network.change_scale
    hidden, _ = network.layer(torch.cat([calmed(x[0]), calmed(changes[1:])], -1)[None])
    for t in range(6):
        recent = torch.stack([changes[t], changes[t + 1]], -1).flatten()  # each input's changes, the older one first
        assert network.linear is not None
        raw = network.head(hidden[0, t]) + network.linear(torch.cat([x[0, t], recent]))
        base = torch.stack([x[0, t, 1], torch.tensor(0.0)])  # the second target is no input
        assert_close(got[0, t, 0, :, 0], base + network.scale[0] * raw)


def test_gradients_are_right() -> None:
    network = forecaster("gaussian").double()
    x = torch.randn(2, 5, 2).double()
    for name in ("scale", "change_scale"):
        setattr(network, name, getattr(network, name).double())
    assert torch.autograd.gradcheck(lambda v: network(v)[0], [x.requires_grad_()])


def test_guesses_take_the_place_of_inputs() -> None:
    network = forecaster(missing=True)
    x = torch.zeros(3, 4)
    changed = network.with_guess(x, torch.tensor([[7.0, 9.0]]).expand(3, 2))
    assert changed.tolist() == [[0, 7, 0, 1]] * 3
    assert x.abs().sum() == 0
