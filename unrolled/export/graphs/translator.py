"""Graphs of translators."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.export.graphs.plan import GraphPlans, ragged, whole
from unrolled.export.graphs.writer import writer_plans
from unrolled.model import Model
from unrolled.models.stepwise import Stepwise


def translate_plans(model: Model) -> GraphPlans:
    network = model.network
    source, target = model.assets.source_size, model.assets.target_size
    end = network.end if isinstance(network, Stepwise) else None

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        ids = whole(source, generator, sizes["batch"], sizes["time"])
        return [ids, ragged(sizes["time"], generator, sizes["batch"])]

    free = {"inputs": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}
    graphs = writer_plans(
        network,  # type: ignore[arg-type]
        ["inputs", "lengths"],
        lambda ids, lengths: Batch(ids, ids, lengths),
        draw,
        free,
        target,
    )
    return GraphPlans(graphs, {} if end is None else {"reads_its_source": True})
