"""Selecting rows of a state."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.search import Shared, TokenStep, reorder, select


class Memory(NamedTuple):
    h: Tensor
    c: Tensor | None


def test_every_tensor_in_a_state_is_gathered_and_its_nesting_kept() -> None:
    rows = torch.tensor([2, 0, 2])
    a, b, c = torch.randn(3, 4), torch.randn(3, 2, 5), torch.arange(3)
    state = {"layers": [(a, b), (b, None)], "memory": Memory(c, None)}
    got = select(state, rows)
    assert type(got["memory"]) is Memory
    assert isinstance(got["layers"], list)
    assert isinstance(got["layers"][0], tuple)
    assert torch.equal(got["layers"][0][0], a[[2, 0, 2]])
    assert torch.equal(got["layers"][0][1], b[[2, 0, 2]])
    assert got["layers"][1][1] is None
    assert got["memory"].h.tolist() == [2, 0, 2]
    assert select(None, rows) is None


def test_shared_state_has_a_row_for_each_input() -> None:
    state = (torch.arange(6), Shared((torch.tensor([10, 20, 30]), None)))  # two hypotheses each
    turned = reorder(state, torch.tensor([1, 1, 2, 3, 5, 4]))
    assert turned[0].tolist() == [1, 1, 2, 3, 5, 4]
    assert turned[1] is state[1]
    left = select(state, torch.tensor([4, 5, 0, 1]), torch.tensor([2, 0]))
    assert left[0].tolist() == [4, 5, 0, 1]
    assert left[1].value[0].tolist() == [30, 10]
    assert select(state[1], torch.tensor([1])).value[0].tolist() == [20]


def test_scores_become_log_probabilities() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0]])
    assert TokenStep(scores, None).log_probs is scores
    assert torch.equal(TokenStep(scores, None, normalised=False).log_probs, scores.log_softmax(-1))


@pytest.mark.parametrize(
    ("state", "got"), [((torch.zeros(2, 1), 7), "int 7"), ([torch.tensor(1.0)], "a tensor without dimensions")]
)
def test_state_without_rows_is_an_error(state: object, got: str) -> None:
    with pytest.raises(UserError) as error:
        select(state, torch.tensor([0]))
    assert str(error.value) == (
        f"A state holds {got}, which has no rows to select. "
        "Use tensors with the batch at dimension 0, Rows, None, or tuples, lists and dictionaries of these."
    )
