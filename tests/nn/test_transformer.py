"""The Transformer against torch.nn's with the same weights; steps against sequences; position codes."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled.errors import UserError
from unrolled.nn.positions import Positions, binary, sinusoidal
from unrolled.nn.transformer import TransformerDecoder, TransformerEncoder
from unrolled.search.tokens.token_model import select

B, T, S, D = 3, 4, 5, 12
CASES = [
    {"norm_first": norm_first, "activation": activation, "final_norm": final_norm}
    for norm_first in (True, False)
    for activation in ("relu", "gelu")
    for final_norm in (True, False)
]


def named(case: dict[str, Any]) -> str:
    return "-".join(map(str, case.values()))


def masks() -> tuple[Tensor, Tensor]:
    """Of targets and of a memory."""
    return torch.arange(T) < torch.tensor([[T], [2], [1]]), torch.arange(S) < torch.tensor([[3], [S], [1]])


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)


def torch_stack(kind: str, case: dict[str, Any]) -> nn.Module:
    layer: Any = {"encoder": nn.TransformerEncoderLayer, "decoder": nn.TransformerDecoderLayer}[kind]
    stack: Any = {"encoder": nn.TransformerEncoder, "decoder": nn.TransformerDecoder}[kind]
    one = layer(
        D, 3, 20, dropout=0.0, activation=case["activation"], batch_first=True, norm_first=case["norm_first"],
        dtype=torch.float64,
    )  # fmt: skip
    options = {"enable_nested_tensor": False} if kind == "encoder" else {}
    made: nn.Module = stack(
        one, 2, norm=nn.LayerNorm(D, dtype=torch.float64) if case["final_norm"] else None, **options
    )
    for parameter in made.parameters():  # the layers of a torch stack are copies: each gets its own numbers
        nn.init.normal_(parameter, std=0.3)
    return made


def compare_gradients(ours: nn.Module, theirs: nn.Module, got: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    mine = torch.autograd.grad(got.square().sum(), [*leaves, *ours.parameters()])
    right = torch.autograd.grad(expected.square().sum(), [*leaves, *theirs.parameters()])
    mine_by_name = dict(zip([n for n, _ in ours.named_parameters()], mine[len(leaves) :], strict=True))
    right_by_name = dict(zip([n for n, _ in theirs.named_parameters()], right[len(leaves) :], strict=True))
    assert mine_by_name.keys() == right_by_name.keys()
    for name, gradient in right_by_name.items():
        assert_close(mine_by_name[name], gradient, name)
    for a, b in zip(mine[: len(leaves)], right[: len(leaves)], strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("case", CASES, ids=named)
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_equals_torch(case: dict[str, Any], causal: bool) -> None:
    theirs = torch_stack("encoder", case)
    ours = TransformerEncoder(D, 3, 2, 20, dropout=0.0, causal=causal, **case).double()
    ours.load_state_dict(theirs.state_dict())
    _, x = inputs()
    x.requires_grad_()
    _, mask = masks()
    future = torch.ones(S, S, dtype=torch.bool).triu(1) if causal else None
    expected = theirs(x, mask=future, src_key_padding_mask=~mask) * mask[..., None]
    got = ours(x, mask)
    assert_close(got, expected)
    seen, weights = ours.visible(x, mask)
    assert_close(seen, expected)
    assert_close(weights[1].sum(-1)[mask[:, None].expand(B, 3, S)], torch.ones(3 * int(mask.sum()), dtype=x.dtype))
    assert weights[0].transpose(-1, -2)[~mask[:, None].expand(B, 3, S)].abs().sum() == 0
    compare_gradients(ours, theirs, got, expected, [x])


@pytest.mark.parametrize("case", CASES, ids=named)
def test_decoder_equals_torch(case: dict[str, Any]) -> None:
    theirs = torch_stack("decoder", case)
    ours = TransformerDecoder(D, 3, 2, 20, dropout=0.0, **case).double()
    ours.load_state_dict(theirs.state_dict())
    x, memory = inputs()
    leaves = [x.requires_grad_(), memory.requires_grad_()]
    mask, memory_mask = masks()
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=~mask,
        memory_key_padding_mask=~memory_mask,
    )
    expected = expected * mask[..., None]
    got = ours(x, memory, mask, memory_mask)
    assert_close(got, expected)
    trace = ours.visible(x, memory, mask, memory_mask)
    assert_close(trace.output, expected)
    assert [w.shape for w in trace.cross] == [(B, 3, T, S)] * 2
    assert trace.own[0].triu(1).abs().sum() == 0
    compare_gradients(ours, theirs, got, expected, leaves)


@pytest.mark.parametrize("norm_first", [True, False])
def test_steps_equal_the_sequence(norm_first: bool) -> None:
    decoder = TransformerDecoder(D, 3, 2, norm_first=norm_first).double().eval()
    x, memory = inputs()
    _, memory_mask = masks()
    whole = decoder.visible(x, memory, None, memory_mask)
    state = decoder.start(memory, memory_mask)
    for t in range(T):
        (seen, _), weights = decoder.step_visible(x[:, t], state)
        output, state = decoder.step(x[:, t], state)
        assert_close(output, whole.output[:, t])
        assert_close(seen, whole.output[:, t])
        assert_close(weights, whole.cross[-1][:, :, t].mean(1))
    assert state.length == T
    # in pieces, and with rows gathered as a search does
    rows = torch.tensor([2, 0, 0])
    pieces, state = decoder.extend(x[:, :3], decoder.start(memory, memory_mask))
    assert_close(pieces, whole.output[:, :3])
    assert_close(decoder.step(x[rows, 3], select(state, rows)).output, whole.output[rows, 3])


def test_a_causal_encoder_streams() -> None:
    encoder = TransformerEncoder(D, 3, 2, causal=True).double().eval()
    x, _ = inputs()
    whole = encoder(x)
    state = encoder.start(B)
    for t in range(T):
        output, state = encoder.step(x[:, t], state)
        assert_close(output, whole[:, t])


@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(causal: bool) -> None:
    """Rows of a ragged batch, NaN in the padding, equal each row alone; an empty row is zero."""
    encoder = TransformerEncoder(D, 3, 2, causal=causal).double().eval()
    decoder = TransformerDecoder(D, 3, 2).double().eval()
    x, memory = inputs()
    mask, memory_mask = masks()
    memory_mask[2] = False
    dirty_x, dirty = (torch.where(m[..., None], v, float("nan")) for m, v in ((mask, x), (memory_mask, memory)))
    encoded = encoder(dirty, memory_mask)
    output = decoder(dirty_x, torch.where(memory_mask[..., None], encoded, float("nan")), mask, memory_mask)
    assert output.isfinite().all()
    assert encoded[2].abs().sum() == 0
    for b in range(2):
        real, length = int(memory_mask[b].sum()), int(mask[b].sum())
        alone = encoder(memory[b : b + 1, :real])
        assert_close(encoded[b, :real], alone[0])
        assert_close(output[b, :length], decoder(x[b : b + 1, :length], alone)[0])
        assert output[b, length:].abs().sum() == 0
    gradients = torch.autograd.grad(output.square().sum(), [*encoder.parameters(), *decoder.parameters()])
    assert all(g.isfinite().all() for g in gradients)


def test_dropout_only_while_training() -> None:
    encoder = TransformerEncoder(D, 3, 2, dropout=0.5).double()
    _, x = inputs()
    assert not torch.equal(encoder(x), encoder(x))
    encoder.eval()
    assert torch.equal(encoder(x), encoder(x))


class TestPositions:
    def test_the_lectures_formula(self) -> None:
        codes = sinusoidal(torch.arange(50), 7)
        for i in (0, 1, 13, 49):
            for d in range(7):
                angle = i / 10000 ** (d // 2 * 2 / 7)
                expected = math.sin(angle) if d % 2 == 0 else math.cos(angle)
                assert codes[i, d].item() == pytest.approx(expected, abs=1e-6)

    def test_codes_that_do_not_serve(self) -> None:
        zeros = torch.zeros(2, 4, 5)
        assert Positions("count", 5)(zeros)[0, :, 0].tolist() == [1, 2, 3, 4]
        part = Positions("fraction", 5)(zeros, lengths=torch.tensor([4, 2]))
        assert part[:, :, 0].tolist() == [[0.25, 0.5, 0.75, 1.0], [0.5, 1.0, 1.5, 2.0]]
        assert Positions("fraction", 5)(zeros)[1, :, 0].tolist() == [0.25, 0.5, 0.75, 1.0]
        powers = torch.tensor([1, 2, 4, 8])
        digits = (binary(torch.arange(16), 6)[:, :4] + 1) / 2
        assert (digits * powers).sum(1).tolist() == list(range(16))
        assert Positions("none", 5)(zeros) is zeros

    @pytest.mark.parametrize("kind", ["sinusoidal", "learned", "count", "binary"])
    def test_pieces_equal_the_whole(self, kind: str) -> None:
        positions = Positions(kind, 6, max_length=9)
        x = torch.randn(2, 9, 6)
        pieces = [positions(x[:, :4]), positions(x[:, 4:], first=4)]
        assert torch.equal(torch.cat(pieces, 1), positions(x))

    def test_learned_ones_learn(self) -> None:
        positions = Positions("learned", 6, max_length=9)
        positions(torch.zeros(2, 4, 6)).sum().backward()
        assert positions.weight.grad is not None
        assert positions.weight.grad.sum(1).tolist() == [12.0] * 4 + [0.0] * 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Positions("sinus", 4),
            "Unknown position code 'sinus'. Did you mean 'sinusoidal'? "
            "Choices: binary, count, fraction, learned, none, sinusoidal.",
        ),
        (
            lambda: Positions("learned", 4, max_length=3)(torch.zeros(1, 2, 4), first=2),
            "A sequence of 4 steps is longer than the 3 learned positions. "
            "Use max_length=4 or more when training, or position code 'sinusoidal', which has no end.",
        ),
        (
            lambda: Positions("fraction", 4)(torch.zeros(1, 1, 4), first=2),
            "The position code 'fraction' needs to know a sequence's length before its first step. "
            "Use 'sinusoidal' to go step by step.",
        ),
        (
            lambda: TransformerEncoder(8, 2, 1).start(2),
            "This encoder sees the whole sequence at every step, and cannot go step by step. "
            "Use causal=True for one that can.",
        ),
        (
            lambda: TransformerEncoder(8, 2, 1)(torch.zeros(2, 5, 6)),
            "The input has shape (2, 5, 6). Expected (batch, time, size) with size 8.",
        ),
        (
            lambda: TransformerDecoder(8, 2, 1).start(torch.zeros(2, 8)),
            "The input has shape (2, 8). Expected (batch, positions, size) with size 8.",
        ),
        (lambda: TransformerEncoder(10, 4, 1), "size=10 is not divisible by num_heads=4. Use 8 or 12."),
        (lambda: TransformerEncoder(8, 2, 0), "num_layers must be greater than zero, got 0."),
        (
            lambda: TransformerEncoder(8, 2, 1, dropout=1.0),
            "dropout=1.0 is not a probability. Expected a number from 0 up to, not including, 1.",
        ),
    ],
)
def test_messages(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        make()
