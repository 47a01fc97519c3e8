"""The Transformer as a language model: against torch.nn's, window by window; cut anywhere, alone or in a batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.models import LanguageModelSettings, TransformerLM, language_model
from unrolled.search import Limits, Sampling, generate, sample
from unrolled.search.tokens.token_model import select

V, D, CONTEXT = 7, 12, 10
CODES = ("sinusoidal", "learned", "count", "binary", "none")


def made(**changes: Any) -> TransformerLM:
    settings = {"kind": "transformer", "hidden_size": D, "heads": 3, "blocks": 2, "context": CONTEXT, "dropout": 0.0}
    network = language_model(LanguageModelSettings(**{**settings, **changes}), V, 0)
    assert isinstance(network, TransformerLM)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network.eval().double()


def torch_scores(network: TransformerLM, ids: Tensor, norm_first: bool) -> Tensor:
    """torch.nn's encoder with the same weights on sinusoidal positions, written out from the lectures' formula."""
    one = nn.TransformerEncoderLayer(
        D, 3, 4 * D, 0.0, "gelu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    norm = nn.LayerNorm(D, dtype=torch.float64) if norm_first else None
    theirs = nn.TransformerEncoder(one, 2, norm, enable_nested_tensor=False).eval()
    theirs.load_state_dict(network.encoder.state_dict())
    x = network.embedding(ids) * math.sqrt(D)
    for i in range(ids.shape[1]):
        for k in range(D // 2):
            angle = i / 10000 ** (2 * k / D)
            x[:, i, 2 * k] += math.sin(angle)
            x[:, i, 2 * k + 1] += math.cos(angle)
    future = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
    scores: Tensor = network.scores(theirs(x, mask=future))
    return scores


@torch.no_grad()
def by_definition(network: TransformerLM, ids: Tensor) -> Tensor:
    """Each token's scores from its window alone: (1, T) → (1, T, V)."""
    half, scores = CONTEXT // 2, []
    for last in range(ids.shape[1]):
        begun = 0 if last < CONTEXT else ((last - CONTEXT) // (CONTEXT - half) + 1) * (CONTEXT - half)
        x = network.positions(network.embedding(ids[:, begun : last + 1]) * math.sqrt(D))
        scores.append(network.scores(network.encoder(x))[:, -1])
    return torch.stack(scores, dim=1)


@pytest.mark.parametrize("norm_first", [True, False])
@torch.no_grad()
def test_it_equals_torch(norm_first: bool) -> None:
    network = made(norm_first=norm_first)
    ids = torch.randint(V, (3, CONTEXT))
    scores, _ = network(ids)
    assert_close(scores.float(), torch_scores(network, ids, norm_first).float())


@pytest.mark.parametrize("positions", CODES)
@pytest.mark.parametrize("pieces", [1, 3, 10, 17, 37])
@torch.no_grad()
def test_a_text_may_be_cut_anywhere(positions: str, pieces: int) -> None:
    network = made(positions=positions)
    ids = torch.randint(V, (1, 37))
    state, found = None, []
    for begin in range(0, 37, pieces):
        scores, state = network(ids[:, begin : begin + pieces], state)
        found.append(scores)
    assert_close(torch.cat(found, dim=1), by_definition(network, ids))


@torch.no_grad()
def test_training_sees_the_same_windows() -> None:
    network = made()
    ids = torch.randint(V, (2, 37))
    kept, _ = network(ids)
    network.train()
    read_again, _ = network(ids)
    assert_close(read_again, kept)


@pytest.mark.parametrize("lengths", [[4, 1, 9], [10, 3, 10], [23, 1, 14]])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "fraction"])
@torch.no_grad()
def test_a_ragged_batch_is_its_rows(lengths: list[int], positions: str) -> None:
    """Prompts of different lengths, then steps; windows begin anew at different times; a row leaves on the way."""
    network = made(positions=positions)
    ids = torch.randint(V, (3, max(lengths)))
    alone = [network.prefill(ids[i : i + 1, :n], torch.tensor([n]), None) for i, n in enumerate(lengths)]
    together = network.prefill(ids, torch.tensor(lengths), None)
    rows = [0, 1, 2]
    for step in range(24):
        assert_close(together.scores, torch.cat([alone[row].scores for row in rows]), f"step {step}")
        if step == 9:
            rows = [0, 2]
            together = together._replace(state=select(together.state, torch.tensor(rows)))
        tokens = torch.randint(V, (len(rows),))
        together = network.step(tokens, together.state)
        for place, row in enumerate(rows):
            alone[row] = network.step(tokens[place : place + 1], alone[row].state)


@torch.no_grad()
def test_a_reset_row_begins_anew() -> None:
    network = made()
    before, after = torch.randint(V, (2, 8)), torch.randint(V, (2, 6))
    _, state = network(before)
    scores, _ = network(after, state, resets=torch.tensor([False, True]))
    fresh, _ = network(after[1:])
    _, own = network(before[:1])
    carried, _ = network(after[:1], own)
    assert_close(scores[1:], fresh)
    assert_close(scores[:1], carried)
    with pytest.raises(UserError, match=r"cannot reset in the middle of a batch\. Give resets of shape \(B,\)"):
        network(after, state, resets=torch.zeros(2, 6, dtype=torch.bool))


def test_a_batch_writes_what_its_rows_write() -> None:
    network = made().float()
    prompts = [[1, 2, 3], [4], [5] * 15]
    together = sample(network, prompts, Limits(max_tokens=25), seeds=3, sampling=Sampling(temperature=0.7))
    for number, prompt in enumerate(prompts):
        (alone,) = sample(
            network, [prompt], Limits(max_tokens=25), seeds=3 + number, sampling=Sampling(temperature=0.7)
        )
        assert together[number].tokens == alone.tokens
    assert sum(len(step) for step in generate(network, prompts, Limits(max_tokens=2))) == 6


def test_gradients_reach_everything() -> None:
    network = made(positions="learned", tied=True).train()
    scores, state = network(torch.randint(V, (2, CONTEXT)))
    scores.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in network.parameters())
    assert state[2] is None  # nothing of the graph is carried along


def test_mistakes() -> None:
    with pytest.raises(UserError, match=r"model\.context=1 is too short for a Transformer\. Use 2 or more\."):
        made(context=1)
    with pytest.raises(UserError, match=r"model\.hidden_size=12 is not divisible by model\.heads=5\. Use .*=10 or 15"):
        made(heads=5)
    with pytest.raises(UserError, match=r"is not divisible by model\.heads=13\. Use model\.hidden_size=13\."):
        made(heads=13)
    with pytest.raises(UserError, match="11 tokens exceed the context of this Transformer, 10"):
        made().trace(torch.zeros(1, 11, dtype=torch.long))
