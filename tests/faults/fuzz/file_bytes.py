"""Arrays and tables as the bytes of a file."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def npz(**arrays: Any) -> bytes:
    raw = io.BytesIO()
    np.savez(raw, **arrays)
    return raw.getvalue()


def npy(array: Any) -> bytes:
    raw = io.BytesIO()
    np.save(raw, array)
    return raw.getvalue()


def parquet(table: pa.Table) -> bytes:
    raw = io.BytesIO()
    pq.write_table(table, raw)
    return raw.getvalue()


def zstandard(content: bytes) -> bytes:
    """Content as a .zst file."""
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as packed:
        packed.write(content)
    return bytes(file.getvalue().to_pybytes())
