"""Graphs of captioners."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.export.graphs.plan import GraphPlans, normal
from unrolled.export.graphs.writer import writer_plans
from unrolled.model import Model
from unrolled.models.captioner import Captioner, TransformerCaptioner


def caption_plans(model: Model) -> GraphPlans:
    network = model.network
    assert isinstance(network, (Captioner, TransformerCaptioner))
    shape = network.read.shape
    names = (["inputs"] if shape.sizes else []) + (["vectors"] if shape.vector else [])

    def batch_of(*tensors: Tensor) -> Batch:
        given = dict(zip(names, tensors, strict=True))
        first = tensors[0]
        return Batch(given.get("inputs", first), first, more=given)

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        drawn = {
            "inputs": normal(generator, sizes["batch"], *shape.sizes),
            "vectors": normal(generator, sizes["batch"], shape.vector or 0),
        }
        return [drawn[name] for name in names]

    free = {name: {0: "batch"} for name in names}
    grid = None if network.grid is None else list(network.grid)
    return GraphPlans(
        writer_plans(network, names, batch_of, draw, free, network.embedding.num_embeddings), {"grid": grid}
    )
