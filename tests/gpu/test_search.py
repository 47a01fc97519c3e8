"""Searches in CUDA graphs: equal to those without, in several calls, and with weights that changed in between."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models.test_steady_networks import LANGUAGE, WRITERS, a_language_model, a_translator
from tests.models.test_translator import END, a_batch
from unrolled.data import Batch
from unrolled.search import Beam, BeamResult, Limits, Ranking, Sampling, beam_search, generate, sample

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
CLOSE = 1e-4  # sums on both sides are of float32, in another order


def batches() -> list[Batch]:
    """Two of one shape, and one of another."""
    return [a_batch(lengths, [1] * len(lengths)) for lengths in ([9, 4, 7, 1, 9], [3, 9, 9, 2, 8], [17, 3])]


def searched(network: Any, batch: Batch, graph: str, *, attention: bool = False) -> list[BeamResult]:
    model = network.showing_attention() if attention else network
    with torch.no_grad():
        memory = network.encode(batch.to(network.device))
    return beam_search(
        model,
        len(batch.inputs),
        Limits(20, END, forbidden=[0]),
        start=1,
        beam=Beam(4, 3, Ranking(coverage=0.2 if attention else 0.0)),
        memory=memory,
        memory_mask=memory.mask,
        attention=attention,
        graph=graph,  # type: ignore[arg-type]
    )


def assert_alike(one: list[BeamResult], other: list[BeamResult], close: float = CLOSE) -> None:
    for a, b in zip(one, other, strict=True):
        assert [(h.tokens, h.ended) for h in a.hypotheses] == [(h.tokens, h.ended) for h in b.hypotheses]
        for x, y in zip(a.hypotheses, b.hypotheses, strict=True):
            assert x.score == pytest.approx(y.score, rel=close, abs=close)
            if x.attention is not None and y.attention is not None:
                torch.testing.assert_close(x.attention.cpu(), y.attention.cpu(), rtol=0, atol=close)


def recorded(network: Any) -> int:
    """The number of searches that are kept; each must have its graph."""
    for search in network.graphs._kept.values():
        assert search.step._graph is not None
    return len(network.graphs)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("variant", WRITERS)
def test_translators(variant: str, attention: bool) -> None:
    network = a_translator(variant).cuda()
    if attention and not network.attends:
        pytest.skip("it has no attention")
    for batch in batches():
        assert_alike(
            searched(network, batch, "off", attention=attention), searched(network, batch, "auto", attention=attention)
        )
    assert recorded(network) == 2  # of two shapes


@pytest.mark.parametrize("variant", ["more layers below", "gru to lstm", "transformer"])
def test_cpu_and_gpu_agree(variant: str) -> None:
    network = a_translator(variant)
    here = searched(network, batch := batches()[0], "off")
    assert_alike(here, searched(network.cuda(), batch, "auto"))


@pytest.mark.parametrize("variant", ["more layers below", "transformer", "plain"])
def test_weights_changed_in_place_are_seen(variant: str) -> None:
    network, batch = a_translator(variant).cuda(), batches()[0]
    first = searched(network, batch, "auto")
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(-1.5)
    second = searched(network, batch, "auto")
    assert_alike(searched(network, batch, "off"), second)
    assert [h.score for h in first[0].hypotheses] != [h.score for h in second[0].hypotheses]
    assert recorded(network) == 1


@pytest.mark.parametrize("variant", ["more layers below", "gru to lstm", "transformer", "plain"])
def test_bf16(variant: str) -> None:
    """The same precision gives the same outputs; weights that change between two blocks of autocast are seen."""
    network, batch = a_translator(variant).cuda(), batches()[0]
    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            one, other = (searched(network, batch, graph) for graph in ("off", "auto"))
        same = sum(a.best.tokens == b.best.tokens for a, b in zip(one, other, strict=True))
        assert same >= len(one) - 1
        for a, b in zip(one, other, strict=True):
            assert a.best.score == pytest.approx(b.best.score, rel=0.03, abs=0.03)
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(0.7)
    assert recorded(network) == 1


@pytest.mark.parametrize("kind", LANGUAGE)
def test_language_models(kind: str) -> None:
    network = a_language_model(kind).cuda()
    limits = Limits([20, 5, 30], 3, prefixes=[[4, 5], [], [7]])
    for _ in range(2):
        one, other = (
            beam_search(network, 3, limits, start=1, beam=Beam(4, 2), graph=graph) for graph in ("off", "auto")
        )
        assert_alike(one, other)
    assert recorded(network) == 1


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 5, 0.9, 0.01, 1.3), Sampling(temperature=0)])
@pytest.mark.parametrize("kind", LANGUAGE)
def test_drawing(kind: str, sampling: Sampling) -> None:
    """Most rows have the same tokens: a number on the border between two tokens may fall on either side."""
    network = a_language_model(kind).cuda()
    prompts = [[1], [2, 3, 4], list(range(12)) * 4, [5] * 31] * 4
    limits = Limits([100, 40, 9, 70] * 4, 3, forbidden=[0])
    for seed in (1, 100):
        one, other = (
            sample(network, prompts, limits, sampling=sampling, seeds=seed, graph=graph) for graph in ("off", "auto")
        )
        same = sum(a.tokens == b.tokens for a, b in zip(one, other, strict=True))
        assert same >= 0.9 * len(prompts)
    assert recorded(network) >= 1


def test_a_stream_comes_token_by_token() -> None:
    network = a_language_model("lstm").cuda()
    written = []
    for graph in ("off", "auto"):
        steps = generate(network, [[1]], Limits(50), seeds=3, graph=graph)
        written.append([token.id for step in steps for token in step])
    assert len(written[1]) == 50
    assert written[0] == written[1]


def test_a_stream_left_early_gives_its_buffers_back() -> None:
    network = a_language_model("gru").cuda()
    for _ in range(3):
        steps = generate(network, [[1]], Limits(500), seeds=3)
        for _ in range(7):
            next(steps)
        steps.close()  # type: ignore[attr-defined]  # a generator
    assert recorded(network) == 1


def test_nan_is_an_error() -> None:
    network = a_translator("plain").cuda()
    with torch.no_grad():
        network.scores.bias.fill_(torch.nan)
    with pytest.raises(Exception, match="The model's log-probabilities for token 1 of row 0 contain NaN"):
        searched(network, batches()[0], "auto")
    language = a_language_model("lstm").cuda()
    with torch.no_grad():
        language.scores.bias.fill_(torch.nan)
    with pytest.raises(Exception, match=r"The model's log-probabilities for token 1 after prompts\[0\] contain NaN"):
        sample(language, [[1]], Limits(5))
