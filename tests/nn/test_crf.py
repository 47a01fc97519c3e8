"""The CRF against its definition: every path written out."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from tests.tolerances import assert_close
from unrolled.nn.crf import CRF, FORBIDDEN, viterbi
from unrolled.nn.crf_partition import log_partition, log_partition_of_logs

DOUBLE = torch.float64


def random_crf(tags: int, scale: float = 1.0) -> CRF:
    crf = CRF(tags).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return crf


def path_score(crf: CRF, emissions: Tensor, path: tuple[int, ...]) -> Tensor:
    """One sequence's score by its definition: emissions (T, K)."""
    score = crf.start[path[0]] + crf.end[path[-1]]
    for t, tag in enumerate(path):
        score = score + emissions[t, tag]
    for one, other in itertools.pairwise(path):
        score = score + crf.transitions[one, other]
    return score


def all_paths(tags: int, length: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(tags), repeat=length))


def brute_log_probability(crf: CRF, emissions: Tensor, tags: Tensor, lengths: list[int]) -> Tensor:
    result = []
    for row, length in enumerate(lengths):
        if length == 0:
            result.append(emissions.new_zeros(()))
            continue
        scores = {p: path_score(crf, emissions[row], p) for p in all_paths(emissions.shape[2], length)}
        wanted = tuple(tags[row, :length].tolist())
        result.append(scores[wanted] - torch.stack(list(scores.values())).logsumexp(0))
    return torch.stack(result)


@pytest.mark.parametrize(
    ("num_tags", "lengths"), [(1, [3, 1]), (2, [1]), (3, [5, 0, 2, 4]), (4, [4, 4, 1]), (2, [0, 0])]
)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_equal_to_all_paths_with_all_gradients(num_tags: int, lengths: list[int], scale: float) -> None:
    crf = random_crf(num_tags, scale)
    steps = max(1, *lengths) + 1  # one step is padding in every row
    emissions = (scale * torch.randn(len(lengths), steps, num_tags, dtype=DOUBLE)).requires_grad_()
    tags = torch.randint(num_tags, (len(lengths), steps))
    weights = torch.randn(len(lengths), dtype=DOUBLE)
    inputs = [emissions, *crf.parameters()]
    expected = brute_log_probability(crf, emissions, tags, lengths)
    actual = crf(emissions, tags, torch.tensor(lengths))
    assert_close(actual, expected, "log probability")
    if max(lengths):
        wanted = torch.autograd.grad((expected * weights).sum(), inputs, allow_unused=True)
        got = torch.autograd.grad((actual * weights).sum(), inputs)
        for name, a, b in zip(["emissions", "transitions", "start", "end"], got, wanted, strict=True):
            assert_close(a, torch.zeros_like(a) if b is None else b, name)


@pytest.mark.parametrize("lengths", [[1], [6, 0, 3, 6], [2, 5]])
def test_viterbi_finds_the_best_of_all_paths(lengths: list[int]) -> None:
    crf = random_crf(3)
    emissions = torch.randn(len(lengths), max(lengths) + 1, 3, dtype=DOUBLE)
    found = crf.decode(emissions, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        paths = all_paths(3, length)
        best = max(paths, key=lambda path: path_score(crf, emissions[row], path).item()) if length else ()
        assert tuple(found[row]) == best


def test_forbidden_steps_are_not_taken() -> None:
    crf = random_crf(3)
    emissions = 5 * torch.randn(4, 6, 3, dtype=DOUBLE)
    lengths = torch.tensor([6, 1, 3, 5])
    masks = (
        torch.tensor([[False, True, False]] * 3),
        torch.tensor([True, False, False]),
        torch.tensor([False, False, True]),
    )
    for row, path in enumerate(crf.decode(emissions, lengths, masks)):
        allowed = [
            p
            for p in all_paths(3, int(lengths[row]))
            if p[0] != 0 and p[-1] != 2 and all(after != 1 for after in p[1:])
        ]
        assert tuple(path) == max(allowed, key=lambda p: path_score(crf, emissions[row], p).item())


def test_a_path_is_found_where_none_is_legal() -> None:
    crf = random_crf(2)
    everything = (torch.ones(2, 2, dtype=torch.bool), torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool))
    assert [len(p) for p in crf.decode(torch.randn(2, 4, 2, dtype=DOUBLE), torch.tensor([4, 2]), everything)] == [4, 2]


