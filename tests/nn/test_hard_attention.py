"""Hard attention: what is drawn, how often, what is seen, and that steps and sequences agree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.tolerances import assert_close
from unrolled.cells import BahdanauCell, RNNCell, Score
from unrolled.errors import UserError
from unrolled.kernels.attention.scan import attention_scan
from unrolled.nn.attention_decoder import AttentionDecoder, gumbel

B, T, S, D, H, M = 4, 3, 5, 3, 6, 8


def a_decoder(**options: object) -> AttentionDecoder:
    return AttentionDecoder(D, H, M, cell="lstm", form="xu", hard=True, **options).double()  # type: ignore[arg-type]


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.arange(S) < torch.tensor([[S], [S], [2], [1]])
    return torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, M, dtype=torch.float64), mask


def gate(decoder: AttentionDecoder, h: Tensor) -> Tensor:
    opened: Tensor = torch.sigmoid(decoder.gate(h))
    return opened


def test_it_sees_the_place_it_drew_and_nothing_else() -> None:
    decoder = a_decoder(expected=0.0)
    x, memory, mask = inputs()
    seen = decoder(x, memory, mask)
    assert seen.chosen is not None
    before = torch.cat([torch.zeros(B, 1, H, dtype=torch.float64), seen.output[:, :-1]], dim=1)
    region = memory.gather(1, seen.chosen[..., None].expand(-1, -1, M))
    assert_close(seen.context, gate(decoder, before) * region)
    assert bool((seen.chosen[2] < 2).all())
    assert bool((seen.chosen[3] == 0).all())


def test_in_use_it_looks_at_the_likeliest_place() -> None:
    decoder = a_decoder().eval()
    x, memory, mask = inputs()
    seen = decoder(x, memory, mask)
    assert torch.equal(seen.chosen, seen.weights.argmax(-1))
    state = decoder.start(memory, mask)
    for t in range(T):
        step = decoder.step(x[:, t], state)
        assert_close(step.output, seen.output[:, t])
        assert_close(step.weights, seen.weights[:, t])
        state = step.state


def test_rows_that_see_the_mean_are_soft_ones() -> None:
    decoder = a_decoder(expected=0.5)
    soft = AttentionDecoder(D, H, M, cell="lstm", form="xu").double()
    soft.load_state_dict(decoder.state_dict())
    x, memory, _ = inputs()
    x, memory = x[:1].expand(64, -1, -1), memory[:1].expand(64, -1, -1)
    seen, expected = decoder(x, memory), soft(x, memory)
    means = (seen.chosen < 0).all(1)
    assert 10 < int(means.sum()) < 54
    assert torch.equal(means, (seen.chosen < 0).any(1))
    assert_close(seen.output[means], expected.output[means])


def test_places_are_drawn_as_often_as_the_weights_say() -> None:
    weights = torch.tensor([0.5, 0.3, 0.2, 0.0])
    draws = 40_000
    places = (weights.log() + gumbel(torch.empty(draws, 4))).argmax(-1)
    shares = torch.bincount(places, minlength=4) / draws
    assert shares[3] == 0
    deviation = (weights * (1 - weights) / draws).sqrt()
    assert bool(((shares - weights).abs() <= 5 * deviation).all())


def test_a_step_in_training_draws_too() -> None:
    decoder = a_decoder(expected=0.0)
    x, memory, _ = inputs()
    state = decoder.start(memory[:1].expand(64, -1, -1))
    outputs = decoder.step(x[:1, 0].expand(64, -1), state).output
    assert len({tuple(row) for row in outputs.tolist()}) > 1


@pytest.mark.parametrize("training", [False, True])
def test_hypotheses_of_one_memory_see_its_regions(training: bool) -> None:
    decoder = a_decoder(expected=0.0).train(training)
    x, memory, mask = inputs()
    shared = decoder.start(memory, mask)
    state = shared._replace(cell=tuple(torch.randn(2 * B, H, dtype=torch.float64) for _ in range(2)))
    x = torch.cat([x[:, :1], x[:, 1:2]], dim=1).flatten(0, 1)  # two for each memory, one after the other
    step = decoder.step(x, state)
    looks = gate(decoder, state.cell[0])
    for row in range(2 * B):
        seen = step.context[row] / looks[row]
        distances = (memory[row // 2] - seen).abs().sum(-1).detach()
        assert float(distances.min()) < 1e-9
        if not training:
            assert int(distances.argmin()) == int(step.weights[row].argmax())


def test_the_native_engine_says_why_it_does_not_serve() -> None:
    decoder = AttentionDecoder(D, H, M, form="xu")
    x, memory, _ = inputs()
    choice = decoder.backend_for(x.float(), memory.float())
    assert choice.engine == "reference"
    assert "it has no gate on the context" in str(choice) or "native" not in str(choice)


@pytest.mark.parametrize(("form", "score"), [("luong", "additive"), ("xu", "multihead")])
def test_forms_that_are_not_hard(form: str, score: str) -> None:
    with pytest.raises(
        UserError, match=rf"^hard=True with form='{form}', score='{score}'. Hard attention is form='xu'"
    ):
        AttentionDecoder(D, H, M, form=form, score=score, num_heads=2 if score == "multihead" else 1, hard=True)


def test_draws_are_for_cells_that_draw() -> None:
    rnn = RNNCell(weight_ih=torch.eye(2), weight_hh=torch.eye(2))
    cell = BahdanauCell(rnn, Score(), weight_feed=torch.eye(2))
    memory = torch.zeros(1, 3, 2)
    with pytest.raises(UserError, match=r"^noise was passed to a BahdanauCell. Only a hard VisualCell uses it.$"):
        attention_scan(cell, torch.zeros(1, 4, 2), memory, memory, noise=torch.zeros(1, 4, 3))
    with pytest.raises(
        UserError, match=r"^noise has shape \(1, 3\). Expected \(1, 4, 3\): \(batch, time, positions\).$"
    ):
        attention_scan(cell, torch.zeros(1, 4, 2), memory, memory, noise=torch.zeros(1, 3))
