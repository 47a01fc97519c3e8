"""Graphs of language models: a text from its beginning, and one token further."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.export.graphs.plan import GraphPlan, GraphPlans, leaves, numbered, ragged, rebuilt, whole
from unrolled.model import Model
from unrolled.models import LanguageModel
from unrolled.models.language_transformer import TransformerLM
from unrolled.nn.transformer import TransformerState


def generate_plans(model: Model) -> GraphPlans:
    network = model.network
    assert isinstance(network, LanguageModel)
    if isinstance(network, TransformerLM):
        if network.positions.kind == "fraction":
            raise UserError(
                "A Transformer with model.positions=fraction reads its text anew for every token: it has no step.",
                "Train with model.positions=sinusoidal.",
            )
        return GraphPlans([_cached(network, fresh=True), _cached(network, fresh=False)], {"context": network.context})
    return GraphPlans([_whole(network), _step(network)])


def _state_of(network: LanguageModel, rows: int) -> Any:
    """The state after one token."""
    with torch.no_grad():
        return network(torch.zeros(rows, 1, dtype=torch.int64))[1]


def _whole(network: LanguageModel) -> GraphPlan:
    """Texts of different lengths from their beginning, and the state after each."""
    count = len(leaves(_state_of(network, 2))[0])

    def compute(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        scores, state = network(tokens, None, lengths=lengths)
        return (scores.log_softmax(-1), *leaves(state)[0])

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        tokens = whole(network.vocabulary_size, generator, sizes["batch"], sizes["time"])
        return [tokens, ragged(sizes["time"], generator, sizes["batch"])]

    free = {"tokens": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}
    outputs = ["log_probs", *numbered("new_state", count)]
    return GraphPlan("whole", compute, draw, ["tokens", "lengths"], outputs, free)


def _step(network: LanguageModel) -> GraphPlan:
    like = _state_of(network, 2)
    count = len(leaves(like)[0])

    def compute(tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        step = network.step(tokens, rebuilt(like, list(state), []))
        return (step.log_probs, *leaves(step.state)[0])

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        tokens = whole(network.vocabulary_size, generator, sizes["batch"], 3)
        with torch.no_grad():
            state = network(tokens[:, 1:])[1]
        return [tokens[:, 0], *leaves(state)[0]]

    states = numbered("state", count)
    free = {"tokens": {0: "batch"}, **{name: {0: "batch"} for name in states}}
    return GraphPlan("step", compute, draw, ["tokens", *states], ["log_probs", *numbered("new_state", count)], free)


def _cached(network: TransformerLM, fresh: bool) -> GraphPlan:
    """Tokens after those whose keys and values are given; of a fresh text there are none."""
    layers = network.encoder.num_layers
    heads = network.encoder._each()[0].self_attn

    def compute(tokens: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        ids = tokens if fresh else tokens[:, None]
        before = network.encoder.start(ids.shape[0]).past if fresh else tuple(zip(past[::2], past[1::2], strict=True))
        x = network.positions(network.embedding(ids) * network.scale, before[0][0].shape[2])
        output, state = network.encoder.extend(x, TransformerState(before))
        log_probs = network.scores(output).float().log_softmax(-1)
        return (log_probs if fresh else log_probs[:, 0], *leaves(state.past)[0])

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        batch = sizes["batch"]
        if fresh:
            return [whole(network.vocabulary_size, generator, batch, min(sizes["time"], network.context))]
        past = min(sizes["past"], network.context - 1)
        shape = (batch, heads.num_heads, past, heads.size // heads.num_heads)
        kept = [torch.randn(shape, generator=generator) for _ in range(2 * layers)]
        return [whole(network.vocabulary_size, generator, batch), *kept]

    states = [] if fresh else numbered("state", 2 * layers)
    free = {"tokens": {0: "batch", 1: "time"} if fresh else {0: "batch"}}
    free |= {name: {0: "batch", 2: "past"} for name in states}
    outputs = ["log_probs", *numbered("new_state", 2 * layers)]
    return GraphPlan("whole" if fresh else "step", compute, draw, ["tokens", *states], outputs, free)
