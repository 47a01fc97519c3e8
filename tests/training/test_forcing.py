"""Teacher forcing and its schedules."""

from __future__ import annotations

import pytest
import torch

from unrolled.training import Forcing, own_share, with_own_guesses


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
