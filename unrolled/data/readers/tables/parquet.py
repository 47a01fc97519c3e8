"""Errors of Parquet files as messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unrolled.errors import UserError
from unrolled.text.files import reading


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Wrap every access to the file: pages are decompressed and decoded lazily, so any access may fail."""
    import pyarrow

    try:
        with reading(path, "Parquet file"):
            yield
    except UserError:
        raise
    except (pyarrow.ArrowException, ValueError, OverflowError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        raise UserError(
            f"{path} is not a Parquet file: {reason}.", "It may be damaged: download or write it again."
        ) from None
