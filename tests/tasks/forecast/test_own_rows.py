"""Forecasters trained on their own predictions, against a loop over time written out with torch's cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.faults.test_resume import assert_resumed_is_as_if_never_stopped
from tests.tasks.forecast.conftest import SMALL, table, waves
from tests.tasks.own_outputs import on_engine
from tests.tolerances import assert_close
from unrolled import UserError, api
from unrolled.data import Batch
from unrolled.jobs import TrainingJob
from unrolled.models.forecaster import Forecaster, ForecasterSettings, calmed
from unrolled.models.forecaster_sizes import ForecasterSizes
from unrolled.models.outputs import LossName, make_output
from unrolled.tasks.contract import Training
from unrolled.tasks.forecast.config import ForecastTraining
from unrolled.tasks.forecast.task import Forecast

LAGS, LENGTHS = 2, torch.tensor([7, 3, 5, 0])
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "never": ({"teacher_forcing": "never"}, {}, 1.0),
    "share": ({"teacher_forcing": "share", "forced_share": 0.6}, {}, 0.4),
    "schedule": ({"teacher_forcing": "linear"}, {"done": 0.7}, 0.7),
    "after the switch": ({"teacher_forcing": "switch", "switch_epoch": 2}, {"epoch": 2}, 1.0),
    "before the switch": ({"teacher_forcing": "switch", "switch_epoch": 2}, {"epoch": 1}, 0.0),
}
CASES: dict[str, tuple[LossName, str, tuple[int, ...], tuple[int, ...], bool]] = {  # loss, pick, positions, horizons
    "every column": ("mse", "point", (0, 1), (1,), False),
    "another column too, horizons": ("mae", "point", (1,), (1, 3), False),
    "a target that is not read, gaps": ("gaussian", "point", (1, -1), (1, 2), True),
    "quantiles": ("quantiles", "point", (1, 0), (1,), False),
    "sampled": ("gaussian", "sample", (0, 1), (1, 4), False),
    "notes": ("bernoulli", "point", (0, 1), (1,), False),
    "sampled notes": ("bernoulli", "sample", (0, 1), (1,), False),
}


def a_network(case: str) -> Forecaster:
    loss, _, positions, horizons, missing = CASES[case]
    settings = ForecasterSettings(cell="gru", hidden_size=5, dropout=0.0)
    layout = ForecasterSizes(2, missing, horizons, positions, residual=loss != "bernoulli", changes=True, lags=LAGS)
    network = Forecaster(settings, layout, make_output(loss, [0.1, 0.5, 0.9]), tune_linear=True).double().train()
    with torch.no_grad():
        network.scale.copy_(torch.rand(network.scale.shape) + 0.5)
        network.change_scale.copy_(torch.rand(2) + 0.5)
        assert network.linear is not None
        network.linear.weight.mul_(0.1)  # so that samples of samples do not explode
    return network


def a_batch(network: Forecaster, binary: bool) -> Batch:
    """Ragged rows, the second of a new series; some targets are not scored."""
    rows, steps = len(LENGTHS), int(LENGTHS.max())
    inputs = torch.randn(rows, steps, network.layout.features).double()
    targets = torch.randn(rows, steps, *network.layout.outputs).double()
    if binary:
        inputs, targets = (inputs > 0).double(), (targets > 0).double()
    if network.layout.missing:
        inputs[..., 2:] = (inputs[..., 2:] > 0).double()
        inputs[..., :2] *= inputs[..., 2:]
    targets[torch.rand(targets.shape) < 0.1] = torch.nan
    targets[torch.arange(steps) >= LENGTHS[:, None]] = torch.nan
    return Batch(inputs, targets, lengths=LENGTHS, resets=torch.tensor([False, True, False, False]))


def one_step(network: Forecaster, x: Tensor, hidden: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """ŷ = base + scale ∘ (W h + V [x ; changes] + b): the estimate (B, horizons, K, P), h and the last rows."""
    layer: Any = network.layer
    seen = torch.cat([past, x[:, None, :2]], dim=1)  # (B, LAGS + 1, D)
    changes = seen.diff(dim=1) / network.change_scale
    read = torch.cat([calmed(x), calmed(changes[:, -1])], dim=1)
    hidden = torch.gru_cell(read, hidden, layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
    assert network.linear is not None
    linear = torch.cat([x[:, :2], changes.mT.flatten(1)], dim=1)
    raw = network.head(hidden) + F.linear(linear, network.linear.weight)
    raw = raw.view(len(x), *network.layout.outputs, -1)
    columns = torch.cat([x[:, :2], torch.zeros_like(x[:, :1])], dim=1)
    base = columns[:, list(network.layout.positions)][:, None] if network.layout.residual else torch.zeros(1, 1, 1)
    scale = network.scale
    if network.output.size == 2:  # a mean and a log deviation
        estimate = torch.stack([base + scale * raw[..., 0], raw[..., 1].clamp(-9, 9) + scale.log()], dim=-1)
    elif network.output.per_step:  # a logit
        estimate = raw
    else:
        estimate = base[..., None] + scale[..., None] * raw
    return estimate, hidden, seen[:, 1:]


def fed(case: str, estimate: Tensor) -> Tensor:
    """The numbers (B, K) that are read next, from an estimate (B, K, P) of the next row."""
    loss, pick = CASES[case][:2]
    if loss == "gaussian":
        noise = torch.randn(estimate.shape[:-1]) if pick == "sample" else 0.0
        return estimate[..., 0] + estimate[..., 1].exp() * noise
    if loss == "bernoulli":
        chance = estimate[..., 0].sigmoid()
        return ((torch.rand(chance.shape) < chance) if pick == "sample" else chance >= 0.5).double()
    return estimate.sort(-1).values[..., 1] if loss == "quantiles" else estimate[..., 0]


def by_loop(network: Forecaster, case: str, batch: Batch, entry: Any, share: float) -> tuple[Tensor, list[Tensor]]:
    """The estimates (B, T, …) of a loop that reads its own predictions, and the state after each row's last step."""
    assert batch.lengths is not None
    assert batch.resets is not None
    x, steps = batch.inputs, batch.inputs.shape[1]
    own = (torch.rand(x.shape[:2]) < share) & (torch.arange(steps) < batch.lengths[:, None])
    own[:, 0] = False
    fresh = batch.resets[:, None]
    hidden = torch.where(fresh, 0.0, entry[0][:, 0])
    past = torch.where(fresh[..., None], x[:, :1, :2].expand(-1, LAGS, -1), entry[1])
    estimates: list[Tensor] = []
    final = [hidden, past]
    for t in range(steps):
        row = x[:, t]
        if own[:, t].any():
            guess = fed(case, estimates[-1][:, network.layout.next])
            columns = list(row.unbind(1))
            for k, position in enumerate(network.layout.positions):
                if position >= 0:
                    columns[position] = torch.where(own[:, t], guess[:, k], columns[position])
                    if network.layout.missing:
                        columns[2 + position] = torch.where(own[:, t], 1.0, columns[2 + position])
            row = torch.stack(columns, dim=1)
        estimate, hidden, past = one_step(network, row, hidden, past)
        estimates.append(estimate)
        going = t < batch.lengths
        final = [torch.where(going[:, None], hidden, final[0]), torch.where(going[:, None, None], past, final[1])]
    return torch.stack(estimates, dim=1), final


