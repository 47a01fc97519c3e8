"""Graphs of classifiers and taggers, which read a whole sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.export.graphs.plan import GraphPlan, GraphPlans, leaves, normal, numbered, ragged, rebuilt, whole
from unrolled.model import Model
from unrolled.models.classifier import Classifier
from unrolled.models.encoder_layers import TransformerLayers
from unrolled.models.inputs import FrameInput, WordInput
from unrolled.models.recurrent_settings import state_from_torch, state_to_torch
from unrolled.models.tagger import Tagger
from unrolled.models.wide import LinearClassifier

NGRAMS = ("ngrams", "ngram_starts", "ngram_weights")
WIDE = ("wide_ngrams", "wide_starts", "wide_weights")
FREE: dict[str, dict[int, str]] = {
    "inputs": {0: "batch", 1: "time"},
    "lengths": {0: "batch"},
    "spellings": {0: "words", 1: "letters"},
    "spelling_lengths": {0: "words"},
    "spelt": {0: "batch", 1: "time"},
    "features": {0: "batch", 1: "time"},
    "ngrams": {0: "ngrams"},
    "ngram_starts": {0: "batch"},
    "ngram_weights": {0: "ngrams"},
    "wide_ngrams": {0: "wide_ngrams"},
    "wide_starts": {0: "batch"},
    "wide_weights": {0: "wide_ngrams"},
}


def classify_plans(model: Model) -> GraphPlans:
    network = model.network
    assert isinstance(network, (Classifier, LinearClassifier))
    return GraphPlans([_whole(network)])


def tag_plans(model: Model) -> GraphPlans:
    network = model.network
    assert isinstance(network, Tagger)
    graphs = [_whole(network)]
    if network.causal and not isinstance(network.layer, TransformerLayers):
        graphs.append(_step(network))
    if network.crf is None:
        return GraphPlans(graphs)
    crf: dict[str, Any] = {name: value.detach().tolist() for name, value in network.crf.named_parameters()}
    if network.forbidden is not None:
        names = ("forbidden", "forbidden_first", "forbidden_last")
        crf |= {name: mask.tolist() for name, mask in zip(names, network.forbidden, strict=True)}
    return GraphPlans(graphs, {"crf": crf})


def _names(network: Classifier | LinearClassifier | Tagger) -> list[str]:
    """The inputs of a network, as a batch has them."""
    if isinstance(network, LinearClassifier):
        return [*WIDE]
    names = ["inputs", "lengths"]
    if isinstance(network.input, WordInput) and network.input.letters is not None:
        names += ["spellings", "spelling_lengths", "spelt"]
    if isinstance(network, Classifier) and network.ngrams is not None:
        names += NGRAMS
    if isinstance(network, Classifier) and network.wide is not None:
        names += WIDE
    if isinstance(network, Tagger) and len(network.features):
        names.append("features")
    return names


def _batch(names: list[str], tensors: tuple[Tensor, ...]) -> Batch:
    given = dict(zip(names, tensors, strict=True))
    return Batch(given.get("inputs"), given.get("inputs"), given.get("lengths"), more=given)


def _whole(network: Classifier | LinearClassifier | Tagger) -> GraphPlan:
    names = _names(network)

    def compute(*tensors: Tensor) -> Tensor:
        scores: Tensor = network(_batch(names, tensors))
        return scores

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        drawn = _drawn(network, sizes, generator)
        return [drawn[name] for name in names]

    return GraphPlan("whole", compute, draw, names, ["scores"], {name: FREE[name] for name in names})


def _step(network: Tagger) -> GraphPlan:
    """A tagger of one direction, some steps further."""
    names = _names(network)
    like = leaves(state_from_torch(network.layer.initial_state(2)))[0]  # type: ignore[operator]
    states = numbered("state", len(like))

    def compute(*tensors: Tensor) -> tuple[Tensor, ...]:
        own = tensors[len(names) :]
        batch = _batch(names, tensors[: len(names)])
        hidden = state_to_torch(rebuilt(like, list(own), []))
        output, final = network.layer(network.read(batch), hidden, lengths=batch.lengths)
        return (network.scores(output), *leaves(state_from_torch(final))[0])

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        drawn = _drawn(network, sizes, generator)
        return [*(drawn[name] for name in names), *(normal(generator, sizes["batch"], *s.shape[1:]) for s in like)]

    free = {name: FREE[name] for name in names} | {name: {0: "batch"} for name in states}
    return GraphPlan("step", compute, draw, [*names, *states], ["scores", *numbered("new_state", len(like))], free)


def _drawn(
    network: Classifier | LinearClassifier | Tagger, sizes: Mapping[str, int], generator: torch.Generator
) -> dict[str, Tensor]:
    """Random inputs of all kinds that a network can have."""
    if isinstance(network, LinearClassifier):
        return _bags(WIDE, network.wide.places.numel(), sizes, generator)
    batch, steps = sizes["batch"], sizes["time"]
    drawn = {"lengths": ragged(steps, generator, batch)}
    if isinstance(network.input, FrameInput):
        drawn["inputs"] = normal(generator, batch, steps, *network.input.shape)
    else:
        table = network.input.words if isinstance(network.input, WordInput) else network.input.embedding
        drawn["inputs"] = whole(table.num_embeddings, generator, batch, steps)
    if isinstance(network.input, WordInput) and network.input.letters is not None:
        letters = network.input.letters.num_embeddings
        drawn["spellings"] = whole(letters, generator, sizes["words"], sizes["letters"])
        drawn["spelling_lengths"] = ragged(sizes["letters"], generator, sizes["words"])
        drawn["spelt"] = whole(sizes["words"], generator, batch, steps)
    if isinstance(network, Tagger) and len(network.features):
        columns = [
            whole(table.num_embeddings, generator, batch, steps)
            for table in network.features
            if isinstance(table, nn.Embedding)
        ]
        drawn["features"] = torch.stack(columns, dim=-1)
    if isinstance(network, Classifier) and network.ngrams is not None:
        drawn |= _bags(NGRAMS, network.ngrams.num_embeddings, sizes, generator)
    if isinstance(network, Classifier) and network.wide is not None:
        drawn |= _bags(WIDE, network.wide.places.numel(), sizes, generator)
    return drawn


def _bags(
    names: tuple[str, ...], buckets: int, sizes: Mapping[str, int], generator: torch.Generator
) -> dict[str, Tensor]:
    """Random n-grams end to end, where each row's begin, and their weights."""
    count = sizes[names[0]]
    starts = whole(count, generator, sizes["batch"]).sort().values
    starts[0] = 0
    return dict(
        zip(names, (whole(buckets, generator, count), starts, torch.rand(count, generator=generator)), strict=True)
    )
