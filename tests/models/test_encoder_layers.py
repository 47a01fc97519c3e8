"""The Transformer's encoder in `tag` and `classify`: against torch's own, with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unrolled
from tests.tasks.tag.test_tag_frames import gestures, sequences
from tests.tolerances import assert_close
from unrolled import Model, UserError
from unrolled.models.classifier import Classifier
from unrolled.models.encoder_layers import EncoderLayerSettings, TransformerLayers
from unrolled.models.tagger import Tagger

SMALL: dict[str, Any] = {
    "model.kind": "transformer",
    "model.hidden_size": 8,
    "model.heads": 2,
    "model.num_layers": 2,
    "model.feedforward": 12,
    "model.dropout": 0.0,
    "train.batch_size": 8,
    "train.max_steps": 3,
}
TAGS = ("sil", "wave", "point")


def settings(**changes: Any) -> EncoderLayerSettings:
    given = {"hidden_size": 8, "heads": 2, "num_layers": 2, "feedforward": 12, "dropout": 0.0}
    return EncoderLayerSettings(kind="transformer", **{**given, **changes})


def waves(steps: int, size: int) -> Tensor:
    """Position codes from their formula, one number at a time."""
    code = torch.zeros(steps, size)
    for i in range(steps):
        for k in range(size // 2):
            angle = i / 10000 ** (2 * k / size)
            code[i, 2 * k], code[i, 2 * k + 1] = np.sin(angle), np.cos(angle)
    return code


def by_torch(layers: TransformerLayers, x: Tensor, lengths: Tensor, *, norm_first: bool) -> Tensor:
    """The same layers out of torch's own parts: (B, T, H)."""
    block = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, norm_first=norm_first, batch_first=True)
    theirs = nn.TransformerEncoder(
        block, 2, norm=nn.LayerNorm(8) if norm_first else None, enable_nested_tensor=False
    ).eval()
    theirs.load_state_dict(layers.encoder.state_dict())
    steps = x.shape[1]
    x = x @ layers.project.weight.T + layers.project.bias + waves(steps, 8)
    padding = torch.arange(steps) >= lengths[:, None]
    future = torch.ones(steps, steps, dtype=torch.bool).triu(1) if layers.causal else None
    output: Tensor = theirs(x, mask=future, src_key_padding_mask=padding)
    return output


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_it_equals_torchs_encoder(bidirectional: bool, norm_first: bool) -> None:
    layers = TransformerLayers(settings(bidirectional=bidirectional, norm_first=norm_first), 5).eval()
    x, lengths = torch.randn(3, 7, 5), torch.tensor([7, 4, 1])
    output, state = layers(x, lengths=lengths)
    expected = by_torch(layers, x, lengths, norm_first=norm_first)
    assert state == ()
    for row, length in enumerate(lengths.tolist()):
        assert_close(output[row, :length], expected[row, :length])
        assert not output[row, length:].any()
    seen, attention = layers.visible(x, lengths)
    assert_close(seen[0], output[0])
    assert attention.shape == (3, 2, 2, 7, 7)
    assert_close(attention.sum(-1)[0], torch.ones(2, 2, 7))


def test_padding_and_its_content_change_nothing() -> None:
    layers = TransformerLayers(settings(), 5).eval()
    x, noisy = torch.randn(1, 4, 5), torch.randn(1, 9, 5)
    noisy[:, :4] = x
    noisy[:, 4:] = torch.nan
    assert_close(layers(noisy, lengths=torch.tensor([4]))[0][:, :4], layers(x)[0])


def test_a_causal_encoder_sees_no_later_step_and_goes_step_by_step() -> None:
    layers = TransformerLayers(settings(bidirectional=False), 5).eval()
    x = torch.randn(2, 6, 5)
    output, changed = layers(x)[0], x.clone()
    changed[:, 4:] += 1
    assert_close(layers(changed)[0][:, :4], output[:, :4])
    assert not torch.allclose(layers(changed)[0][:, 4:], output[:, 4:], atol=1e-3)
    state, steps = None, []
    for t in range(6):
        step, state = layers.step(x[:, t], state)
        steps.append(step)
    assert_close(torch.stack(steps, dim=1), output)


