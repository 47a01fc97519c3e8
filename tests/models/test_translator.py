"""Encoders and decoders: all steps at once equal one after the other, padding changes nothing, shapes are bridged."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled.config import apply
from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.models.bridge import Bridge, StateShape
from unrolled.models.encoder import EncoderSettings, RecurrentEncoder
from unrolled.models.translator import translator
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.search import reorder, select

END = 2


@dataclass(frozen=True)
class Sizes:
    source_size: int = 11
    target_size: int = 13
    joint: bool = False


SMALL = {"embedding_size": 6, "encoder.hidden_size": 5, "decoder.hidden_size": 5}
TINY = {
    "encoder.hidden_size": 8,
    "encoder.heads": 2,
    "decoder.heads": 4,
    "encoder.blocks": 2,
    "decoder.blocks": 2,
    "encoder.feedforward": 7,
    "decoder.feedforward": 9,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"decoder.attention": "none"},
    "plain, one direction": {"decoder.attention": "none", "encoder.bidirectional": False},
    "reversed": {"decoder.attention": "none", "encoder.bidirectional": False, "encoder.reverse": True},
    "layers": {"encoder.num_layers": 2, "decoder.num_layers": 3, "decoder.attention": "none"},
    "more layers below": {"encoder.num_layers": 3, "decoder.num_layers": 2, "decoder.attention": "luong"},
    "gru to lstm": {"encoder.cell": "gru", "decoder.attention": "bahdanau", "decoder.score": "additive"},
    "lstm to gru": {"decoder.cell": "gru", "decoder.attention": "bahdanau"},
    "lstm to rnn": {"decoder.cell": "rnn", "decoder.attention": "luong"},
    "concatenated": {"encoder.num_layers": 2, "encoder.combine": "concat"},
    "multihead": {"decoder.score": "multihead", "decoder.heads": 5, "encoder.reverse": True},
    "dot": {"decoder.score": "dot", "decoder.hidden_size": 10},
    "scaled": {"decoder.score": "scaled", "decoder.hidden_size": 10, "decoder.num_layers": 2},
    "zero bridge": {"decoder.bridge": "zero", "decoder.score": "additive", "decoder.attention_size": 3},
    "linear bridge": {"decoder.bridge": "linear", "decoder.hidden_size": 10, "tied": False},
    "learned state": {"decoder.bridge": "zero", "decoder.learned_state": True, "decoder.num_layers": 2},
    "learned state, gru": {"encoder.cell": "gru", "encoder.learned_state": True, "encoder.num_layers": 2},
    "projected": {"encoder.proj_size": 3, "decoder.proj_size": 2, "decoder.num_layers": 3, "decoder.combine": "concat"},
    "projected, before": {"decoder.proj_size": 4, "decoder.attention": "bahdanau", "decoder.num_layers": 2},
    "other activations": {"encoder.cell_activation": "softsign", "decoder.gate_activation": "hardsigmoid"},
    "no bias": {"encoder.bias": False, "decoder.bias": False, "decoder.cell": "gru"},
    "transformer": {"kind": "transformer", **TINY},
    "norm after": {"kind": "transformer", **TINY, "norm_first": False, "positions": "learned"},
    "fraction": {"kind": "transformer", **TINY, "positions": "fraction", "tied": False},
    "stepwise": {"kind": "stepwise", "encoder.bidirectional": False, "encoder.learned_state": True},
}


def a_network(variant: str) -> nn.Module:
    settings = apply(TranslatorSettings(), {**SMALL, **VARIANTS[variant]})
    network = translator(settings, Sizes(), END).double().eval()
    for name, parameter in network.named_parameters():
        if "initial_" in name or "bridge.learned" in name:  # zeros in a new network
            nn.init.normal_(parameter)
    return network


def a_batch(lengths: list[int], target_lengths: list[int]) -> Batch:
    """Random tokens, the end token last, garbage in the padding."""
    rows = len(lengths)
    source = torch.randint(3, 11, (rows, max(lengths)))
    for row, length in enumerate(lengths):
        source[row, length - 1] = END
    inputs = torch.randint(3, 13, (rows, max(target_lengths)))
    more = {"target_inputs": inputs, "target_lengths": torch.tensor(target_lengths)}
    return Batch(source, torch.randint(3, 13, inputs.shape), lengths=torch.tensor(lengths), more=more)


def all_scores(network: Any, batch: Batch) -> Tensor:
    scores: Tensor = network.scores(network(batch).features).float().log_softmax(-1)
    return scores


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_steps_at_once_are_one_after_the_other(variant: str) -> None:
    network: Any = a_network(variant)
    batch = a_batch([4, 1, 7], [6, 6, 6])
    at_once, attention = all_scores(network, batch), network(batch).attention
    state = network.start(network.encode(batch))
    rows = torch.tensor([2, 0, 1])  # a search may turn rows round
    state = select(state, rows)
    for time in range(6):
        step = network.step(batch.more["target_inputs"][rows, time], state)
        state = step.state
        assert_close(step.log_probs, at_once[rows, time])
        if attention is not None:
            assert_close(step.attention, attention[rows, time])
    assert network.attends == (variant not in ("stepwise", "layers", "reversed") and not variant.startswith("plain"))


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_hypotheses_share_what_was_read(variant: str) -> None:
    """Three hypotheses for each of two sources, in float32 on the fastest engine, against six sources in float64."""
    exact: Any = a_network(variant)
    quick = copy.deepcopy(exact).float()
    batch = a_batch([4, 7], [1, 1])
    each = torch.tensor([0, 0, 0, 1, 1, 1])
    alone = select(exact.start(exact.encode(batch)), each)
    together = reorder(quick.start(quick.encode(batch)), each)
    show, shown = exact.showing_attention(), quick.showing_attention()
    for tokens, parents in zip(torch.randint(3, 13, (4, 6)), [[2, 1, 0, 3, 3, 5], [0, 0, 0, 4, 5, 3]] * 2, strict=True):
        expected, got = show.step(tokens, alone), shown.step(tokens, together)
        assert_close(got.log_probs, expected.log_probs.float())
        if expected.attention is not None:
            assert_close(got.attention, expected.attention.float())
        alone, together = select(expected.state, torch.tensor(parents)), reorder(got.state, torch.tensor(parents))
    last, first = torch.tensor([3, 4, 5]), torch.tensor([1])  # the first source is done
    expected = exact.step(tokens[last], select(alone, last))
    got = quick.step(tokens[last], select(together, last, first))
    assert_close(got.log_probs, expected.log_probs.float())


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_changes_nothing(variant: str) -> None:
    network: Any = a_network(variant)
    batch = a_batch([4, 1, 7], [3, 6, 5])
    together, attention = all_scores(network, batch), network(batch).attention
    for row, (length, steps) in enumerate(zip([4, 1, 7], [3, 6, 5], strict=True)):
        more = {"target_inputs": batch.more["target_inputs"][row : row + 1, :steps]}
        alone = Batch(
            batch.inputs[row : row + 1, :length],
            batch.targets[row : row + 1, :steps],
            lengths=torch.tensor([length]),
            more=more,
        )
        assert_close(together[row, :steps], all_scores(network, alone)[0])
        if attention is not None:
            assert_close(attention[row, :steps, :length], network(alone).attention[0])
            assert not bool(attention[row, :steps, length:].any())
            assert_close(attention[row, :steps].sum(-1), torch.ones(steps, dtype=torch.float64))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_weight_learns(variant: str) -> None:
    network: Any = a_network(variant)
    loss = all_scores(network, a_batch([4, 3, 7], [3, 6, 5])).square().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    still = [name for name, p in network.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert still == []


def test_a_transformer_can_show_where_it_looks() -> None:
    network: Any = a_network("transformer")
    batch = a_batch([4, 1, 7], [5, 5, 5])
    memory = network.encode(batch)
    plain, shown = network.start(memory), network.start(memory)
    for time in range(5):
        tokens = batch.more["target_inputs"][:, time]
        one, two = network.step(tokens, plain), network.showing_attention().step(tokens, shown)
        assert_close(two.log_probs, one.log_probs)
        assert one.attention is None
        assert_close(two.attention.sum(-1), torch.ones(3, dtype=torch.float64))
        assert not bool(two.attention[~memory.mask].any())
        plain, shown = one.state, two.state


def test_states_of_equal_shape_are_handed_over_as_they_are() -> None:
    bridge = Bridge(StateShape(("h", "c"), (5, 5), 2), StateShape(("h", "c"), (5, 5), 2))
    state = (torch.randn(3, 2, 5), torch.randn(3, 2, 5))
    assert list(bridge.parameters()) == []
    for given, got in zip(state, bridge(state), strict=True):
        assert torch.equal(given, got)


def test_bridged_states_are_what_the_equation_says() -> None:
    bridge = Bridge(StateShape(("h", "c"), (4, 4), 1), StateShape(("h", "c"), (3, 3), 1, directions=2))
    h, c = torch.randn(2, 2, 3), torch.randn(2, 2, 3)
    new_h, new_c = bridge((h, c))
    w_h: Any = bridge.maps["h0"]
    w_c: Any = bridge.maps["c0"]
    assert_close(new_h[:, 0], torch.tanh(torch.cat([h[:, 0], h[:, 1]], -1) @ w_h.weight.T + w_h.bias))
    assert_close(new_c[:, 0], torch.cat([c[:, 0], c[:, 1]], -1) @ w_c.weight.T + w_c.bias)


def test_a_reversed_source_is_the_same_as_reversing_it() -> None:
    settings = EncoderSettings(hidden_size=4, bidirectional=False, reverse=True)
    encoder = RecurrentEncoder(settings, nn.Embedding(9, 3)).eval()
    straight = RecurrentEncoder(settings.model_copy(update={"reverse": False}), encoder.embedding).eval()
    straight.load_state_dict(encoder.state_dict())
    lengths = torch.tensor([3, 5])
    turned = encoder(torch.tensor([[3, 4, END, 0, 0], [5, 6, 7, 8, END]]), lengths)
    given = straight(torch.tensor([[4, 3, END, 0, 0], [8, 7, 6, 5, END]]), lengths)
    assert_close(turned.state[0], given.state[0])
    assert_close(turned.memory[1], given.memory[1][[3, 2, 1, 0, 4]])
    assert_close(turned.memory[0, :3], given.memory[0][[1, 0, 2]])


def test_one_matrix_for_all_tokens() -> None:
    network: Any = translator(apply(TranslatorSettings(), SMALL), Sizes(13, 13, joint=True), END)
    assert network.scores.weight is network.embedding.weight is network.encoder.embedding.weight
    network = translator(apply(TranslatorSettings(), {**SMALL, "shared": False}), Sizes(13, 13, joint=True), END)
    assert network.scores.weight is not network.encoder.embedding.weight


def test_the_baseline_cannot_read_ahead() -> None:
    with pytest.raises(UserError, match=r"model.kind=stepwise writes while it reads, and .* Use model.encoder.bidir"):
        translator(TranslatorSettings(kind="stepwise"), Sizes(), END)
    network: Any = a_network("stepwise")
    batch = a_batch([5, 5], [5, 5])
    batch.inputs[1, :3] = batch.inputs[0, :3]
    scores = all_scores(network, batch)
    assert torch.equal(scores[0, :3], scores[1, :3])


def test_options_the_attending_layer_does_not_have() -> None:
    with pytest.raises(UserError, match="AttentionDecoder has no option zoneout"):
        translator(apply(TranslatorSettings(), {"decoder.zoneout": 0.1}), Sizes(), END)
