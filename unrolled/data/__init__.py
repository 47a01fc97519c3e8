"""From files to batches."""

from unrolled.data.batch import Batch, join
from unrolled.data.streams import Stream
from unrolled.data.text import EMBEDDED, embedded_text, read_text

__all__ = ["EMBEDDED", "Batch", "Stream", "embedded_text", "join", "read_text"]
