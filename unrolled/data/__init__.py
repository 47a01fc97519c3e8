"""From files to batches."""

from unrolled.data.batching.batch import Batch, join
from unrolled.data.batching.buckets import Buckets, held_out
from unrolled.data.batching.lanes import Lanes, Steps
from unrolled.data.batching.streams import Stream, Windows
from unrolled.data.readers.arrays import read_ragged
from unrolled.data.readers.pairs import Pair, read_pairs, read_parallel
from unrolled.data.readers.series.series import Series, Sheet, read_series
from unrolled.data.readers.tables.table import Row, read_table
from unrolled.data.readers.text import EMBEDDED, embedded_text, read_text
from unrolled.data.signals.scaling import Frame

__all__ = [
    "EMBEDDED",
    "Batch",
    "Buckets",
    "Frame",
    "Lanes",
    "Pair",
    "Row",
    "Series",
    "Sheet",
    "Steps",
    "Stream",
    "Windows",
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
