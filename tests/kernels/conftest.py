"""Shared fixtures of the kernels' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def nan_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fresh buffers and scratch are NaN: what is read before it is written shows."""
    from unrolled.kernels import _native, native_buffers

    monkeypatch.setattr(native_buffers, "fill_with_nan", True)
    _native.set_scratch_nan(True)
    yield
    _native.set_scratch_nan(False)
