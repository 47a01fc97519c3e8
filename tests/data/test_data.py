"""Batches and streams: every token is a target once, whatever the cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unrolled.data import Batch, ContiguousWindows, embedded_text, join


@settings(deadline=None)
@given(tokens=st.integers(1, 60), rows=st.integers(1, 8), steps=st.integers(1, 12))
def test_a_whole_stream_has_every_token_once_after_the_one_before(tokens: int, rows: int, steps: int) -> None:
    ids = np.arange(1, tokens + 1)
    stream = ContiguousWindows(ids, rows=rows, steps=steps, start=0, whole=True)
    pairs = []
    for index in range(len(stream)):
        batch = stream[index]
        real = batch.mask
        pairs += list(zip(batch.inputs[real].tolist(), batch.targets[real].tolist(), strict=True))
    assert sorted(target for _, target in pairs) == ids.tolist()
    assert all(before == target - 1 for before, target in pairs)
    assert stream.tokens == tokens


@settings(deadline=None)
@given(tokens=st.integers(16, 60), rows=st.integers(1, 8), steps=st.integers(1, 12))
def test_a_training_stream_has_full_rows_that_go_on(tokens: int, rows: int, steps: int) -> None:
    stream = ContiguousWindows(np.arange(1, tokens + 1), rows=rows, steps=steps, start=0, whole=False)
    batches = [stream[index] for index in range(len(stream))]
    assert all(batch.lengths is None for batch in batches)
    whole = join(batches)
    assert whole.targets.shape == (rows, tokens // rows)
    assert torch.equal(whole.targets[:, :-1], whole.inputs[:, 1:])
    assert (whole.targets[:, 1:] == whole.targets[:, :-1] + 1).all()


def test_a_batch_can_be_cut_and_joined() -> None:
    x = torch.arange(12).view(2, 6)
    resets = torch.tensor([True, False])
    batch = Batch(x, x + 1, resets=resets)
    left, right = batch.steps(0, 2), batch.steps(2, 6)
    assert left.resets is not None
    assert left.resets.tolist() == [True, False]
    assert right.resets is not None
    assert right.resets.tolist() == [False, False]
    again = join([left, right])
    assert torch.equal(again.inputs, x)
    assert again.resets is not None
    assert again.resets.nonzero().tolist() == [[0, 0]]


def test_a_cut_and_a_join_keep_every_field() -> None:
    x = torch.arange(12).view(2, 6)
    batch = Batch(x, x + 1, counted=x > 3, more={"letters": torch.arange(24).view(2, 6, 2)})
    again = join([batch.steps(0, 4), batch.steps(4, 6)])
    assert torch.equal(again.more["letters"], batch.more["letters"])
    assert again.counted is not None
    assert torch.equal(again.counted, batch.scored)
    assert batch.steps(1, 3).more["letters"].tolist() == batch.more["letters"][:, 1:3].tolist()


def test_values_without_steps_cannot_be_cut_or_joined() -> None:
    x = torch.zeros(2, 6)
    whole = Batch(x, x, more={"target_lengths": torch.tensor([4, 2])})
    message = r"target_lengths of shape \(2,\) cannot be {} in time: expected a value for each of \(2, 6\) steps"
    with pytest.raises(ValueError, match=message.format("cut")):
        whole.steps(0, 3)
    with pytest.raises(ValueError, match=message.format("joined")):
        join([whole, whole])
    with pytest.raises(ValueError, match=r"targets of shape \(2,\) cannot be cut in time"):
        Batch(x, torch.zeros(2)).steps(0, 3)
    with pytest.raises(ValueError, match="Batches with padded rows cannot be joined in time"):
        join([Batch(x, x, lengths=torch.tensor([6, 5])), Batch(x, x)])
    with pytest.raises(ValueError, match=r"Batches with \['naive'\] and \[\] in `more` cannot be joined"):
        join([Batch(x, x, more={"naive": x}), Batch(x, x)])


def test_lengths_follow_a_cut() -> None:
    x = torch.zeros(3, 6)
    batch = Batch(x, x, lengths=torch.tensor([6, 3, 1]))
    cut = batch.steps(2, 5)
    assert cut.lengths is not None
    assert cut.lengths.tolist() == [3, 1, 0]
    assert torch.equal(cut.mask, batch.mask[:, 2:5])


def test_scored_steps_are_real_and_counted() -> None:
    x = torch.zeros(2, 3)
    counted = torch.tensor([[True, False, True], [True, True, True]])
    batch = Batch(x, x, lengths=torch.tensor([3, 1]), counted=counted)
    assert batch.scored.tolist() == [[True, False, True], [True, False, False]]


@pytest.mark.parametrize("word", ["lambda", "yield", "The “assert” statement"])
def test_the_embedded_text_is_pythons_help(word: str) -> None:
    text = embedded_text()
    assert len(text) > 300_000
    assert word.split()[0] in text
