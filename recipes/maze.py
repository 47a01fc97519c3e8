"""A policy with memory: the T-maze of Bakker (2002), by actor–critic with a GRU, an LSTM, and without memory.

    python recipes/maze.py [--corridor 10] [--seeds 0,1,2] [--policies none,gru,lstm] [--updates 1000] [--out FOLDER]

At the start of a corridor a sign says whether the goal is up or down at the far end. On the way all places look alike,
and so do both kinds of junction. The agent moves up, down, left or right. The right turn at the junction gives 4, the
wrong one −0.1, and both end the episode; a move against a wall gives −0.1; every other move gives 0.

- With memory, the best policy walks straight to the junction and takes the right turn: a return of 4 in every episode.
- Without memory, the two junctions are one observation, so any policy is right half of the time: at best
  (4 − 0.1) / 2 = 1.95.

Several mazes run side by side, each in a lane of the batch. Where an episode ends, the next begins in the same lane,
and `resets` returns the state of that lane to zero, in the rollout and in the update. Nothing needs to be downloaded.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import machine, mistakes_told
from torch import Tensor, nn

from unrolled.nn import layer

DATA = ()  # the recipe makes its own
POLICIES = ("none", "gru", "lstm")
UP, DOWN, LEFT, RIGHT = range(4)
SIGN_UP, SIGN_DOWN, CORRIDOR, JUNCTION = range(4)  # observations
GOAL, WRONG = 4.0, -0.1
BEST = {"none": (GOAL + WRONG) / 2, "gru": GOAL, "lstm": GOAL}
LANES, STEPS, HIDDEN = 32, 32, 32
DISCOUNT, ENTROPY, VALUE, LR = 0.98, 0.02, 0.5, 5e-3


@dataclass
class Mazes:
    """`lanes` T-mazes, stepped together."""

    lanes: int
    corridor: int  # steps from the start to the junction
    source: torch.Generator
    place: Tensor = field(init=False)
    age: Tensor = field(init=False)
    goal_up: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.place = torch.zeros(self.lanes, dtype=torch.int64)
        self.age = torch.zeros(self.lanes, dtype=torch.int64)
        self.goal_up = self._coins()

    def _coins(self) -> Tensor:
        return torch.rand(self.lanes, generator=self.source) < 0.5

    def seen(self) -> Tensor:
        """Observations (B,)."""
        sign = torch.where(self.goal_up, SIGN_UP, SIGN_DOWN)
        inside = torch.where(self.place == self.corridor, JUNCTION, CORRIDOR)
        return torch.where(self.place == 0, sign, inside)

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards (B,), and which episodes ended (B,): their lanes begin a new one."""
        junction, vertical = self.place == self.corridor, actions <= DOWN
        turned = junction & vertical
        right_turn = (actions == UP) == self.goal_up
        move = (actions == RIGHT).long() - (actions == LEFT).long()
        moved = (self.place + move).clamp(0, self.corridor)
        stuck = (moved == self.place) & ~turned
        rewards = torch.where(turned & right_turn, GOAL, torch.where(turned | stuck, WRONG, 0.0))
        self.age += 1
        ended = turned | (self.age >= 20 * self.corridor)
        self.place = torch.where(ended, 0, moved)
        self.age = torch.where(ended, 0, self.age)
        self.goal_up = torch.where(ended, self._coins(), self.goal_up)
        return rewards, ended


