"""Captioners: steps equal sequences, pictures stand alone, every weight learns; the terms that attention adds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.tolerances import assert_close
from unrolled.config import apply
from unrolled.data import Batch
from unrolled.data.signals.views import Shape, View
from unrolled.errors import UserError
from unrolled.models.captioner import CaptionerSettings, captioner
from unrolled.models.picture_encoder import PictureEncoder, PictureSettings
from unrolled.nn.vision import RegionNet, shifted
from unrolled.search import select
from unrolled.tasks.caption.batches import caption_loss, looking, unseen, view_batch

TOKENS = 9
SMALL: dict[str, Any] = {
    "embedding_size": 6,
    "encoder.hidden_size": 8,
    "encoder.channels": [4, 6],
    "encoder.grid": 4,
    "decoder.hidden_size": 5,
    "encoder.heads": 2,
    "decoder.heads": 2,
    "encoder.feedforward": 7,
    "decoder.feedforward": 7,
    "encoder.dropout": 0.0,
    "decoder.dropout": 0.0,
}
PIXELS, REGIONS, BAG = Shape("pixels", (12, 10, 3)), Shape("regions", (3, 2, 4)), Shape("regions", (5, 4))
BOTH, VECTOR = Shape("regions", (3, 2, 4), 6), Shape("vector", (), 6)
VARIANTS: dict[str, tuple[Shape, dict[str, Any]]] = {
    "soft": (PIXELS, {}),
    "hard": (REGIONS, {"decoder.attention": "hard"}),
    "soft, gru, two layers": (BOTH, {"decoder.cell": "gru", "decoder.num_layers": 2}),
    "luong": (BAG, {"decoder.attention": "luong", "decoder.score": "general"}),
    "bahdanau": (REGIONS, {"decoder.attention": "bahdanau"}),
    "no regions": (PIXELS, {"decoder.attention": "none"}),
    "one vector": (VECTOR, {}),
    "transformer": (PIXELS, {"kind": "transformer"}),
    "transformer, no blocks": (BOTH, {"kind": "transformer", "encoder.blocks": 0, "norm_first": False}),
    "transformer, one vector": (VECTOR, {"kind": "transformer", "tied": False}),
}


def a_network(variant: str) -> Any:
    shape, changes = VARIANTS[variant]
    return captioner(apply(CaptionerSettings(), {**SMALL, **changes}), shape, TOKENS).double().eval()


def views(shape: Shape, rows: int) -> list[View]:
    random = np.random.default_rng(int(torch.randint(1 << 30, ())))
    found = []
    for _ in range(rows):
        values: Any = random.normal(size=shape.sizes) if shape.sizes else None
        if shape.kind == "pixels":
            values = random.integers(0, 256, shape.sizes, dtype=np.uint8)
        found.append(View(values, random.normal(size=shape.vector) if shape.vector else None))
    return found


def a_batch(shape: Shape, lengths: list[int]) -> Batch:
    batch = view_batch(views(shape, len(lengths)))
    inputs = torch.randint(3, TOKENS, (len(lengths), max(lengths)))
    more = {**batch.more, "target_inputs": inputs, "target_lengths": torch.tensor(lengths)}
    return Batch(batch.inputs, torch.randint(3, TOKENS, inputs.shape), more=more)


def row_of(batch: Batch, row: int) -> Batch:
    more = {name: value[row : row + 1] for name, value in batch.more.items()}
    return Batch(batch.inputs[row : row + 1], batch.targets[row : row + 1], more=more)


def all_scores(network: Any, batch: Batch) -> Tensor:
    scores: Tensor = network.scores(network(batch).features).float().log_softmax(-1)
    return scores


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_are_sequences_and_batches_are_single_pictures(variant: str) -> None:
    network = a_network(variant)
    batch = a_batch(VARIANTS[variant][0], [4, 4, 4])
    at_once, attention = all_scores(network, batch), network(batch).attention
    rows = torch.tensor([2, 0, 1])
    state = select(network.start(network.encode(batch)), rows)
    for time in range(4):
        step = network.step(batch.more["target_inputs"][rows, time], state)
        state = step.state
        assert_close(step.log_probs, at_once[rows, time])
        if attention is not None:
            assert_close(step.attention, attention[rows, time])
    for row in range(3):
        assert_close(all_scores(network, row_of(batch, row))[0], at_once[row])
    assert network.attends == (variant not in ("no regions", "one vector"))


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "one vector" not in name])
def test_attention_is_over_the_grid(variant: str) -> None:
    network = a_network(variant)
    batch = a_batch(VARIANTS[variant][0], [3, 3])
    memory = network.encode(batch)
    grids = {"pixels": (3, 3), "regions": (3, 2)}
    shape = VARIANTS[variant][0]
    assert network.grid == (None if shape == BAG else grids[shape.kind])
    assert memory.memory.shape[1] == (5 if shape == BAG else np.prod(grids[shape.kind]))
    if network.attends:
        step = network.showing_attention().step(batch.more["target_inputs"][:, 0], network.start(memory))
        assert_close(step.attention.sum(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    "variant", [name for name in VARIANTS if name != "transformer, one vector"]
)  # one is no choice
def test_every_weight_learns(variant: str) -> None:
    network = a_network(variant).train()
    batch = a_batch(VARIANTS[variant][0], [4, 3, 2, 4, 3, 4])
    batch = Batch(batch.inputs, batch.targets, more={**batch.more, "penalties": torch.tensor([0.5, 1.0, 0.1])})
    caption_loss(network, batch).sum.backward()  # type: ignore[no-untyped-call]
    still = [name for name, p in network.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert still == []


def test_the_state_is_made_from_the_mean_region() -> None:
    network = a_network("soft")
    memory = network.encode(a_batch(PIXELS, [2, 2]))
    (h, c), _ = network.decoder._begin(memory)
    mean = memory.memory.mean(1)
    w_h, w_c = network.decoder.bridge.maps["h0"], network.decoder.bridge.maps["c0"]
    assert_close(h, torch.tanh(mean @ w_h.weight.T + w_h.bias))
    assert_close(c, mean @ w_c.weight.T + w_c.bias)


def test_regions_keep_their_place() -> None:
    """A change in one corner of a picture changes the vector of that corner most."""
    net = RegionNet(3, 16, 16, [8, 8], most=4)
    one = torch.rand(1, 3, 16, 16)
    two = one.clone()
    two[..., 12:, 12:] += 1.0
    changed = (net(one) - net(two)).abs().sum(1)[0]
    assert net.grid == (4, 4)
    assert int(changed.argmax()) == 15


def test_features_are_scaled_as_in_training() -> None:
    regions = torch.randn(50, 3, 2, 4) * torch.tensor([1.0, 10.0, 0.1, 0.0]) + torch.tensor([0.0, 5.0, -3.0, 7.0])
    encoder = PictureEncoder(PictureSettings(hidden_size=8, dropout=0.0), BOTH)
    encoder.fit(regions, torch.ones(50, 6))
    scaled = encoder._regions(regions)
    assert_close(scaled[..., :3].mean((0, 1)), torch.zeros(3))
    assert_close(scaled[..., :3].std((0, 1), correction=0), torch.ones(3))
    assert bool(torch.isfinite(scaled).all())
    assert bool((encoder.vector_deviation == 1).all())


def test_the_doubly_stochastic_term_is_its_definition() -> None:
    attention = torch.rand(2, 4, 3).softmax(-1)
    lengths = [4, 2]
    real = torch.arange(4) < torch.tensor(lengths)[:, None]
    expected = sum(
        (1 - sum(float(attention[b, t, j]) for t in range(lengths[b]))) ** 2 for b in range(2) for j in range(3)
    )
    assert float(unseen(attention, real)) == pytest.approx(expected, abs=1e-5)


def test_reinforce_is_the_gradient_of_the_expected_reward() -> None:
    """All draws of three places at two steps written out, each with a reward of its own."""
    scores = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    draws = list(itertools.product(range(3), repeat=2))
    rewards = dict(zip(draws, torch.randn(len(draws), dtype=torch.float64).tolist(), strict=True))
    real = torch.ones(1, 2, dtype=torch.bool)
    attention = scores.softmax(-1)

    def chance(draw: tuple[int, ...]) -> Tensor:
        return attention[0, 0, draw[0]] * attention[0, 1, draw[1]]

    expected = torch.stack([chance(draw) * rewards[draw] for draw in draws]).sum()
    (wanted,) = torch.autograd.grad(expected, scores, retain_graph=True)
    estimate = torch.zeros((), dtype=torch.float64)
    for draw in draws:
        looked, _ = looking(attention, torch.tensor([draw]), real)
        estimate = estimate + chance(draw).detach() * (rewards[draw] - 0.7) * looked.sum()  # any baseline
    (got,) = torch.autograd.grad(estimate, scores)
    assert_close(got, wanted)


def test_entropy_is_over_real_steps_and_means_are_no_draws() -> None:
    attention = torch.rand(2, 3, 4, dtype=torch.float64).softmax(-1)
    real = torch.tensor([[True, True, False], [True, True, True]])
    chosen = torch.tensor([[1, 2, 3], [-1, -1, -1]])
    looked, entropy = looking(attention, chosen, real)
    assert_close(looked, torch.stack([attention[0, 0, 1].log() + attention[0, 1, 2].log(), torch.zeros(()).double()]))
    categorical: Any = torch.distributions.Categorical(attention)
    assert_close(entropy, categorical.entropy()[real].sum())


def test_the_baseline_follows_the_rewards_and_is_kept() -> None:
    network = a_network("hard").train()
    assert float(network.baseline) == pytest.approx(-np.log(TOKENS))
    batch = a_batch(REGIONS, [4, 3])
    plain = caption_loss(network, batch)
    assert float(network.baseline) == pytest.approx(-np.log(TOKENS))
    assert int(plain.count) == 7
    before = float(network.baseline)
    network.follow(torch.tensor([-1.0, -2.0]).double())
    assert float(network.baseline) == pytest.approx(0.9 * before + 0.1 * -1.5)
    assert "baseline" in network.state_dict()


def test_pictures_are_shifted_and_nothing_else() -> None:
    pixels = torch.arange(2 * 5 * 6 * 3, dtype=torch.uint8).view(2, 5, 6, 3)
    found = shifted(pixels, 1)
    assert found.dtype == torch.uint8
    padded = torch.cat([pixels[:, :1], pixels, pixels[:, -1:]], 1)
    padded = torch.cat([padded[:, :, :1], padded, padded[:, :, -1:]], 2)
    windows = [padded[:, y : y + 5, x : x + 6] for y in range(3) for x in range(3)]
    for row in range(2):
        assert any(torch.equal(found[row], window[row]) for window in windows)


class Halves(nn.Module):
    """An encoder of a user's own: the mean colours of the left and the right half."""

    def __init__(self, flat: bool = False) -> None:
        super().__init__()
        self.flat, self.scale = flat, nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        halves = torch.stack([half.mean((2, 3)) for half in x.chunk(2, 3)], -1) * self.scale  # (B, 3, 2)
        return halves.transpose(1, 2) if self.flat else halves[:, :, None]


