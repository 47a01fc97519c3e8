"""The vectors of tokens on both sides of a translator."""

from __future__ import annotations

from typing import Protocol

from torch import nn


class Sizes(Protocol):
    """How many tokens there are on both sides, and whether they are the same ones."""

    @property
    def source_size(self) -> int: ...
    @property
    def target_size(self) -> int: ...
    @property
    def joint(self) -> bool: ...


def token_embedding(size: int, width: int) -> nn.Embedding:
    """Vectors of length about one, so that a tied matrix gives scores of a fitting size."""
    embedding = nn.Embedding(size, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    return embedding
