"""The loop's own options: noisy weights, a judgement before the first update, patience."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tolerances import assert_close
from unrolled.data import Batch
from unrolled.training import Goal, Loss, Trainer, TrainSettings
from unrolled.training.loop import noisy_weights


class One:
    """The same batch again and again."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Batch:
        return Batch(torch.ones(1, 1, 3), torch.zeros(1, 1))

    def order(self, epoch: int) -> None:
        pass


def trainer(network: nn.Linear, **options: Any) -> Trainer:
    def loss(batch: Batch, state: Any) -> Loss:
        return Loss(network.weight.square().sum() / 2, torch.tensor(1))

    judge = options.pop("judge_start", False)
    settings = TrainSettings(**{"max_steps": 3, "clip_norm": None, "warmup_steps": 0, **options})
    return Trainer(
        network,
        loss,
        One(),
        settings,
        goal=Goal("score"),
        evaluate=lambda: {"score": float(network.weight.detach().square().sum())},
        device=torch.device("cpu"),
        judge_start=judge,
    )


def test_gradients_are_those_of_the_noisy_weights() -> None:
    """Of ½‖w‖² the gradient is w: with noise it is w + noise, and w itself comes back."""
    network = nn.Linear(3, 1, bias=False)
    before = network.weight.detach().clone()
    torch.manual_seed(5)
    with noisy_weights(network, 0.1):
        noisy = network.weight.detach().clone()
    assert torch.equal(network.weight, before)
    torch.manual_seed(5)
    trainer(network, weight_noise=0.1).gradients()
    assert network.weight.grad is not None
    assert_close(network.weight.grad, noisy)
    assert torch.equal(network.weight, before)


def test_the_noise_has_its_deviation() -> None:
    network = nn.Linear(100, 100)
    before = network.weight.detach().clone()
    with noisy_weights(network, 0.075):
        noise = network.weight.detach() - before
    assert abs(float(noise.std()) - 0.075) < 0.005


def test_a_network_is_judged_before_the_first_update_where_that_is_asked_for() -> None:
    network = nn.Linear(3, 1, bias=False)
    start = float(network.weight.detach().square().sum())
    infos = list(trainer(network, judge_start=True, lr=1.0, optimizer="sgd", eval_every=1).steps())
    assert [info.step for info in infos] == [0, 1, 2, 3]
    assert infos[0].scores == {"score": start}
    assert infos[0].is_best
    again = trainer(nn.Linear(3, 1, bias=False), lr=0.1, optimizer="rmsprop")
    assert [info.step for info in again.steps()] == [1, 2, 3]


def test_of_equal_scores_the_last_is_the_best() -> None:
    """A score that says nothing yet, as an error rate of 1, must not keep the least trained network; yet it stalls."""
    scores = iter([1.0, 1.0, 0.5, 0.5, 0.7])
    made = trainer(nn.Linear(3, 1, bias=False), max_steps=5, eval_every=1)
    made.evaluate = lambda: {"score": next(scores)}
    best = [(info.is_best, made.progress.best_step, made.progress.stalled) for info in made.steps()]
    assert best == [(True, 1, 0), (True, 2, 1), (True, 3, 0), (True, 4, 1), (False, 4, 2)]


def test_as_many_updates_as_are_asked_for() -> None:
    """The usual number is for those who ask for none; of two numbers the one that comes first."""
    asked: list[tuple[dict[str, int | None], int]] = [
        ({"max_steps": 5000}, 5000),
        ({"max_steps": 5000, "epochs": 7}, 7),
        ({"max_steps": 5, "epochs": 7}, 5),
        ({"max_steps": None}, TrainSettings.usual_updates),
    ]
    for options, updates in asked:
        assert trainer(nn.Linear(1, 1, bias=False), **options).total_steps == updates


def stalls(scores: list[float], **options: Any) -> Trainer:
    """A run over evaluations with these scores, one after each update."""
    given = iter(scores)
    made = trainer(nn.Linear(3, 1, bias=False), max_steps=len(scores), **{"eval_every": 1, **options})
    made.evaluate = lambda: {"score": next(given)}
    for _ in made.steps():
        pass
    return made


def test_patience_is_two_fifths_of_the_evaluations_unless_it_is_said() -> None:
    fell = [9.0, 8.0, *[8.5] * 8]
    assert stalls(fell).progress.step == 6  # best at the second of ten: four more
    assert stalls(fell).stalled
    assert stalls(fell, patience=0).progress.step == 10
    assert not stalls(fell, patience=0).stalled
    assert stalls(fell, patience=1).progress.step == 3
    late = [9.0, 8.0, 8.5, 8.5, 8.5, 7.0, 7.5, 7.5, 7.5, 6.0]
    assert stalls(late).progress.best_score == 6.0
    assert stalls([9.0] * 100).progress.step == 41  # in proportion where there are more


def test_few_evaluations_are_not_cut() -> None:
    assert stalls([1.0, 2.0, 2.0, 2.0]).progress.step == 4
    assert trainer(nn.Linear(1, 1), max_steps=10, eval_every=5).patience == 4


def test_a_mean_that_begins_when_evaluations_stall_is_waited_for() -> None:
    made = trainer(nn.Linear(3, 1, bias=False), max_steps=50, eval_every=1, average_stalled=5, optimizer="sgd")
    assert made.patience is None


def test_what_to_try_fits_the_settings() -> None:
    """A model is kept only after an evaluation; clipping that is off cannot be lower."""
    for options, said in {
        (("clip_norm", None),): "There was no evaluation yet, so no model is kept. Try train.lr=3.33333e+19, "
        "or train.clip_norm=1, which is off now.",
        (("clip_norm", 2.0),): "There was no evaluation yet, so no model is kept. Try train.lr=3.33333e+19, "
        "or train.clip_norm=0.5.",
        (("clip_norm", None), ("eval_every", 1)): "The best model so far is kept. Try train.lr=3.33333e+19, "
        "or train.clip_norm=1, which is off now.",
    }.items():
        made = trainer(nn.Linear(3, 1, bias=False), max_steps=9, optimizer="sgd", lr=1e20, **dict(options))
        made.progress.best_score = 1.0 if "eval_every" in dict(options) else None
        assert made._non_finite(float("nan"))[1] == said
