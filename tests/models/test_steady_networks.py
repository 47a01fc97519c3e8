"""Networks whose steps have fixed shapes: a search with them finds what the usual one finds."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from tests.models.test_translator import END, SMALL, VARIANTS, Sizes, a_batch
from tests.tolerances import TOLERANCES
from unrolled.config import apply
from unrolled.models import LanguageModelSettings, language_model
from unrolled.models.translator import translator
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.search import Beam, BeamResult, Limits, Ranking, Sampling, beam_search, sample

CLOSE = TOLERANCES[torch.float32]
WRITERS = [name for name in VARIANTS if name != "stepwise"]
LANGUAGE: dict[str, dict[str, Any]] = {
    "lstm": {"num_layers": 2},
    "gru": {"cell": "gru", "learned_state": True},
    "chain": {"num_layers": 2, "last_size": 5},
    "feedforward": {"kind": "feedforward", "context": 4},
    "transformer": {"kind": "transformer", "context": 32, "blocks": 2, "heads": 2},
    "learned positions": {"kind": "transformer", "context": 32, "positions": "learned", "norm_first": False},
}


def a_translator(variant: str) -> Any:
    torch.manual_seed(len(variant))
    network: Any = translator(apply(TranslatorSettings(), {**SMALL, **VARIANTS[variant]}), Sizes(), END).eval()
    torch.nn.init.normal_(network.scores.weight)
    return network


def a_language_model(kind: str) -> Any:
    torch.manual_seed(len(kind))
    network: Any = language_model(
        LanguageModelSettings(hidden_size=8, embedding_size=6, **LANGUAGE[kind]), 13, 0
    ).eval()
    torch.nn.init.normal_(network.scores.weight)
    return network


def assert_alike(one: list[BeamResult], other: list[BeamResult]) -> None:
    """The same outputs, with numbers that differ by rounding alone."""
    for a, b in zip(one, other, strict=True):
        assert [(h.tokens, h.ended) for h in a.hypotheses] == [(h.tokens, h.ended) for h in b.hypotheses]
        for x, y in zip(a.hypotheses, b.hypotheses, strict=True):
            assert x.score == pytest.approx(y.score, rel=CLOSE, abs=CLOSE)
            if x.attention is not None and y.attention is not None:
                assert x.attention.shape == y.attention.shape
                torch.testing.assert_close(x.attention, y.attention, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("variant", WRITERS)
@torch.no_grad()
def test_translators(variant: str, attention: bool) -> None:
    network = a_translator(variant)
    if attention and not network.attends:
        pytest.skip("it has no attention")
    model = network.showing_attention() if attention else network
    memory = network.encode(a_batch([9, 4, 7, 1, 9], [1] * 5))
    limits = Limits([6, 12, 9, 20, 3], END, forbidden=[0])
    coverage = 0.3 if attention else 0.0
    found = [
        beam_search(
            model,
            5,
            limits,
            start=1,
            beam=Beam(4, 3, Ranking(coverage=coverage)),
            memory=memory,
            memory_mask=memory.mask,
            attention=attention,
            graph=graph,
        )
        for graph in ("off", "steady")
    ]
    assert_alike(*found)
    assert len(network.graphs) == 1


@pytest.mark.parametrize("kind", LANGUAGE)
def test_language_models(kind: str) -> None:
    network = a_language_model(kind)
    limits = Limits([20, 5, 30], 3, prefixes=[[4, 5], [], [7]])
    found = [beam_search(network, 3, limits, start=1, beam=Beam(4, 2), graph=graph) for graph in ("off", "steady")]
    assert_alike(*found)
    assert len(network.graphs) == 1


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, top_k=5, repetition_penalty=1.3)])
@pytest.mark.parametrize("kind", LANGUAGE)
def test_language_models_that_draw(kind: str, sampling: Sampling) -> None:
    network = a_language_model(kind)  # windows of 32 tokens are renewed at different times
    prompts = [[1], [2, 3, 4], list(range(12)) * 4, [5] * 31]
    limits = Limits([100, 40, 9, 70], 3, forbidden=[0])
    expected, found = (
        sample(network, prompts, limits, sampling=sampling, seeds=1, graph=graph) for graph in ("off", "steady")
    )
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected], rel=CLOSE)
    assert len(network.graphs) >= 1


def test_networks_in_training_have_none() -> None:
    assert a_language_model("lstm").train().graphs is None
    assert a_translator("plain").train().graphs is None


def test_copies_and_moved_weights_begin_anew() -> None:
    network = a_language_model("lstm")
    beam_search(network, 1, Limits(4, 3), start=1, graph="steady")
    assert len(network.graphs) == 1
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert len(other.graphs) == 0
    network.scores.weight = torch.nn.Parameter(network.scores.weight + 1)
    assert len(network.graphs) == 0


def test_changed_weights_are_seen() -> None:
    network = a_language_model("gru")
    search: dict[str, Any] = {"rows": 2, "limits": Limits(9, 3), "start": 1}
    beam_search(network, **search, graph="steady")
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn_like(weight))
    assert_alike(*(beam_search(network, **search, graph=graph) for graph in ("off", "steady")))
    assert len(network.graphs) == 1