@pytest.mark.parametrize("flat", [False, True])
def test_any_module_can_be_the_encoder(flat: bool) -> None:
    settings = apply(CaptionerSettings(), SMALL)
    network: Any = captioner(settings, PIXELS, TOKENS, lambda shape: Halves(flat))
    assert network.grid == (None if flat else (1, 2))
    assert network.encode(a_batch(PIXELS, [2, 2])).memory.shape == (2, 2, 8)


def test_encoders_that_cannot_be() -> None:
    settings = apply(CaptionerSettings(), SMALL)
    with pytest.raises(
        UserError, match=r"^The encoder gave shape \(1, 360\) for \(1, 3, 12, 10\). Expected \(B, M, h, w"
    ):
        captioner(settings, PIXELS, TOKENS, lambda shape: nn.Flatten())
    with pytest.raises(UserError, match=r"^A custom network needs pixels or regions; a picture is one vector here."):
        captioner(settings, VECTOR, TOKENS, lambda shape: nn.Flatten())
    with pytest.raises(UserError, match=r"^model.decoder.attention=hard, but a picture is one vector without reg"):
        captioner(apply(settings, {"decoder.attention": "hard"}), VECTOR, TOKENS)
    with pytest.raises(UserError, match=r"^channels=\[\] makes no network. Give one number for each stage"):
        captioner(apply(settings, {"encoder.channels": []}), PIXELS, TOKENS)
