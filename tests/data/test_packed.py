"""Batches in one buffer: the same numbers, moved by one copy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from unrolled.data import Batch
from unrolled.data.batching.packed import PackedBatch, copy_into, duplicate, packed, shapes_of, tensors


def made(seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    return Batch(
        inputs=torch.rand(3, 5, 2, generator=random),
        targets=torch.randint(9, (3, 5), generator=random),
        lengths=torch.tensor([5, 2, 1]),
        counted=torch.rand(3, 5, generator=random) < 0.5,  # 15 bytes: the next tensor is aligned all the same
        more={"weights": torch.rand(3, 1, generator=random, dtype=torch.float64), "none": torch.zeros(3, 0)},
    )


def same(a: Batch, b: Batch) -> bool:
    found, expected = dict(tensors(a.to("cpu"))), dict(tensors(b.to("cpu")))
    assert found.keys() == expected.keys()
    return all(found[name].dtype == one.dtype and torch.equal(found[name], one) for name, one in expected.items())


def test_a_packed_batch_has_the_same_tensors() -> None:
    batch = made()
    given = packed(batch, pinned=False)
    one = given.over(given.buffer)
    assert same(given, batch)
    assert same(one, batch)
    assert one.resets is None
    first, last = one.buffer.data_ptr(), one.buffer.data_ptr() + len(one.buffer)
    for tensor in (tensor for _, tensor in tensors(one) if tensor.numel()):
        assert first <= tensor.data_ptr() < last
        assert (tensor.data_ptr() - first) % 16 == 0


def test_one_copy_moves_all_of_them() -> None:
    static = duplicate(packed(made(), pinned=False), torch.device("cpu"))
    other = packed(made(seed=1), pinned=False)
    assert isinstance(static, PackedBatch)
    assert not same(static, other)
    copy_into(static, other)
    assert same(static, other)
    assert static.buffer.data_ptr() != other.buffer.data_ptr()


def test_plain_batches_are_copied_tensor_by_tensor() -> None:
    static = duplicate(made(), torch.device("cpu"))
    copy_into(static, made(seed=1))
    assert same(static, made(seed=1))
    copy_into(static, packed(made(seed=2), pinned=False))
    assert same(static, made(seed=2))


def test_on_its_own_device_it_is_itself() -> None:
    batch = packed(made(), pinned=False).to("cpu")
    assert batch.to("cpu") is batch
    moved = batch.to("meta")
    assert {tensor.device.type for _, tensor in tensors(moved)} == {"meta"}
    assert moved.inputs.shape == (3, 5, 2)


def test_arrays_are_packed_and_padded_at_once() -> None:
    given = Batch(np.array([[1, 2], [3, 0]]), np.array([1.5, 2.5]), lengths=np.array([2, 1]))
    shapes = {"inputs": (3, 4), "targets": (3,), "lengths": (3,)}
    found = packed(given, pinned=False, shapes=shapes)
    assert found.inputs.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]]
    assert found.targets.tolist() == [1.5, 2.5, 0.0]
    assert found.lengths.tolist() == [2, 1, 1]  # a row of padding has one step
    assert same(found, found.to("cpu"))


def test_equal_shapes_and_kinds_are_known_as_equal() -> None:
    one, other = (packed(made(seed), pinned=False) for seed in (0, 1))
    assert shapes_of(one) == shapes_of(other)
    assert hash(shapes_of(one)) == hash(shapes_of(other))
    wide = replace(made(), lengths=torch.tensor([5, 2, 1], dtype=torch.int32))
    assert shapes_of(packed(wide, pinned=False)) != shapes_of(one)
    assert shapes_of(wide) != shapes_of(made()) == shapes_of(made(1))
