"""Batches of pairs of token ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unrolled.data import Batch
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.tasks.shared.targets import Ids, ended, with_targets
from unrolled.tasks.translate.assets import TranslateAssets


def source_batch(assets: TranslateAssets, sources: Sequence[Ids]) -> Batch:
    """A batch of sources, each with its end token."""
    ids = Ragged.of(sources)
    return _source_batch(assets, ids, ids.rows)


def pair_batch(assets: TranslateAssets, pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
    """A batch of pairs: sources and targets with their ends, and the inputs of the decoder."""
    table = PairTable(assets, pairs)
    return table.batch(table.targets.rows)


class PairTable:
    """The tokens of all pairs; batches of some of them are gathered."""

    def __init__(self, assets: TranslateAssets, pairs: Sequence[tuple[Ids, Ids]]) -> None:
        self.assets = assets
        self.sources = Ragged.of(source for source, _ in pairs)
        self.targets = Ragged.of(target for _, target in pairs)

    def batch(self, rows: Rows) -> Batch:
        """A batch of the pairs of these numbers."""
        batch = _source_batch(self.assets, self.sources, rows)
        return with_targets(batch, self.assets.target, self.targets, rows)


def _source_batch(assets: TranslateAssets, sources: Ragged, rows: Rows) -> Batch:
    ids, lengths = ended(sources, rows, assets.source.end)
    return Batch(torch.from_numpy(ids), torch.zeros(len(rows)), lengths=torch.from_numpy(lengths))
