"""Lines changed in C++ against the same changes by Pillow: the same bits, and as many random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unrolled.data.signals import augment
from unrolled.data.signals.augment import LineChanges
from unrolled.kernels.lines import changes as lines
from unrolled.kernels.native_module import NATIVE

native = pytest.mark.skipif(NATIVE is None, reason="the native engine is not built")
STRENGTHS = (
    LineChanges(),
    LineChanges(thickness=1, blur=1, noise=1),
    LineChanges(warp=0.45, slant=0.95, width=0.95, thickness=0, blur=0, noise=0),
    LineChanges(warp=0, slant=0, width=0, thickness=1, blur=0, noise=0),
    LineChanges(warp=0, slant=0, width=0, thickness=0, blur=1, noise=0),
)


@native
@pytest.mark.parametrize("strength", range(len(STRENGTHS)))
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 150), st.integers(1, 60), st.integers(0, 2**32))
def test_the_pixels_are_those_of_pillow(strength: int, wide: int, high: int, seed: int) -> None:
    made = np.random.default_rng(seed)
    columns = made.integers(0, 256, (wide, high), dtype=np.uint8)
    columns[made.random((wide, high)) < 0.5] = 0
    ours, theirs = np.random.default_rng(seed + 1), np.random.default_rng(seed + 1)
    got = lines.changed_line(columns, STRENGTHS[strength], ours)
    expected = augment.changed_line(columns, STRENGTHS[strength], theirs)
    assert got.dtype == np.uint8
    assert (got.shape, got.flags.c_contiguous) == (expected.shape, True)
    assert np.array_equal(got, expected)
    assert ours.random() == theirs.random()


@native
def test_a_view_of_a_line_is_read_as_it_is() -> None:
    line = np.random.default_rng(0).integers(0, 256, (12, 70), dtype=np.uint8)
    got, expected = (part.changed_line(line.T, LineChanges(), np.random.default_rng(1)) for part in (lines, augment))
    assert np.array_equal(got, expected)


def test_without_the_native_engine_pillow_changes_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "NATIVE", None)
    line = np.random.default_rng(0).integers(0, 256, (70, 12), dtype=np.uint8)
    expected = augment.changed_line(line, LineChanges(), np.random.default_rng(1))
    assert np.array_equal(lines.changed_line(line, LineChanges(), np.random.default_rng(1)), expected)


@native
def test_arrays_that_do_not_fit_are_refused() -> None:
    from unrolled.kernels import _native

    given, changed = np.zeros((5, 8), dtype=np.uint8), np.zeros((6, 8), dtype=np.uint8)
    for one, other, moves, blur in (
        (given, np.zeros((6, 7), dtype=np.uint8), 8, 0.0),  # another height
        (given, changed, 4, 0.0),  # no strip
        (given[:0], changed, 8, 0.0),
        (given, changed, 8, 1.5),  # a wider blur than is computed
    ):
        with pytest.raises(ValueError, match=r"a line \(W, H\)|a blur of 1\.4"):
            _native.change_line(one, other, np.zeros(moves), 0.0, 0.1, 0.0, False, blur)
