"""From files to batches."""

from unrolled.data.arrays import read_ragged
from unrolled.data.batch import Batch, join
from unrolled.data.buckets import Buckets, held_out
from unrolled.data.frame import Frame
from unrolled.data.lanes import Lanes, Steps
from unrolled.data.pairs import Pair, read_pairs, read_parallel
from unrolled.data.series import Series, Sheet, read_series
from unrolled.data.streams import Stream, Windows
from unrolled.data.tables import Row, read_table
from unrolled.data.text import EMBEDDED, embedded_text, read_text

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
