"""Graphs of forecasters: series from their beginning, and rows that continue them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from unrolled.export.graphs.plan import GraphPlan, GraphPlans, leaves, normal, numbered, ragged, rebuilt, whole
from unrolled.model import Model
from unrolled.models.forecaster import Forecaster


def forecast_plans(model: Model) -> GraphPlans:
    network = model.network
    assert isinstance(network, Forecaster)
    layout = network.layout

    def rows(sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
        batch, steps = sizes["batch"], sizes["time"]
        numbers = normal(generator, batch, steps, layout.features)
        columns = [whole(values, generator, batch, steps, 1).float() for values in layout.categories]
        return torch.cat([numbers, *columns], dim=-1)

    with torch.no_grad():
        like = network(rows({"batch": 2, "time": 3}, torch.Generator().manual_seed(0)))[1]
    states = numbered("state", len(leaves(like)[0]))
    new = [f"new_{name}" for name in states]
    free = {"inputs": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}

    def from_beginning(x: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        estimates, state = network(x, None, lengths=lengths)
        return (estimates, *leaves(state)[0])

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        return [rows(sizes, generator), ragged(sizes["time"], generator, sizes["batch"])]

    graphs = [GraphPlan("whole", from_beginning, draw, ["inputs", "lengths"], ["estimates", *new], free)]
    if not network.causal:
        return GraphPlans(graphs)

    def further(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        estimates, left = network(x, rebuilt(like, list(state), []))
        return (estimates, *leaves(left)[0])

    def draw_further(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        with torch.no_grad():
            state = network(rows(sizes, generator))[1]
        return [rows(sizes, generator), *leaves(state)[0]]

    carried = {"inputs": free["inputs"], **{name: {0: "batch"} for name in states}}
    graphs.append(GraphPlan("step", further, draw_further, ["inputs", *states], ["estimates", *new], carried))
    return GraphPlans(graphs)