def test_padding_changes_nothing() -> None:
    crf = random_crf(5)
    emissions, tags, lengths = torch.randn(3, 7, 5, dtype=DOUBLE), torch.randint(5, (3, 7)), [7, 2, 5]
    together = crf(emissions, tags, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        alone = crf(emissions[row : row + 1, :length], tags[row : row + 1, :length], torch.tensor([length]))
        assert_close(together[row : row + 1], alone)
    wild = emissions.clone()
    wild[1, 2:], wild[2, 5:] = 1e6, -1e6
    assert torch.equal(crf(wild, tags, torch.tensor(lengths)), together)


@pytest.mark.parametrize("spread", [250.0, 5000.0])
def test_transitions_far_apart_lose_no_path(spread: float) -> None:
    """A path that is hopeless until its last step, which decides: scaled numbers or logarithms, the sum is the same."""
    transitions = torch.tensor([[0.0, -spread], [-spread, 0.0]], dtype=DOUBLE, requires_grad=True)
    zeros = torch.zeros(2, dtype=DOUBLE)
    emissions = torch.zeros(1, 6, 2, dtype=DOUBLE)
    emissions[0, 5] = torch.tensor([-3 * spread, 0.0])
    lengths = torch.tensor([6])
    actual = log_partition(emissions, transitions, zeros, zeros, lengths)
    expected = log_partition_of_logs(emissions, transitions, zeros, zeros, lengths)
    assert_close(actual, expected)
    assert_close(torch.autograd.grad(actual, transitions)[0], torch.autograd.grad(expected, transitions)[0])


def test_an_expensive_transition_with_a_larger_reward() -> None:
    """Every transition to the second tag costs 2000, and the second step pays 2010 for it."""
    transitions = torch.tensor([[0.0, -2000.0], [0.0, -2000.0]], dtype=DOUBLE)
    emissions = torch.tensor([[[0.0, 0.0], [0.0, 2010.0], [0.0, 0.0]]], dtype=DOUBLE, requires_grad=True)
    zeros, lengths = torch.zeros(2, dtype=DOUBLE), torch.tensor([3])
    actual = log_partition(emissions, transitions, zeros, zeros, lengths)
    expected = log_partition_of_logs(emissions, transitions, zeros, zeros, lengths)
    assert_close(actual, expected)
    assert_close(torch.autograd.grad(actual, emissions)[0], torch.autograd.grad(expected, emissions)[0])


def test_single_precision_has_no_trouble_with_a_long_sequence() -> None:
    crf = random_crf(7)
    emissions, lengths = 10 * torch.randn(1, 3000, 7, dtype=DOUBLE), torch.tensor([3000])
    tags = torch.randint(7, (1, 3000))
    exact = crf(emissions, tags, lengths)
    rounded = crf.float()(emissions.float(), tags, lengths)
    assert rounded.dtype == torch.float32
    assert ((rounded.double() - exact).abs() / exact.abs()).item() < 1e-5


def test_finite_differences() -> None:
    crf, lengths = random_crf(3), torch.tensor([4, 2])
    emissions = torch.randn(2, 4, 3, dtype=DOUBLE, requires_grad=True)
    parameters = [p.detach().requires_grad_() for p in (crf.transitions, crf.start, crf.end)]
    assert torch.autograd.gradcheck(
        lambda e, t, first, last: log_partition(e, t, first, last, lengths), (emissions, *parameters)
    )


def test_bfloat16_emissions() -> None:
    crf = CRF(4)
    emissions = torch.randn(2, 5, 4).bfloat16().requires_grad_()
    value = crf(emissions, torch.zeros(2, 5, dtype=torch.long), torch.tensor([5, 3]))
    value.sum().backward()
    assert value.dtype == torch.float32
    assert emissions.grad is not None
    assert emissions.grad.dtype == torch.bfloat16


def test_forbidden_is_below_any_real_score() -> None:
    assert FORBIDDEN == -1e4
    scores = torch.tensor([[[0.0, 50.0], [0.0, 50.0]]])
    masked = torch.tensor([[0.0, FORBIDDEN], [0.0, FORBIDDEN]])
    start = torch.tensor([0.0, FORBIDDEN])
    assert viterbi(scores, masked, start, torch.zeros(2), torch.tensor([2])) == [[0, 0]]


@pytest.mark.parametrize("legal", [False, True])
def test_marginals_are_sums_over_all_paths(legal: bool) -> None:
    """Of those that may be: with masks, the others count as none."""
    crf, lengths, tags = random_crf(3), [4, 0, 1, 3], 3
    emissions = torch.randn(len(lengths), 5, tags, dtype=DOUBLE)
    masks = (torch.eye(tags, dtype=torch.bool), torch.tensor([False, True, False]), torch.tensor([True, False, False]))
    got = crf.marginals(emissions, torch.tensor(lengths), masks if legal else None)
    expected = torch.zeros_like(emissions)
    for row, length in enumerate(lengths):
        paths = [path for path in all_paths(tags, length) if length]
        if legal:
            paths = [p for p in paths if not masks[1][p[0]] and not masks[2][p[-1]]]
            paths = [p for p in paths if not any(masks[0][a, b] for a, b in itertools.pairwise(p))]
        if not paths:
            continue
        chances = torch.stack([path_score(crf, emissions[row], path) for path in paths]).softmax(0)
        for path, chance in zip(paths, chances, strict=True):
            for t, tag in enumerate(path):
                expected[row, t, tag] += chance.detach()
    assert_close(got, expected)
    assert not got.requires_grad