def test_a_width_that_the_heads_do_not_divide() -> None:
    with pytest.raises(UserError) as error:
        TransformerLayers(settings(hidden_size=9), 5)
    assert str(error.value) == ("model.hidden_size=9 is not divisible by model.heads=2. Use model.hidden_size=8 or 10.")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("tagger")
    np.savez(folder / "gestures.npz", **gestures())
    return unrolled.train("tag", train=folder / "gestures.npz", out=folder / "run", set=SMALL, quiet=True)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("classifier")
    lines = "".join(
        f"{'good' if i % 2 else 'bad'}\ta {'fine' if i % 2 else 'dull'} film of {i} hours\n" for i in range(24)
    )
    (folder / "films.tsv").write_text(lines)
    return unrolled.train("classify", train=folder / "films.tsv", out=folder / "run", set=SMALL, quiet=True)


def test_a_tagger_equals_torch_and_padding_changes_nothing(tagger: Model) -> None:
    network = tagger.network.eval()
    assert isinstance(network, Tagger)
    inputs = [frames.astype(np.float32) for frames, _ in sequences(gestures(5, seed=8))]
    from unrolled.data.readers.tagged.frames import TaggedFrames

    batch = tagger.assets.collate([TaggedFrames(one) for one in inputs])
    scores = network(batch)
    assert isinstance(network.layer, TransformerLayers)
    assert batch.lengths is not None
    expected = network.scores(by_torch(network.layer, network.read(batch), batch.lengths, norm_first=True))
    for row, one in enumerate(inputs):
        assert_close(scores[row, : len(one)], expected[row, : len(one)])
        assert_close(network(tagger.assets.collate([TaggedFrames(one)]))[0], scores[row, : len(one)])


def test_a_classifier_pools_what_the_encoder_gives(classifier: Model) -> None:
    network = classifier.network.eval()
    assert isinstance(network, Classifier)
    assert isinstance(network.layer, TransformerLayers)
    texts = ["a fine film", "a dull film of many more hours", "fine"]
    alone = [classifier.predict(text).probabilities for text in texts]
    for one, other in zip(alone, classifier.predict(texts), strict=True):
        assert one == pytest.approx(other.probabilities, abs=1e-5)


@pytest.mark.parametrize("task", ["tagger", "classifier"])
def test_a_trace_shows_attention_and_no_gates(task: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model: Model = request.getfixturevalue(task)
    given = gestures()["frames"][:6].astype(np.float32) if task == "tagger" else "a fine film of six"
    trace = model.trace(given)
    (seen,) = trace.attention.values()
    steps = len(seen.rows)
    assert seen.weights.shape == (2, 2, steps, steps)
    assert_close(seen.weights.sum(-1), torch.ones(2, 2, steps))
    assert "attention" in trace.kinds
    assert "gates" not in trace.kinds
    assert trace.missing["gates"].startswith("A Transformer has no recurrent states")
    assert trace.gradients().shape == (len(trace.losses), steps)
    trace.save(tmp_path, only=["attention", "losses"])


@pytest.mark.parametrize("pool", ["last", "mean", "attention"])
def test_every_pooling_and_a_saved_model(pool: str, classifier: Model, tmp_path: Path) -> None:
    films = classifier.config.data.train  # type: ignore[attr-defined]
    changes = {**SMALL, "model.pool": pool, "model.bidirectional": False, "train.max_steps": 1}
    model = unrolled.train("classify", train=films, out=tmp_path / "run", set=changes, quiet=True)
    again = unrolled.load(tmp_path / "run")
    assert again.predict("a fine film").probabilities == model.predict("a fine film").probabilities
