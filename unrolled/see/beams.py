"""A search as a tree: the beam of a decoder, or the prefixes of CTC's search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from unrolled.search import BeamResult

Fate = Literal["winner", "kept", "pruned", "ended", "cut"]
SEEN = 0.02  # CTC: a prefix is in the tree from the first to the last frame with this share
Labels = tuple[int, ...]
Held = Sequence[tuple[float, Labels]]
"""The prefixes that a CTC search holds after a frame: log P and labels, best first."""


@dataclass(frozen=True)
class BeamTreeNode:
    """One token of one hypothesis; `parent` is the index of the node before it, −1 at the start."""

    parent: int
    step: int  # 1 for the first token; of CTC, the frame where it appeared
    token: str
    log_prob: float  # of the whole path; of CTC, of all paths of this prefix, when last held
    edge: float  # of this token alone; of CTC, its largest share
    fate: Fate
    shares: tuple[float, ...] = ()  # CTC: its share of the held probability after frame `step`, step + 1, …

    @property
    def last(self) -> int:
        """The last step at which the search held it."""
        return self.step + max(0, len(self.shares) - 1)


@dataclass(frozen=True)
class Beams:
    """All hypotheses that a search kept for a step or more. Those that lead to no output are `pruned`."""

    nodes: list[BeamTreeNode]
    outputs: list[tuple[str, float, float]]  # text, score, log P: best first
    frames: int | None = None  # number of frames of a CTC search, whose steps are frames

    @classmethod
    def of(cls, found: BeamResult, name: Callable[[int], str], text: Callable[[list[int]], str], end: int) -> Beams:
        """Build the tree from the result of `beam_search(…, tree=True)`."""
        assert found.tree is not None
        nodes = found.tree.nodes
        best = found.best
        goal = [*best.tokens, end] if best.ended else best.tokens
        winner = next(i for i, node in enumerate(nodes) if node.fate != "continued" and found.tree.path(i) == goal)
        winning = _ancestors([winner], [node.parent for node in nodes])
        led = _ancestors([i for i, n in enumerate(nodes) if n.fate != "continued"], [node.parent for node in nodes])
        made: list[BeamTreeNode] = []
        for i, node in enumerate(nodes):
            before = nodes[node.parent].log_prob if node.parent >= 0 else 0.0
            fate: Fate = "kept" if node.fate == "continued" else node.fate
            fate = "winner" if i in winning else fate if i in led else "pruned"
            step = made[node.parent].step + 1 if node.parent >= 0 else 1
            made.append(BeamTreeNode(node.parent, step, name(node.token), node.log_prob, node.log_prob - before, fate))
        return cls(made, [(text(h.tokens), h.score, h.log_prob) for h in found.hypotheses])

    @classmethod
    def of_frames(cls, held: Sequence[Held], name: Callable[[int], str], text: Callable[[list[int]], str]) -> Beams:
        """Build the prefix tree from the prefixes that CTC's search held after each frame.

        >>> held = [[(-0.1, ()), (-2.3, (1,))], [(-0.2, (1,)), (-1.7, ())], [(-0.5, (1, 2)), (-0.9, (1,))]]
        >>> tree = Beams.of_frames(held, "-ab".__getitem__, lambda labels: "".join("-ab"[i] for i in labels))
        >>> [(node.parent, node.step, node.last, node.token, node.fate) for node in tree.nodes]
        [(-1, 1, 3, 'a', 'winner'), (0, 3, 3, 'b', 'winner')]
        """
        shares, log_probs = _shares(held)
        outputs = [labels for _, labels in held[-1]]
        wanted = [labels for labels, found in shares.items() if max(found.values()) >= SEEN or labels == outputs[0]]
        chosen = {labels[:size] for labels in wanted for size in range(1, len(labels) + 1)}
        lives = {labels: _life(shares.get(labels, {}), len(held)) for labels in chosen}
        for labels in sorted(chosen, key=len, reverse=True):  # no prefix appears after its extensions
            if len(labels) > 1:
                first, last = lives[labels[:-1]]
                first = min(first, lives[labels][0])
                lives[labels[:-1]] = first, max(first, last)
        order = sorted(chosen, key=lambda labels: (lives[labels][0], len(labels), labels))
        number = {labels: i for i, labels in enumerate(order)}
        parents = [number.get(labels[:-1], -1) for labels in order]
        led = _ancestors([number[labels] for labels in outputs if labels in number], parents)
        winning = _ancestors([number[outputs[0]]] if outputs[0] in number else [], parents)
        made: list[BeamTreeNode] = []
        for i, labels in enumerate(order):
            first, last = lives[labels]
            found = [shares.get(labels, {}).get(t, 0.0) for t in range(first, last + 1)]
            fate: Fate = "winner" if i in winning else "kept" if i in led else "pruned"
            log_prob = log_probs.get(labels, float("nan"))
            made.append(BeamTreeNode(parents[i], first + 1, name(labels[-1]), log_prob, max(found), fate, tuple(found)))
        return cls(made, [(text(list(labels)), score, score) for score, labels in held[-1]], len(held))

    @property
    def steps(self) -> int:
        """The number of steps or frames."""
        return self.frames if self.frames is not None else max(node.step for node in self.nodes)

    @property
    def places(self) -> list[float]:
        """A height for each node without crossing branches: leaves in order, parents between their children."""
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


def _shares(held: Sequence[Held]) -> tuple[dict[Labels, dict[int, float]], dict[Labels, float]]:
    """The share of each prefix after each frame that held it, and its last log P."""
    shares: dict[Labels, dict[int, float]] = {}
    log_probs: dict[Labels, float] = {}
    for t, kept in enumerate(held):
        found = torch.tensor([score for score, _ in kept], dtype=torch.float64).softmax(0).tolist()
        for (score, labels), share in zip(kept, found, strict=True):
            shares.setdefault(labels, {})[t] = share
            log_probs[labels] = score
    return shares, log_probs


def _life(shares: dict[int, float], frames: int) -> tuple[int, int]:
    """The first and last frame with a share of at least `SEEN`, or, without any, with any share."""
    seen = [t for t, share in shares.items() if share >= SEEN] or list(shares) or [frames - 1]
    return min(seen), max(seen)


def _ancestors(nodes: list[int], parents: list[int]) -> set[int]:
    """The nodes and all their ancestors."""
    found: set[int] = set()
    for node in nodes:
        while node >= 0 and node not in found:
            found.add(node)
            node = parents[node]
    return found
