"""From files to batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.data.batching.batch import Batch, join
    from unrolled.data.batching.buckets import Buckets, RowBuckets, held_out
    from unrolled.data.batching.ragged_windows import FrameSequence, RaggedWindows
    from unrolled.data.batching.token_windows import ContiguousWindows, ShuffledWindows
    from unrolled.data.readers.arrays import read_ragged
    from unrolled.data.readers.pairs import Pair, read_pairs, read_parallel
    from unrolled.data.readers.series.read_series import Series, Sheet, read_series
    from unrolled.data.readers.tables.read_table import Row, read_table
    from unrolled.data.readers.text import EMBEDDED, embedded_text, read_text
    from unrolled.data.signals.scaling import ColumnScaling

__all__ = [
    "EMBEDDED",
    "Batch",
    "Buckets",
    "ColumnScaling",
    "ContiguousWindows",
    "FrameSequence",
    "Pair",
    "RaggedWindows",
    "Row",
    "RowBuckets",
    "Series",
    "Sheet",
    "ShuffledWindows",
    "embedded_text",
    "held_out",
    "join",
    "read_pairs",
    "read_parallel",
    "read_ragged",
    "read_series",
    "read_table",
    "read_text",
]

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.data.batching.batch": "Batch join",
        "unrolled.data.batching.buckets": "Buckets RowBuckets held_out",
        "unrolled.data.batching.ragged_windows": "FrameSequence RaggedWindows",
        "unrolled.data.batching.token_windows": "ContiguousWindows ShuffledWindows",
        "unrolled.data.readers.arrays": "read_ragged",
        "unrolled.data.readers.pairs": "Pair read_pairs read_parallel",
        "unrolled.data.readers.series.read_series": "Series Sheet read_series",
        "unrolled.data.readers.tables.read_table": "Row read_table",
        "unrolled.data.readers.text": "EMBEDDED embedded_text read_text",
        "unrolled.data.signals.scaling": "ColumnScaling",
    },
)
