"""The policy with memory: its maze, its returns and its resets against their definitions; a tiny maze is learnt."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tolerances import assert_close

RECIPES = Path(__file__).parent.parent / "recipes"


@pytest.fixture
def maze(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(RECIPES)
    return importlib.import_module("maze")


def test_the_rules_of_the_maze(maze: Any) -> None:
    """Walls, both turns and the sign, in three lanes side by side."""
    mazes = maze.Mazes(3, 2, torch.Generator().manual_seed(0))
    mazes.goal_up = torch.tensor([True, False, True])
    assert mazes.seen().tolist() == [maze.SIGN_UP, maze.SIGN_DOWN, maze.SIGN_UP]
    rewards, ended = mazes.step(torch.tensor([maze.RIGHT, maze.RIGHT, maze.LEFT]))
    assert_close(rewards, torch.tensor([0.0, 0.0, -0.1]))
    assert mazes.seen().tolist() == [maze.CORRIDOR, maze.CORRIDOR, maze.SIGN_UP]
    mazes.step(torch.tensor([maze.RIGHT] * 3))
    assert mazes.seen().tolist() == [maze.JUNCTION, maze.JUNCTION, maze.CORRIDOR]  # the junctions look alike
    rewards, ended = mazes.step(torch.tensor([maze.UP] * 3))
    assert_close(rewards, torch.tensor([4.0, -0.1, -0.1]))
    assert ended.tolist() == [True, True, False]
    assert mazes.place.tolist() == [0, 0, 1]


def test_returns_are_sums_of_rewards_to_the_end_of_an_episode(maze: Any) -> None:
    rewards = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    ended = torch.tensor([[False, True, False, False]])
    after = torch.tensor([10.0], dtype=torch.float64)
    expected = [[1 + 0.5 * 2, 2, 3 + 0.5 * (4 + 0.5 * 10), 4 + 0.5 * 10]]
    assert_close(maze.returns(rewards, ended, after, 0.5), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_one_pass_with_resets_equals_every_episode_alone(maze: Any, memory: str) -> None:
    policy = maze.Policy(memory)
    mazes = maze.Mazes(4, 1, torch.Generator().manual_seed(0))
    played, _, _ = maze.play(policy, mazes, torch.ones(4, dtype=torch.bool), None, 20)
    together, values, _ = policy(played.seen, played.resets, None)
    assert int(played.ended.sum()) > 4
    for lane in range(4):
        starts = [*played.resets[lane].nonzero()[:, 0].tolist(), 20]
        for start, end in itertools.pairwise(starts):
            seen = played.seen[lane : lane + 1, start:end]
            alone, value, _ = policy(seen, torch.zeros_like(seen, dtype=torch.bool), None)
            assert_close(together[lane, start:end], alone[0])
            assert_close(values[lane, start:end], value[0])


def test_memory_learns_what_a_plain_policy_cannot(maze: Any) -> None:
    """A corridor of one step: the junction is one step behind the sign."""
    with_memory, _ = maze.train("gru", torch.seed() % 1000, 1, 120, steps=8)
    assert maze.score(with_memory, 1, 1000)["right turns"] > 0.9
    without, _ = maze.train("none", 0, 1, 20, steps=8)
    assert maze.score(without, 1, 1000)["right turns"] < 0.6  # 0.5 ± 0.016 by construction
