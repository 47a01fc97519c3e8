"""Teacher forcing and its schedules."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unrolled import UserError, api
from unrolled.jobs import TrainingJob
from unrolled.training import Forcing, ForcingSettings, own_share, with_own_guesses
from unrolled.training.forcing import fed_back, own_places, picked


@pytest.mark.parametrize("schedule", ["linear", "exponential", "inverse_sigmoid"])
def test_schedules_move_from_the_text_to_the_models_own(schedule: Forcing) -> None:
    shares = [own_share(schedule, done / 20) for done in range(21)]
    assert shares == sorted(shares)
    assert shares[0] < 0.01
    assert shares[-1] > 0.98


def test_the_ends() -> None:
    assert own_share("always", 0.7) == 0
    assert own_share("never", 0.0) == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_schedule_is_honoured(share: float) -> None:
    """A model sure of token 7: that many inputs are 7, the first never."""
    inputs = torch.zeros(50, 41, dtype=torch.int64)
    scores = torch.full((50, 41, 9), -50.0)
    scores[..., 7] = 50.0
    mixed = with_own_guesses(inputs, scores, share)
    assert (mixed[:, 0] == 0).all()
    assert abs((mixed[:, 1:] == 7).float().mean().item() - share) < 0.05
    assert set(mixed.flatten().tolist()) <= {0, 7}


def test_a_guess_follows_the_input_it_was_made_from() -> None:
    """The guess after step t stands at step t + 1."""
    inputs = torch.zeros(1, 4, dtype=torch.int64)
    scores = torch.full((1, 4, 9), -50.0)
    for t, token in enumerate([3, 4, 5, 6]):
        scores[0, t, token] = 50.0
    assert with_own_guesses(inputs, scores, 1.0).tolist() == [[0, 3, 4, 5]]


def test_a_constant_share_and_a_switch() -> None:
    assert ForcingSettings(teacher_forcing="share", forced_share=0.75).own_share(0.9, 100, 9) == 0.25
    by_step = ForcingSettings(teacher_forcing="switch", switch_step=100)
    assert [by_step.own_share(0.9, step, 7) for step in (0, 99, 100, 101)] == [0, 0, 1, 1]
    by_epoch = ForcingSettings(teacher_forcing="switch", switch_epoch=2)
    assert [by_epoch.own_share(0.9, 500, epoch) for epoch in (0, 1, 2, 3)] == [0, 0, 1, 1]
    at_half = ForcingSettings(teacher_forcing="switch")
    assert [at_half.own_share(done) for done in (0.0, 0.49, 0.5, 1.0)] == [0, 0, 1, 1]
    follows = [ForcingSettings(teacher_forcing=name).follows_the_end for name in ("always", "never", "linear")]
    assert [*follows, at_half.follows_the_end, by_step.follows_the_end] == [False, False, True, True, False]


def test_earlier_configs_mean_the_same() -> None:
    """A config of an earlier version has one key: its guesses are drawn at once, and sampled."""
    old = ForcingSettings.model_validate({"teacher_forcing": "linear"})
    assert (old.feedback, old.pick, old.own_share(0.3)) == ("parallel", "sample", 0.3)


ALWAYS = (
    "does nothing here: it belongs to train.teacher_forcing other than always, and train.teacher_forcing is always."
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"forced_share": 0.5},
            "train.forced_share=0.5 does nothing here: it belongs to train.teacher_forcing=share, and "
            "train.teacher_forcing is always. Leave it out.",
        ),
        (
            {"teacher_forcing": "share"},
            "train.forced_share=none: train.teacher_forcing=share needs it: a probability from 0 to 1, such as 0.5",
        ),
        (
            {"teacher_forcing": "share", "forced_share": 1.5},
            "train.forced_share=1.5 is out of range. Expected a number from 0 to 1 or none.",
        ),
        (
            {"teacher_forcing": "linear", "switch_step": 9},
            "train.switch_step=9 does nothing here: it belongs to train.teacher_forcing=switch, and "
            "train.teacher_forcing is linear. Leave it out.",
        ),
        (
            {"teacher_forcing": "switch", "switch_step": 9, "switch_epoch": 1},
            "train.switch_epoch=1 does nothing here: it belongs to train.switch_step=none, and train.switch_step is 9. "
            "Leave it out.",
        ),
        ({"feedback": "steps"}, f"train.feedback='steps' {ALWAYS} Leave it out."),
        ({"pick": "argmax"}, f"train.pick='argmax' {ALWAYS} Leave it out."),
        (
            {"teacher_forcing": "sometimes"},
            "Unknown train.teacher_forcing 'sometimes'. Choices: always, exponential, inverse_sigmoid, linear, never, "
            "share, switch.",
        ),
        (
            {"teacher_forcing": "never", "feedback": "loop"},
            "Unknown train.feedback 'loop'. Choices: parallel, steps.",
        ),
    ],
)
def test_mistakes(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        TrainingJob(api.configure("translate", [], {f"train.{key}": value for key, value in changes.items()}))
    assert str(caught.value) == message


def test_own_outputs_are_made_from_what_was_read() -> None:
    """A model that says the sum of all it has read, mod 10: its outputs fed back are 1, 1, 2, 4, 8, 6."""

    def run(tokens: Tensor, state: Tensor, t: int) -> tuple[Tensor, Tensor]:
        state = state + tokens
        return F.one_hot(state % 10, 10).double(), state

    inputs = torch.tensor([[1, 5, 5, 5, 5, 5], [1, 5, 5, 5, 5, 5]])
    own = torch.tensor([[False, True, True, True, True, True], [False, False, True, False, True, False]])
    zeros = torch.zeros(2, dtype=torch.int64)
    assert fed_back(run, zeros, inputs, own, "argmax").tolist() == [[1, 1, 2, 4, 8, 6], [1, 5, 6, 5, 7, 5]]
    assert torch.equal(fed_back(run, zeros, inputs, torch.zeros_like(own), "argmax"), inputs)


def test_samples_follow_the_distribution() -> None:
    scores = torch.tensor([0.1, 0.2, 0.7]).log().expand(20_000, 3)
    counts = torch.bincount(picked(scores, "sample"), minlength=3) / 20_000
    assert torch.allclose(counts, torch.tensor([0.1, 0.2, 0.7]), atol=0.02)
    assert (picked(scores, "argmax") == 2).all()


def test_places_of_own_outputs() -> None:
    """A share of the real steps; never the first one, and never where a new sequence begins."""
    real = torch.arange(60) < torch.tensor([60, 30]).repeat(200)[:, None]
    own = own_places(real, 0.3)
    assert not own[:, 0].any()
    assert not own[~real].any()
    assert abs(own[:, 1:][real[:, 1:]].float().mean().item() - 0.3) < 0.02
    resets = torch.zeros_like(real)
    resets[:, 7] = True
    own = own_places(real, 1.0, resets)
    assert not own[:, 7].any()
    assert own[:, 8].all()
