"""Batches of pairs of token ids."""

from __future__ import annotations

from collections.abc import Sequence

from unrolled.data import Batch
from unrolled.data.batching.ragged import Ragged, Rows
from unrolled.data.batching.tables import NOTHING
from unrolled.tasks.shared.side import Ids, with_targets
from unrolled.tasks.translate.assets import TranslateAssets


def source_batch(assets: TranslateAssets, sources: Sequence[Ids]) -> Batch:
    """A batch of sources, each with its end token, as tensors."""
    ids = Ragged.of(sources)
    return source_arrays(assets, ids, ids.rows).to("cpu")


def source_arrays(assets: TranslateAssets, sources: Ragged, rows: Rows) -> Batch:
    """A batch of the sources of some numbers, each with its end token, as NumPy's arrays."""
    ids, lengths = sources.ended(rows, assets.source.end)
    return Batch(ids, NOTHING, lengths=lengths)


def pair_batch(assets: TranslateAssets, pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
    """A batch of pairs as tensors: sources and targets with their ends, and the inputs of the decoder."""
    table = PairTable(assets, pairs)
    return table.batch(table.targets.rows).to("cpu")


class PairTable:
    """The tokens of all pairs; batches of some of them are gathered, as NumPy's arrays."""

    def __init__(self, assets: TranslateAssets, pairs: Sequence[tuple[Ids, Ids]]) -> None:
        self.assets = assets
        self.sources = Ragged.of(source for source, _ in pairs)
        self.targets = Ragged.of(target for _, target in pairs)

    def batch(self, rows: Rows) -> Batch:
        """A batch of the pairs of these numbers."""
        batch = source_arrays(self.assets, self.sources, rows)
        return with_targets(batch, self.assets.target, self.targets, rows)
