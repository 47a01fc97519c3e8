"""Token embeddings of a translator."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from unrolled.nn.embedding import Embedding


class Sizes(Protocol):
    """Vocabulary sizes of both sides; `joint` if they share one vocabulary."""

    @property
    def source_size(self) -> int: ...
    @property
    def target_size(self) -> int: ...
    @property
    def joint(self) -> bool: ...


def token_embedding(size: int, width: int) -> nn.Embedding:
    """Embeddings with norms of about one, so that tied scores have a suitable scale."""
    embedding = Embedding(size, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    return embedding
