"""Features made ahead and changed by chance: the same for the same seed, whoever makes them when."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from unrolled.data import Batch
from unrolled.data.batching.feature_cache import FeatureCache
from unrolled.data.batching.prefetch import Prefetcher
from unrolled.data.signals.augment import LineChanges, SpectrumChanges, changed_line, changed_spectrum, masked_spectrum
from unrolled.data.signals.log_mel import with_deltas


class Numbered:
    """Batches that tell their number and epoch, each after a while."""

    def __init__(self, fails: int | None = None) -> None:
        self.epoch, self.fails, self.threads = 0, fails, set[int]()

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Batch:
        epoch = self.epoch
        self.threads.add(threading.get_ident())
        time.sleep(0.002 * (7 - index))
        if index == self.fails:
            raise ValueError("broken")
        return Batch(torch.tensor([[epoch, index]]), torch.zeros(1))

    def order(self, epoch: int) -> None:
        self.epoch = epoch


def test_batches_come_ahead_in_their_order() -> None:
    inner = Numbered()
    batches = Prefetcher(inner)
    seen = []
    for epoch, first in ((0, 0), (1, 0), (1, 3), (2, 5)):
        batches.order(epoch)
        seen += [batches[i].inputs[0].tolist() for i in range(first, 7)]
    expected = [[e, i] for e, first in ((0, 0), (1, 0), (1, 3), (2, 5)) for i in range(first, 7)]
    assert seen == expected
    assert threading.get_ident() not in inner.threads


def test_a_broken_batch_is_heard_of() -> None:
    batches = Prefetcher(Numbered(fails=2))
    batches.order(0)
    assert batches[1].inputs[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="broken"):
        _ = batches[2]


def test_a_store_keeps_what_fits() -> None:
    made: list[int] = []

    def make(steps: int) -> np.ndarray:
        made.append(steps)
        return np.full((steps, 2), steps, dtype=np.float32)

    store = FeatureCache([5, 1, 7, 2], make, limit=60)
    assert store.lengths.tolist() == [5, 1, 7, 2]
    assert store.kept == 2
    assert sorted(made) == [1, 2, 5, 7]
    assert [float(store[i][0, 0]) for i in range(4)] == [5, 1, 7, 2]
    assert made[4:] == [7, 2]
    assert FeatureCache([5, 1, 7], make, limit=1000, longest=5).kept == 2


def test_changes_depend_on_the_seed_alone() -> None:
    line = np.random.default_rng(0).integers(0, 255, (300, 48), dtype=np.uint8)
    spectrum = np.random.default_rng(0).standard_normal((120, 40)).astype(np.float32)
    cases: list[Any] = [(changed_line, LineChanges(), line), (changed_spectrum, SpectrumChanges(), spectrum)]
    for change, settings, base in cases:
        first, again, other = (change(base, settings, np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert np.array_equal(first, again)
        assert first.shape != other.shape or not np.array_equal(first, other)
        assert first.dtype == base.dtype
        assert first.shape[1] == base.shape[1]


def test_no_changes_leave_everything_as_it_was() -> None:
    line = np.random.default_rng(0).integers(0, 255, (300, 48), dtype=np.uint8)
    still = LineChanges(warp=0, slant=0, width=0, thickness=0, blur=0, noise=0)
    assert np.abs(changed_line(line, still, np.random.default_rng(0)).astype(int) - line).max() <= 1
    spectrum = np.random.default_rng(0).standard_normal((120, 40)).astype(np.float32)
    same = SpectrumChanges(speed=0, pitch=0, level=0, tilt=0, noise=0)
    assert np.array_equal(changed_spectrum(spectrum, same, np.random.default_rng(0)), spectrum)


def test_masks_are_ranges_of_bands_and_stretches_of_time() -> None:
    """With slopes beside them, a band is left out everywhere."""
    frames = 1 + np.random.default_rng(0).random((100, 60)).astype(np.float32)
    changes = SpectrumChanges(band_masks=1, band_width=0.5, time_masks=0)
    masked = masked_spectrum(frames, 20, changes, np.random.default_rng(3))
    gone = np.isclose(masked, frames.mean(axis=0)).all(axis=0).reshape(3, 20)
    assert (gone == gone[0]).all()
    (places,) = np.nonzero(gone[0])
    assert 0 < len(places) <= 10
    assert places[-1] - places[0] == len(places) - 1
    changes = SpectrumChanges(band_masks=0, time_masks=2, time_width=0.1)
    masked = masked_spectrum(frames, 20, changes, np.random.default_rng(3))
    rows = np.isclose(masked, frames.mean(axis=0)).all(axis=1)
    assert 0 < rows.sum() <= 20
    assert np.array_equal(masked[~rows], frames[~rows])


def test_slopes_of_a_parabola() -> None:
    time = torch.arange(20.0)[:, None]
    table = with_deltas(time**2, 2)
    assert torch.allclose(table[2:-2, 1], 2 * time[2:-2, 0])
    assert torch.allclose(table[4:-4, 2], torch.full((12,), 2.0))
