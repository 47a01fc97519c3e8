"""LexiconScorer: outputs that are words of a lexicon, over token ids."""

from __future__ import annotations

import torch
from torch import Tensor

from unrolled.search.ctc.lexicon import Lexicon, LexiconNode
from unrolled.search.scorers.scorer import Scorer, State
from unrolled.search.tokens.token_model import Rows


class LexiconScorer(Scorer):
    """Allows spellings of a lexicon, whose labels are the tokens; the state is a place in its tree.

    Words follow each other with the separator between them, or directly where there is none. `end` is the token that
    ends an output, after a whole word or none.

    >>> scorer = LexiconScorer(Lexicon(["ab", "b"], ["a", "b", "</s>"]), end=2)
    >>> scorer.scores(scorer.advance(scorer.initial(1), torch.tensor([0]))).tolist()
    [[False, True, False]]
    """

    only_lowers = True

    def __init__(self, lexicon: Lexicon, *, end: int | None = None, separator: int | None = None) -> None:
        self.tree, self.size = lexicon.tree, len(lexicon.labels)
        self.end, self.separator = end, separator

    def initial(self, rows: int) -> State:
        return Rows([(self.tree,)] * rows)

    def scores(self, state: State) -> Tensor:
        return torch.stack([self._allowed(nodes) for nodes in state])

    def advance(self, state: State, tokens: Tensor) -> State:
        return Rows(self._next(nodes, token) for nodes, token in zip(state, tokens.tolist(), strict=True))

    def _next(self, nodes: tuple[LexiconNode, ...], token: int) -> tuple[LexiconNode, ...]:
        """The places that a token leads to: without separators, a word's end is a beginning, too."""
        if token in (self.separator, self.end):
            return (self.tree,)
        reached = [node.children[token] for node in nodes if token in node.children]
        begins = self.separator is None and any(node.words for node in reached)
        return (*reached, self.tree) if begins else tuple(reached)

    def _allowed(self, nodes: tuple[LexiconNode, ...]) -> Tensor:
        allowed = torch.zeros(self.size, dtype=torch.bool)
        allowed[[token for node in nodes for token in node.children]] = True
        whole = any(node is self.tree or node.words for node in nodes)
        allowed[[token for token in (self.end, self.separator) if token is not None]] = whole
        return allowed