def gradients(network: Forecaster, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(network.parameters()), allow_unused=False))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_a_loop_over_time(case: str, way: str) -> None:
    """Several series, ragged, some that go on: the loss, the state, and gradients through what was fed back."""
    changes, done, share = WAYS[way]
    network = a_network(case)
    batch = a_batch(network, CASES[case][0] == "bernoulli")
    entry = (torch.randn(4, 1, 5).double(), torch.randn(4, LAGS, 2).double())
    settings = ForecastTraining(feedback="steps", pick=CASES[case][1], **changes)
    seed = int(torch.randint(1 << 30, ()))
    torch.manual_seed(seed)
    ours = Forecast().loss(network, batch, entry, Training(settings, **done))
    torch.manual_seed(seed)
    estimates, final = by_loop(network, case, batch, entry, share)
    scored = ~batch.targets.isnan()
    total = network.output.loss(estimates, batch.targets.nan_to_num(), network.scale)[scored].sum()
    assert_close(ours.sum, total)
    assert_close(ours.state[0][:, 0], final[0])
    assert_close(ours.state[1], final[1])
    for (name, _), found, expected in zip(
        network.named_parameters(), gradients(network, ours.sum), gradients(network, total), strict=True
    ):
        assert_close(found, expected, name)


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_every_engine_runs_it(engine: str) -> None:
    """In float32, against the network in float64."""
    network = a_network("every column")
    batch = a_batch(network, False)
    settings = ForecastTraining(teacher_forcing="never", feedback="steps")
    expected = Forecast().loss(network, batch, None, Training(settings))
    wanted = gradients(network, expected.sum)
    on_engine(network.float(), engine)
    single = replace(batch, inputs=batch.inputs.float(), targets=batch.targets.float())
    loss = Forecast().loss(network, single, None, Training(settings))
    assert_close(loss.sum, expected.sum.float())
    for found, gradient in zip(gradients(network, loss.sum), wanted, strict=True):
        assert_close(found, gradient.float())


