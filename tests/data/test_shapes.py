"""Batches padded to few shapes: padding changes no number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.gpu.updates import job
from unrolled.data.batching.packed import packed, tensors
from unrolled.data.batching.prefetch import Prefetcher
from unrolled.data.batching.shapes import LEAST_STEP, Prepared, rounded

TRANSFORMER = {"model.kind": "transformer", "model.encoder.hidden_size": 32, "model.encoder.heads": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "classify": ("classify", {"model.hidden_size": 16, "data.level": "word"}),
    "classify characters": ("classify", {"model.hidden_size": 16, "data.level": "char"}),
    "classify with a Transformer": ("classify", {"model.hidden_size": 16, "model.kind": "transformer"}),
    "tag": ("tag", {"model.hidden_size": 16}),
    "tag with a CRF": ("spans", {"model.hidden_size": 16}),
    "recognize": ("recognize", {"model.hidden_size": 16, "data.bands": 20, "model.channels": [8]}),
    "translate": ("translate", {"model.encoder.hidden_size": 16, "model.decoder.hidden_size": 16}),
    "translate with a Transformer": ("translate", TRANSFORMER),
}


def test_sizes_are_few_and_near() -> None:
    sizes = [rounded(size) for size in range(1, 3000)]
    assert all(size <= found <= max(size + LEAST_STEP - 1, 1.125 * size) for size, found in enumerate(sizes, 1))
    assert len(set(sizes)) < 80


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


@pytest.mark.parametrize("case", CASES)
def test_padding_changes_no_loss_and_no_gradient(case: str, tmp_path: Path) -> None:
    task, changes = CASES[case]
    made = job(task, tmp_path, {**changes, "train.device": "cpu"})
    network, padding = made.model.network.eval().double(), made.traits.padding
    assert padding is not None
    batches = made.task.batches(made.config, made.assets, made.data.train, training=True)
    seen = set()
    for index in range(4):
        batch = batches[index]
        batch = replace(batch, more={name: _wide(value) for name, value in batch.more.items()})
        padded = padding(batch)
        seen.add(padded.inputs.shape == batch.inputs.shape)
        found = []
        for one in (batch, padded):
            network.zero_grad()
            loss = made.task.loss(network, one, None)
            loss.sum.backward()  # type: ignore[no-untyped-call]
            gradients = [p.grad.clone() for p in network.parameters() if p.grad is not None]
            found.append([loss.sum, loss.count, *gradients])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert False in seen


@pytest.mark.parametrize("case", ["classify", "tag", "recognize", "translate"])
def test_batches_for_a_gpu_are_the_same_without_tensors(case: str, tmp_path: Path) -> None:
    """They go from NumPy's arrays into the buffer."""
    task, changes = CASES[case]
    made = job(task, tmp_path, {**changes, "train.device": "cpu"})
    padding = made.traits.padding
    batches: Any = made.task.batches(made.config, made.assets, made.data.train, training=True)
    assert padding is not None
    batches = batches.batches if isinstance(batches, Prefetcher) else batches
    batches.order(1)
    straight = Prepared(batches, lambda batch: packed(batch, pinned=False, shapes=padding.shapes(batch)))
    for index in range(2):
        found, expected = dict(tensors(straight[index].to("cpu"))), dict(tensors(padding(batches[index])))
        assert isinstance(batches.arrays(index).inputs, np.ndarray)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())
