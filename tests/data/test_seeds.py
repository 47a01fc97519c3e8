"""Generators seeded at once against those that NumPy seeds one by one."""

from __future__ import annotations

import numpy as np
import pytest

from unrolled.data.batching.seeds import ExampleSeeds


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**64 + 5, 2**100])
@pytest.mark.parametrize("epoch", [0, 3, 2**33])
def test_the_generators_are_those_of_numpy(seed: int, epoch: int) -> None:
    seeds = ExampleSeeds(seed, epoch, 300)
    for number in (0, 1, 17, 299):
        ours, theirs = seeds.generator(number), np.random.default_rng((seed, epoch, number))
        assert ours.bit_generator.state == theirs.bit_generator.state
        assert np.array_equal(ours.standard_normal(9), theirs.standard_normal(9))
