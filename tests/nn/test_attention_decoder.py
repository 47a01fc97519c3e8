"""Attending decoders: the papers' equations over torch.nn's own cells, steps and sequences, lengths, masks."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled.cells import BahdanauCell, LuongCell, RNNCell, Score
from unrolled.errors import UserError
from unrolled.kernels.attention.scan import ATTENTION_ENGINES, attention_scan
from unrolled.nn.attention_decoder import AttentionDecoder
from unrolled.search.tokens.token_model import select

B, T, S, D, H, M = 3, 4, 5, 3, 6, 8


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.arange(S) < torch.tensor([[S], [2], [1]])
    return torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, M, dtype=torch.float64), mask


def torch_cell(decoder: AttentionDecoder, kind: str) -> Any:
    """torch.nn's cell that reads [y; fed] with the decoder's weights."""
    cell: Any = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}[kind](D + decoder.feed_size, H).double()
    rnn: Any = decoder.rnn
    with torch.no_grad():
        cell.weight_ih.copy_(torch.cat([rnn.weight_ih_l0, decoder.weight_feed], 1))
        cell.weight_hh.copy_(rnn.weight_hh_l0)
        cell.bias_ih.copy_(rnn.bias_ih_l0)
        cell.bias_hh.copy_(rnn.bias_hh_l0)
    return cell


def look(decoder: AttentionDecoder, query: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Additive attention, row by row over real positions."""
    p = dict(decoder.attention.named_parameters())
    contexts, weights = [], []
    for b in range(B):
        real = memory[b, : int(mask[b].sum())]
        hidden = torch.tanh(p["query.weight"] @ query[b] + real @ p["key.weight"].t() + p["key.bias"])
        alpha = (hidden @ p["vector"]).softmax(0)
        contexts.append(alpha @ real)
        weights.append(torch.cat([alpha, alpha.new_zeros(S - len(real))]))
    return torch.stack(contexts), torch.stack(weights)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("form", ["bahdanau", "luong", "xu"])
def test_equations_over_torchs_cells(kind: str, form: str) -> None:
    decoder = AttentionDecoder(D, H, M, cell=kind, form=form, attention_size=7).double()
    if form == "luong":
        decoder = AttentionDecoder(D, H, M, cell=kind, form=form, attention_size=7, output_size=9).double()
    cell = torch_cell(decoder, kind)
    x, memory, mask = inputs()
    seen = decoder(x, memory, mask)
    h, c, fed = (torch.zeros(B, n, dtype=torch.float64) for n in (H, H, decoder.feed_size))
    for t in range(T):
        if form != "luong":
            fed, weights = look(decoder, h, memory, mask)
            fed = fed * torch.sigmoid(decoder.gate(h)) if form == "xu" else fed
            context = fed
        result = cell(torch.cat([x[:, t], fed], 1), (h, c) if kind == "lstm" else h)
        h, c = result if kind == "lstm" else (result, c)
        output = h
        if form == "luong":
            context, weights = look(decoder, h, memory, mask)
            fed = output = torch.tanh(decoder.mix(torch.cat([context, h], 1)))
        assert_close(seen.output[:, t], output, f"output {t}")
        assert_close(seen.context[:, t], context, f"context {t}")
        assert_close(seen.weights[:, t], weights, f"weights {t}")
    final = dict(zip(decoder.state_names, seen.state, strict=True))
    assert_close(final["h"], h)
    if kind == "lstm":
        assert_close(final["c"], c)
    if form == "luong":
        assert_close(final["fed"], fed)