class Policy(nn.Module):
    """Observations → action logits (B, T, 4) and values (B, T), through a recurrent layer or a plain one."""

    def __init__(self, memory: str) -> None:
        super().__init__()
        self.memory = None if memory == "none" else layer(memory, 4, HIDDEN, batch_first=True)
        self.plain = nn.Sequential(nn.Linear(4, HIDDEN), nn.Tanh()) if memory == "none" else None
        self.actions, self.value = nn.Linear(HIDDEN, 4), nn.Linear(HIDDEN, 1)

    def forward(self, seen: Tensor, resets: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """`resets` (B, T) is True at the first step of an episode."""
        x = nn.functional.one_hot(seen, 4).float()
        if self.memory is not None:
            hidden, state = self.memory(x, state, resets=resets)
        else:
            assert self.plain is not None
            hidden = self.plain(x)
        return self.actions(hidden), self.value(hidden)[..., 0], state


class Rollout(NamedTuple):
    """T steps of every lane, (B, T) each."""

    seen: Tensor
    resets: Tensor
    actions: Tensor
    rewards: Tensor
    ended: Tensor


@torch.no_grad()
def play(policy: Policy, mazes: Mazes, fresh: Tensor, state: Any, steps: int) -> tuple[Rollout, Tensor, Any]:
    """The next steps of every lane; `fresh` (B,) says which lanes begin an episode. Also the new `fresh` and state."""
    rows = []
    for _ in range(steps):
        seen, resets = mazes.seen(), fresh
        logits, _, state = policy(seen[:, None], resets[:, None], state)
        actions = torch.multinomial(logits[:, 0].softmax(-1), 1, generator=mazes.source)[:, 0]
        rewards, fresh = mazes.step(actions)
        rows.append((seen, resets, actions, rewards, fresh))
    return Rollout(*(torch.stack(column, dim=1) for column in zip(*rows, strict=True))), fresh, state


def returns(rewards: Tensor, ended: Tensor, after: Tensor, discount: float) -> Tensor:
    """Discounted returns (B, T): r_t + γ·r_{t+1} + … to the end of the episode, or to `after`, the value beyond."""
    found, following = torch.empty_like(rewards), after
    for t in reversed(range(rewards.shape[1])):
        following = rewards[:, t] + discount * following * ~ended[:, t]
        found[:, t] = following
    return found


def actor_critic(policy: Policy, played: Rollout, before: Any, mazes: Mazes, fresh: Tensor, state: Any) -> Tensor:
    """The loss of a rollout: one pass over all its steps, from the state before it; resets part the episodes.

    −log π(a)·(return − value), half of the squared error of the value, less a bonus for entropy.
    """
    logits, values, _ = policy(played.seen, played.resets, before)
    with torch.no_grad():
        _, after, _ = policy(mazes.seen()[:, None], fresh[:, None], state)
        target = returns(played.rewards, played.ended, after[:, 0], DISCOUNT)
        advantage = target - values
    log_probs = logits.log_softmax(-1)
    taken = log_probs.gather(-1, played.actions[..., None])[..., 0]  # (B, T)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    critic = (values - target).square().mean()
    loss: Tensor = VALUE * critic - (taken * advantage).mean() - ENTROPY * entropy.mean()
    return loss


def train(
    memory: str, seed: int, corridor: int, updates: int, *, lanes: int = LANES, steps: int = STEPS
) -> tuple[Policy, Mazes]:
    """A policy after `updates` updates, each from `steps` steps of every lane, and its mazes."""
    torch.manual_seed(seed)
    policy = Policy(memory)
    mazes = Mazes(lanes, corridor, torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(policy.parameters(), lr=LR)
    fresh, state = torch.ones(lanes, dtype=torch.bool), None
    for _ in range(updates):
        before = state
        played, fresh, state = play(policy, mazes, fresh, state, steps)
        loss = actor_critic(policy, played, before, mazes, fresh, state)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
    return policy, mazes


def score(policy: Policy, corridor: int, episodes: int, seed: int = 10**6) -> dict[str, float]:
    """Mean undiscounted return, share of right turns, and steps, of the sampled policy in new mazes."""
    mazes = Mazes(episodes, corridor, torch.Generator().manual_seed(seed))
    mazes.goal_up = torch.arange(episodes) % 2 == 0  # as many of each kind: a policy that always turns up gets half
    started = torch.ones(episodes, dtype=torch.bool)
    played, _, _ = play(policy, mazes, started, None, 20 * corridor)
    first = (played.ended.cumsum(1) - played.ended.int()) == 0  # the steps of each lane's first episode
    rewards = played.rewards * first
    return {
        "return": round(float(rewards.sum(1).mean()), 4),
        "right turns": round(float((rewards == GOAL).any(1).float().mean()), 4),
        "steps": round(float(first.sum(1).float().mean()), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="not needed: the mazes are made here")
    parser.add_argument("--device", default="cpu", help="not used: the networks are small, and run on the CPU")
    parser.add_argument("--corridor", type=int, default=10)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    runs = []
    for memory in options.policies.split(","):
        for seed in map(int, options.seeds.split(",")):
            began = time.perf_counter()
            policy, _ = train(memory, seed, options.corridor, options.updates)
            seconds = round(time.perf_counter() - began, 1)
            scores = score(policy, options.corridor, 10_000)
            runs.append({"policy": memory, "seed": seed, **scores, "best": BEST[memory], "seconds": seconds})
            print(json.dumps(runs[-1]), flush=True)
    command = f"python recipes/maze.py --corridor {options.corridor} --updates {options.updates}"
    facts = {"command": command, "machine": machine("cpu"), "steps": options.updates * LANES * STEPS, "runs": runs}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "maze.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    with mistakes_told():
        main()
