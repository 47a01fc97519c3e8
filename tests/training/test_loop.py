"""The loop's own options: noisy weights, a judgement before the first update, patience."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import nn

from tests.tolerances import assert_close
from unrolled.config.stored import stored_as
from unrolled.data import Batch
from unrolled.training import Evaluation, Goal, Loss, Progress, Trainer, TrainSettings, Traits
from unrolled.training.non_finite import non_finite
from unrolled.training.optimizers import noisy_weights
from unrolled.training.report import stopped_early


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
        traits=Traits(Goal("score"), judge_start=judge),
        evaluate=lambda: Evaluation({"score": float(network.weight.detach().square().sum())}),
        device=torch.device("cpu"),
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
    made.evaluate = lambda: Evaluation({"score": next(scores)})
    best = [(info.is_best, made.progress.best_step, made.progress.stalled) for info in made.steps()]
    assert best == [(True, 1, 0), (True, 2, 1), (True, 3, 0), (True, 4, 1), (False, 4, 2)]


def judged(scores: list[dict[str, float]], progress: Progress | None = None, **options: Any) -> tuple[Trainer, str]:
    """A run over evaluations with these scores, judged by the first; a letter for each: b is best."""
    metric, given = next(iter(scores[0])), iter(scores)
    first = 0 if progress is None else progress.step
    made = trainer(nn.Linear(3, 1, bias=False), max_steps=first + len(scores), **{"eval_every": 1, **options})
    made.goal, made.evaluate = Goal(metric, higher_is_better=True), lambda: Evaluation(next(given))
    made.progress = made.progress if progress is None else progress
    return made, "".join("b" if info.is_best else "-" for info in made.steps())


def ties(score: float, losses: list[float], loss: str = "nll") -> list[dict[str, float]]:
    return [{"accuracy": score, loss: value} for value in losses]


@pytest.mark.parametrize("loss", ["nll", "nats_per_token", "nats_per_label", "loss"])
def test_while_scores_are_equal_a_lower_loss_is_progress(loss: str) -> None:
    """Exact matches stay at 0 for long while a model learns: such a run must not end."""
    made, best = judged(ties(0.0, [1.9 - 0.01 * i for i in range(10)], loss), patience=2)
    assert (made.progress.step, best, made.stalled) == (10, "b" * 10, False)
    made, best = judged(ties(0.0, [1.9, 1.8, 1.8, 1.85, 1.7], loss), patience=2)
    assert (best, made.progress.step, made.progress.best_step, made.progress.better_step) == ("bbb-", 4, 3, 2)


def test_of_equal_scores_the_lower_loss_is_kept() -> None:
    made, best = judged(ties(0.6667, [0.8, 0.9, 1.0, 0.7, 1.1]), patience=0)
    assert (best, made.progress.best_step, made.progress.best_loss) == ("b--b-", 4, 0.7)
    better = {"accuracy": 0.7, "nll": 5.0}
    made, best = judged([*ties(0.6667, [0.8]), better, *ties(0.6667, [0.1]), *ties(0.7, [float("nan")])], patience=0)
    assert (best, made.progress.best_step, made.progress.best_loss) == ("bb--", 2, 5.0)


def test_plateau_leaves_the_learning_rate_while_the_loss_of_equal_scores_falls() -> None:
    plateau: dict[str, Any] = {"schedule": "plateau", "plateau_patience": 0, "patience": 0}
    assert judged(ties(0.0, [3.0, 2.0, 1.0]), **plateau)[0].progress.plateau == 1.0
    assert judged(ties(0.0, [1.0, 2.0, 3.0]), **plateau)[0].progress.plateau == 0.25


def test_a_run_that_goes_on_knows_the_loss_of_its_best() -> None:
    made, _ = judged(ties(0.5, [0.8, 0.9]), patience=0)
    stored = json.loads(json.dumps(asdict(made.progress))) | {"finished": False}
    again, best = judged(ties(0.5, [0.85, 0.7]), stored_as(Progress, stored, "progress"), patience=0)
    assert (best, again.progress.best_step) == ("-b", 4)
    older = {key: value for key, value in stored.items() if key not in ("best_loss", "better_step")}
    again, best = judged(ties(0.5, [0.85, 0.9]), stored_as(Progress, older, "progress"), patience=0)
    assert (best, again.progress.best_step) == ("b-", 3)


def test_a_run_that_stops_early_names_the_evaluation_that_was_better() -> None:
    """Not the last of its equals."""
    for scores, said in (
        (ties(0.5, [0.8, 0.9, 0.8]), "accuracy than at step 1, nor a lower nll with an equal one, in the last 2"),
        ([{"accuracy": 0.5}] * 3, "accuracy than at step 1 in the last 2"),
    ):
        made, _ = judged([*scores, *scores], patience=2)
        assert made.stalled
        text = stopped_early(made.goal, made.progress, scores[-1])
        assert text == f"Stopped early: no better {said} evaluations (train.patience)."


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
    made.evaluate = lambda: Evaluation({"score": next(given)})
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
        (("clip_norm", None),): "No model is kept: there was no evaluation yet. Try train.lr=3.33333e+19, "
        "or train.clip_norm=1, which is off now.",
        (("clip_norm", 2.0),): "No model is kept: there was no evaluation yet. Try train.lr=3.33333e+19, "
        "or train.clip_norm=0.5.",
        (("clip_norm", None), ("eval_every", 1)): "The best model so far is kept. Try train.lr=3.33333e+19, "
        "or train.clip_norm=1, which is off now.",
    }.items():
        made = trainer(nn.Linear(3, 1, bias=False), max_steps=9, optimizer="sgd", lr=1e20, **dict(options))
        made.progress.best_score = 1.0 if "eval_every" in dict(options) else None
        assert non_finite(made, float("nan"), []).fix == said
    made.progress.best_score = None
    first = "No model is kept: this was the first evaluation. Try train.lr=3.33333e+19, or train.clip_norm=1, which"
    assert non_finite(made, float("nan")).fix.startswith(first)