CASES: list[dict[str, Any]] = [
    {"cell": cell, "form": form, "score": score}
    for cell, form, score in product(["lstm", "gru"], ["bahdanau", "luong"], ["additive", "dot", "scaled", "general"])
]
CASES += [{"cell": "gru", "form": f, "score": "multihead", "num_heads": 2} for f in ("bahdanau", "luong")]
CASES += [
    {"cell": "gru", "reset_after": False},
    {"cell": "lstm", "form": "luong", "peephole": True, "layer_norm": True},
    {"cell": "lstm", "score": "general", "proj_size": 4},
    {"cell": "rnn", "nonlinearity": "relu", "form": "luong", "output_size": 5},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_steps_equal_the_sequence(case: dict[str, Any]) -> None:
    size = H if case.get("score") in ("dot", "scaled") else M
    decoder = AttentionDecoder(D, H, size, **case).double()
    x, memory, mask = inputs()
    memory = memory[..., :size]
    initial = tuple(torch.randn(B, n, dtype=torch.float64) for n in decoder.state_sizes)
    seen = decoder(x, memory, mask, initial)
    state = decoder.start(memory, mask, initial)
    for t in range(T):
        step = decoder.step(x[:, t], state)
        for name in ("output", "context", "weights"):
            assert_close(getattr(step, name), getattr(seen, name)[:, t], name)
        state = step.state
    for got, expected in zip(state.cell, seen.state, strict=True):
        assert_close(got, expected)
    rows = torch.tensor([2, 2, 0])  # a search gathers rows of the state
    again = decoder.step(x[rows, 0], select(decoder.start(memory, mask, initial), rows))
    assert_close(again.output, seen.output[rows, 0])


@pytest.mark.parametrize("form", ["bahdanau", "luong", "xu"])
def test_padding_changes_nothing(form: str) -> None:
    """Rows of a batch, ragged on both sides and NaN in the padding, equal each row alone; gradients, too."""
    decoder = AttentionDecoder(D, H, M, cell="lstm", form=form).double()
    x, memory, mask = inputs()
    lengths = torch.tensor([2, T, 0])
    x = torch.where((torch.arange(T) < lengths[:, None])[..., None], x, float("nan"))
    clean = torch.where(mask[..., None], memory, 0)

    def gradients(parts: list[Any]) -> list[Tensor]:
        loss = sum(seen.output.square().sum() + seen.context.sum() + seen.state[1].sum() for seen in parts)
        assert isinstance(loss, Tensor)
        return list(torch.autograd.grad(loss, list(decoder.parameters())))

    batched = decoder(x, clean, mask, lengths=lengths)
    single = []
    for b, length in enumerate(lengths.tolist()):
        for name in ("output", "context", "weights"):
            assert getattr(batched, name)[b, length:].abs().sum() == 0, name
        if length == 0:
            assert all(s[b].abs().sum() == 0 for s in batched.state)
            continue
        real = int(mask[b].sum())
        alone = decoder(x[b : b + 1, :length], memory[b : b + 1, :real])
        assert_close(batched.output[b, :length], alone.output[0])
        assert_close(batched.weights[b, :length, :real], alone.weights[0])
        for got, expected in zip(batched.state, alone.state, strict=True):
            assert_close(got[b], expected[0])
        single.append(alone)
    for got, expected in zip(gradients([batched]), gradients(single), strict=True):
        assert_close(got, expected)


def test_dropout_masks_act_where_they_should() -> None:
    decoder = AttentionDecoder(D, H, M, form="luong", feed_dropout=0.5, mix_dropout=0.5).double()
    x, memory, mask = inputs()
    job = decoder.job(x, memory, mask, None, None)
    assert job.feed_mask is not None
    assert job.mix_mask is not None
    assert set(job.feed_mask.flatten().tolist()) <= {0.0, 2.0}
    assert job.mix_mask.shape == (B, T, M + H)
    assert decoder.eval().job(x, memory, mask, None, None).feed_mask is None
    plain = decoder(x, memory, mask)
    decoder.train()
    torch.manual_seed(1)
    one = decoder(x, memory, mask)
    torch.manual_seed(1)
    assert torch.equal(one.output, decoder(x, memory, mask).output)
    assert not torch.allclose(one.output, plain.output)


RNN = RNNCell(torch.eye(2), torch.eye(2))
LOOK = BahdanauCell(RNN, Score(), torch.eye(2))
Z = torch.zeros


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: AttentionDecoder(2, 3, 4, cell="lstn"),
            "Unknown cell 'lstn'. Did you mean 'lstm'? Choices: gru, lstm, rnn.",
        ),
        (
            lambda: AttentionDecoder(2, 3, 4, form="long"),
            "Unknown form 'long'. Did you mean 'luong'? Choices: bahdanau, luong, xu.",
        ),
        (
            lambda: AttentionDecoder(2, 3, 4, score="genral"),
            "Unknown attention score 'genral'. "
            "Did you mean 'general'? Choices: additive, dot, general, multihead, scaled.",
        ),
        (
            lambda: AttentionDecoder(2, 3, 4, num_heads=2),
            "num_heads=2 with score='additive'. Use score='multihead' for several heads.",
        ),
        (
            lambda: AttentionDecoder(2, 4, 4, score="multihead", attention_size=8),
            "attention_size=8 with score='multihead'. All heads together are 4 wide, as the query.",
        ),
        (
            lambda: AttentionDecoder(2, 3, 4, output_size=7),
            "output_size=7 with form='bahdanau'. Its output is s, 3 wide.",
        ),
        (
            lambda: AttentionDecoder(2, 3, 4, num_layers=2),
            "AttentionDecoder has no option num_layers. It is one layer, read in one direction.",
        ),
        (
            lambda: AttentionDecoder(2, 3, 4, cell="lstm").start(Z(1, 5, 4), None, (Z(1, 3),)),
            "The initial state has 1 tensors. Expected those of the cell: h, c.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 2), Z(2, 3, 2), Z(2, 3, 2)),
            "gates_x has shape (2, 2). Expected (batch, time, gates), one step or more.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 5, 2)),
            "values have shape (2, 5, 2) with keys of shape (2, 3, 2). "
            "Expected (batch, positions, size) of both, batch 2.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2), Z(2, 4)),
            "mask has shape (2, 4). Expected (2, 3): (batch, positions).",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2), state=(Z(2, 5),)),
            "The state h has shape (2, 5). Expected (2, 2): (batch, size).",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2), state=(Z(2, 2), Z(2, 2))),
            "The state has 2 tensors. Expected 1: h.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2), lengths=torch.tensor([1, 5])),
            "lengths[1]=5 is longer than the input's 4 steps. Expected 0 to 4.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2), Z(2, 3)),
            "mask is torch.float32. Expected torch.bool, True where the memory is real.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 3), Z(2, 3, 2), Z(2, 3, 2)),
            "gates_x is 3 wide. Expected 2: as many as weight_feed has rows.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 5), Z(2, 3, 2)),
            "keys is 5 wide. Expected 2: as the query they are compared with.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 7)),
            "weight_feed is 2 wide. Expected 7: as the context.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2), feed_mask=Z(2, 4, 1)),
            "feed_mask is 1 wide. Expected 2: as what the cell is fed.",
        ),
        (
            lambda: attention_scan(LuongCell(RNN, Score(), Z(2, 5), Z(5, 3)), Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2)),
            "weight_mix is 3 wide. Expected 4: context and h side by side.",
        ),
        (
            lambda: attention_scan(LuongCell(RNN, Score(), Z(2, 6), Z(5, 4)), Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2)),
            "weight_feed is 6 wide. Expected 5: as what weight_mix gives.",
        ),
        (
            lambda: AttentionDecoder(2, 3, 4)(Z(1, 5, 2), Z(1, 3, 4), lengths=torch.tensor([6])),
            "lengths[0]=6 is longer than the input's 5 steps. Expected 0 to 5.",
        ),
        (
            lambda: attention_scan(LOOK, Z(2, 4, 2), Z(2, 3, 2), Z(2, 3, 2), feed_mask=Z(2, 2)),
            "feed_mask has shape (2, 2). Expected (2, 4, size).",
        ),
    ],
)
def test_messages(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        make()


def test_an_unknown_engine() -> None:
    names = ", ".join(sorted(["auto", *ATTENTION_ENGINES]))
    with pytest.raises(UserError, match=f"Unknown engine 'refrence'. Did you mean 'reference'\\? Choices: {names}."):
        AttentionDecoder(2, 3, 4, backend="refrence")
