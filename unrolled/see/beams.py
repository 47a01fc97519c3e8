"""The beam of a search as a tree that grew step by step (S26)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from unrolled.search import Found

Fate = Literal["winner", "kept", "pruned", "ended", "cut"]


@dataclass(frozen=True)
class BeamNode:
    """One token of one hypothesis; `parent` is the number of the node before it, −1 after the start."""

    parent: int
    step: int  # 1 for the first token
    token: str
    log_prob: float  # of the whole path
    edge: float  # of this token alone
    fate: Fate


@dataclass(frozen=True)
class Beams:
    """All hypotheses that a search kept for a step or more. Those that no output came from are `pruned`."""

    nodes: list[BeamNode]
    outputs: list[tuple[str, float, float]]  # text, score, log P: the best first

    @classmethod
    def of(cls, found: Found, name: Callable[[int], str], text: Callable[[list[int]], str], end: int) -> Beams:
        """From what `beam_search(…, tree=True)` found."""
        assert found.tree is not None
        nodes = found.tree.nodes
        best = found.best
        goal = [*best.tokens, end] if best.ended else best.tokens
        winner = next(i for i, node in enumerate(nodes) if node.fate != "continued" and found.tree.path(i) == goal)
        on_way = _ancestors([winner], [node.parent for node in nodes])
        led = _ancestors([i for i, n in enumerate(nodes) if n.fate != "continued"], [node.parent for node in nodes])
        made: list[BeamNode] = []
        for i, node in enumerate(nodes):
            before = nodes[node.parent].log_prob if node.parent >= 0 else 0.0
            fate: Fate = "kept" if node.fate == "continued" else node.fate
            fate = "winner" if i in on_way else fate if i in led else "pruned"
            step = made[node.parent].step + 1 if node.parent >= 0 else 1
            made.append(BeamNode(node.parent, step, name(node.token), node.log_prob, node.log_prob - before, fate))
        return cls(made, [(text(h.tokens), h.score, h.log_prob) for h in found.hypotheses])

    @property
    def places(self) -> list[float]:
        """A height for each node so that no branches cross: leaves stand under each other, parents between children."""
        children: list[list[int]] = [[] for _ in self.nodes]
        roots: list[int] = []
        for i, node in enumerate(self.nodes):
            (children[node.parent] if node.parent >= 0 else roots).append(i)
        heights = [0.0] * len(self.nodes)
        order = {"winner": 0, "ended": 1, "cut": 1, "kept": 2, "pruned": 3}
        free = 0.0
        waiting = [(i, False) for i in sorted(roots, key=lambda i: order[self.nodes[i].fate], reverse=True)]
        while waiting:
            i, seen = waiting.pop()
            if not children[i]:
                heights[i], free = free, free + 1
            elif seen:
                heights[i] = sum(heights[child] for child in children[i]) / len(children[i])
            else:
                waiting.append((i, True))
                below = sorted(children[i], key=lambda child: order[self.nodes[child].fate], reverse=True)
                waiting += [(child, False) for child in below]
        return heights


def _ancestors(nodes: list[int], parents: list[int]) -> set[int]:
    """These nodes and all before them."""
    found: set[int] = set()
    for node in nodes:
        while node >= 0 and node not in found:
            found.add(node)
            node = parents[node]
    return found
