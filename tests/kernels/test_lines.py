"""Lines changed in C++ against the same changes by Pillow with NumPy's random numbers: the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import warm
from unrolled.data.batching.seeds import ExampleSeeds
from unrolled.data.signals.augment import Grey, LineChanges, changed_line
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
SCALE = np.float32(255)


def some_lines(seed: int, wides: Sequence[int], high: int) -> list[Grey]:
    random = np.random.default_rng(seed)
    made = [random.integers(0, 256, (wide, high), dtype=np.uint8) for wide in wides]
    for line in made:
        line[random.random(line.shape) < 0.5] = 0
    return made


def check(some: Sequence[Grey], changes: LineChanges, seeds: tuple[int, int], numbers: Sequence[int]) -> None:
    """The batch has the pixels of Pillow's lines, and zeros after them."""
    got, lengths = lines.changed_lines(some, changes, ExampleSeeds(*seeds, max(numbers) + 1), numbers, SCALE)
    assert got.dtype == np.float32
    assert lengths.dtype == np.int64
    assert got.shape == (len(some), lengths.max(), some[0].shape[1])
    for row, length, line, number in zip(got, lengths, some, numbers, strict=True):
        expected = changed_line(line, changes, np.random.default_rng((*seeds, number)))
        assert len(expected) == length
        assert np.array_equal(row[:length], expected.astype(np.float32) / SCALE)
        assert not row[length:].any()


@native
@pytest.mark.parametrize("strength", range(len(STRENGTHS)))
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 150), min_size=1, max_size=4), st.integers(1, 60), st.integers(0, 2**32))
def test_the_pixels_are_those_of_pillow(strength: int, wides: list[int], high: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).integers(0, 20, len(wides)).tolist()
    check(some_lines(seed, wides, high), STRENGTHS[strength], (seed, 3), numbers)


@native
def test_grain_is_that_of_numpy() -> None:
    """So many numbers that all branches of the normal distribution are taken, its tail too."""
    check(some_lines(0, [8000, 9001], 61), LineChanges(thickness=0, blur=0, noise=1), (1, 2), [0, 1])


@native
def test_a_view_of_a_line_is_read_as_it_is() -> None:
    line = np.random.default_rng(0).integers(0, 256, (12, 70), dtype=np.uint8)
    check([line.T], LineChanges(), (0, 1), [5])


def test_without_the_native_engine_pillow_changes_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "NATIVE", None)
    check(some_lines(0, [70, 20], 12), LineChanges(), (0, 1), [2, 0])


@native
def test_arrays_that_do_not_fit_are_refused() -> None:
    from unrolled.kernels import _native

    line, seeds = np.zeros((5, 8), dtype=np.uint8), np.zeros((1, 4), dtype=np.uint64)
    cases: list[tuple[Any, ...]] = [
        ([], seeds[:0], 0),
        ([line[:0]], seeds, 1),
        ([line[:, :0]], seeds, 1),
        ([line, line[:, :7]], np.zeros((2, 4), dtype=np.uint64), 2),  # another height
        ([line], np.zeros((2, 4), dtype=np.uint64), 1),
        ([line], seeds, 2),
    ]
    for some, words, count in cases:
        with pytest.raises(ValueError, match=r"lines \(W, H\) of one height"):
            _native.change_lines(some, words, np.zeros(count, dtype=np.int64), 0, 0, 0, 0, 0, 0, 255)


@native
@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512", "neon", "neon_dot"])
def test_every_instruction_set(isa: str) -> None:
    """The same comparison in a process that is told which kernels to use."""
    from unrolled.kernels import _native

    if isa not in _native.isas():
        pytest.skip(f"this processor has no {isa}")
    code = (
        "from tests.kernels.test_lines import STRENGTHS, check, some_lines\n"
        "from unrolled.kernels import _native\n"
        f"assert _native.isa() == {isa!r}\n"
        "for high in (1, 24, 31, 32, 65):\n"
        "    for strengths in STRENGTHS: check(some_lines(high, [1, 90, 33], high), strengths, (high, 1), [3, 0, 7])\n"
    )
    warm.python("-c", code, env={"UNROLLED_ISA": isa}, check=True)
