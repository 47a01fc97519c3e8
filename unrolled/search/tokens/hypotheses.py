"""Results of a search: outputs with their scores, and the search tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unrolled.errors import UserError
from unrolled.search.arrays import Array

Fate = Literal["continued", "ended", "cut"]


@dataclass(frozen=True)
class Hypothesis:
    """One output. `score` is what it was ranked by, `log_prob` the model's own log-probability of all its tokens."""

    tokens: list[int]  # without the end token
    log_prob: float
    score: float
    ended: bool  # False: max_tokens came before the end token
    attention: Array | None = None  # (tokens, S): one row for each token and for the end, where it was asked for


@dataclass(frozen=True)
class BeamNode:
    """One token of one hypothesis in the tree; `parent` is the number of the node before it, −1 at the root."""

    parent: int
    token: int
    log_prob: float  # of the whole path
    fate: Fate


@dataclass
class BeamTree:
    """Every hypothesis a search kept for at least one step.

    >>> tree = BeamTree([BeamNode(-1, 4, -0.1, "continued"), BeamNode(0, 2, -0.3, "ended")])
    >>> tree.path(1)
    [4, 2]
    """

    nodes: list[BeamNode] = field(default_factory=list)

    def path(self, number: int) -> list[int]:
        """The tokens from the root to a node."""
        tokens: list[int] = []
        while number >= 0:
            tokens.append(self.nodes[number].token)
            number = self.nodes[number].parent
        return tokens[::-1]

    def add(self, node: BeamNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


@dataclass(frozen=True)
class BeamResult:
    """The outputs for one input, the best first, and the tree where it was asked for."""

    hypotheses: list[Hypothesis]
    tree: BeamTree | None = None

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


def nan_scores(token: int, row: int) -> UserError:
    """The error of a model whose scores are not numbers."""
    return UserError(
        f"The model's log-probabilities for token {token} of row {row} contain NaN.",
        "Its weights may not be finite: use a checkpoint from before the loss became NaN.",
    )


def nothing_left(token: int, row: int) -> UserError:
    """The error of a row without any output that can go on with no token."""
    return UserError(
        f"No token is left to write for token {token} of row {row}: all have probability 0 or are not allowed.",
        "Forbid fewer tokens, or loosen the scorers.",
    )
