"""Parquet files: what is wrong with one becomes a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unrolled.errors import UserError
from unrolled.text.files import reading


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """For all that is done with the file: its pages are unpacked, and their text decoded, when they are asked for."""
    import pyarrow

    try:
        with reading(path, "Parquet file"):
            yield
    except UserError:
        raise
    except (pyarrow.ArrowException, ValueError, OverflowError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        raise UserError(
            f"{path} is not a Parquet file: {reason}.", "It may be damaged: get or write it again."
        ) from None
