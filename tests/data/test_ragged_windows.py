"""Lanes: every step of every sequence is there once, in order, whatever the lengths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unrolled.data.batching.ragged_windows import FrameSequence, RaggedWindows


def numbered(lengths: list[int]) -> list[FrameSequence]:
    """Sequences in which each step is a number of its own."""
    ends = np.cumsum([0, *lengths])
    table = np.arange(ends[-1], dtype=np.float32)[:, None] + 1
    return [FrameSequence(table[a:b], table[a:b]) for a, b in itertools.pairwise(ends)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    st.integers(1, 6),
    st.integers(1, 15),
    st.sampled_from([None, 0, 7]),
)
def test_every_step_once_and_in_order(lengths: list[int], lanes: int, window: int, seed: int | None) -> None:
    batches = RaggedWindows(numbered(lengths), rows=lanes, window=window, seed=seed)
    for epoch in (0, 1):
        batches.order(epoch)
        seen: list[float] = []
        last: dict[int, float] = {}
        for index in range(len(batches)):
            batch = batches[index]
            assert batch.inputs.shape[0] <= lanes
            assert batch.resets is not None
            for row, real in enumerate(batch.mask.sum(1).tolist()):
                numbers = batch.inputs[row, :real, 0].tolist()
                if not numbers:
                    continue
                assert numbers == batch.targets[row, :real, 0].tolist()
                assert bool(np.isnan(batch.targets[row, real:].numpy()).all())
                if not batch.resets[row]:  # the row goes on where it was
                    assert numbers[0] == last[row] + 1
                last[row] = numbers[-1]
                seen += numbers
        assert sorted(seen) == list(range(1, sum(lengths) + 1))


def test_an_epoch_is_drawn_from_seed_and_number_alone() -> None:
    def first(seed: int, epoch: int) -> list[list[float]]:
        batches = RaggedWindows(numbered([5] * 30), rows=3, window=5, seed=seed)
        batches.order(epoch)
        inputs: list[list[float]] = batches[0].inputs[..., 0].tolist()
        return inputs

    assert first(0, 3) == first(0, 3)
    assert first(0, 3) != first(0, 4)
    assert first(0, 3) != first(1, 3)


@pytest.mark.parametrize(("length", "rows"), [(100_000, 32), (500, 2), (90, 1)])
def test_a_long_series_is_cut_into_as_many_lanes_as_are_worth_it(length: int, rows: int) -> None:
    batches = RaggedWindows(numbered([length]), rows=32, window=50, seed=0, least=250)
    assert batches[0].inputs.shape[0] == rows