def test_gradients_pass_through_the_rows_that_are_fed_back() -> None:
    """The error of the last step alone: its gradient differs from that of the same rows as given numbers."""
    network = a_network("every column")
    batch = a_batch(network, False)
    batch = Batch(batch.inputs[:1], batch.targets[:1].nan_to_num())
    settings = ForecastTraining(teacher_forcing="never", feedback="steps")
    targets = torch.full_like(batch.targets, torch.nan)
    targets[:, -1] = 0.0
    loss = Forecast().loss(network, replace(batch, targets=targets), None, Training(settings))
    estimates, _ = network(batch.inputs[:, :1])
    rows = [batch.inputs[:, 0]]
    for _ in range(6):
        rows.append(network.with_guess(rows[-1], estimates[:, -1, 0, :, 0]).detach())
        estimates, _ = network(torch.stack(rows, dim=1))
    given = Forecast().loss(network, replace(batch, inputs=torch.stack(rows, 1), targets=targets), None)
    assert_close(loss.sum, given.sum)
    pairs = zip(gradients(network, loss.sum), gradients(network, given.sum), strict=True)
    assert all(float((a - b).abs().max()) > 1e-4 for a, b in pairs)


def test_only_true_rows_are_teacher_forcing_to_the_bit() -> None:
    network = a_network("every column")
    batch = a_batch(network, False)
    entry = (torch.randn(4, 1, 5).double(), torch.randn(4, LAGS, 2).double())
    forced = Forecast().loss(network, batch, entry, Training(ForecastTraining()))
    settings = ForecastTraining(teacher_forcing="share", forced_share=1.0, feedback="steps")
    ours = Forecast().loss(network, batch, entry, Training(settings))
    assert torch.equal(forced.sum, ours.sum)
    pairs = zip(gradients(network, forced.sum), gradients(network, ours.sum), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


STEPS = {"train.teacher_forcing": "never", "train.feedback": "steps"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {**STEPS, "train.pick": "sample"},
            "train.pick=sample, but the model predicts no distribution. "
            "Use train.pick=point, or model.loss=gaussian or bernoulli.",
        ),
        (
            {**STEPS, "train.pick": "sample", "model.loss": "mae"},
            "train.pick=sample, but the model predicts no distribution (model.loss=mae). "
            "Use train.pick=point, or model.loss=gaussian or bernoulli.",
        ),
        (
            {**STEPS, "model.variational_dropout": 0.1},
            "train.feedback=steps runs a step at a time, and model.variational_dropout has one mask for all steps of a "
            "window. Use model.variational_dropout=0, or train.feedback=parallel.",
        ),
        (
            {**STEPS, "data.horizon": 2},
            "The model predicts 2 steps ahead, not the next one. Train with 1 among data.horizon.",
        ),
    ],
)
def test_what_cannot_be_fed_back_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", waves(60))
    with pytest.raises(UserError) as caught:
        TrainingJob(api.configure("forecast", [], {"data.train": str(path), **changes}))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "changes",
    [
        {"train.teacher_forcing": "switch", "train.switch_step": 7},
        {"train.teacher_forcing": "share", "train.forced_share": 0.5, "model.loss": "gaussian", "train.pick": "sample"},
    ],
    ids=["switch", "share, sampled"],
)
def test_resumed_it_ends_with_the_same_bits(changes: dict[str, Any], file: Path, tmp_path: Path) -> None:
    keys = {"model.dropout": 0.2, "train.feedback": "steps", "train.max_steps": 14, "train.eval_every": 4}
    settings = {**SMALL, **keys, "train.threads": 1, **changes}
    assert_resumed_is_as_if_never_stopped("forecast", file, settings, tmp_path, stops=(2,))
