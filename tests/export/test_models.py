"""Exported models of every task agree with their network in onnxruntime, on ragged batches of many sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import unrolled
from unrolled.export.checking import TOLERANCE, largest_difference
from unrolled.export.graphs import plans_of
from unrolled.export.recording import record
from unrolled.export.writing import write_graph

STORED = Path(__file__).parent.parent / "compat" / "2026-11"
MODELS = {
    "caption": ["encode", "step"],
    "classify": ["whole"],
    "forecast-lags": ["whole", "step"],
    "generate-lstm": ["whole", "step"],
    "generate-transformer": ["whole", "step"],
    "recognize": ["whole", "features"],
    "tag-crf": ["whole"],
    "translate-luong": ["encode", "step"],
    "translate-stepwise": ["encode", "step"],
    "translate-transformer": ["encode", "step"],
}


@pytest.mark.parametrize("name", MODELS)
def test_graphs_agree_with_the_network(name: str) -> None:
    model = unrolled.load(STORED / f"{name}.safetensors")
    model.network.eval()
    plans = plans_of(model)
    assert [plan.name for plan in plans.graphs if plan.name in MODELS[name]] == MODELS[name]
    for plan in plans.graphs:
        arguments = plan.arguments()
        recorded = record(plan.network or model.network, plan.compute, arguments)
        graph = write_graph(recorded, arguments, plan.outputs, plan.name)
        for value in graph.graph.input:
            sizes = [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
            free = plan.free.get(value.name, {})
            assert {axis: size for axis, size in enumerate(sizes) if isinstance(size, str)} == free
        assert largest_difference(plan, graph.SerializeToString(), batches=15) <= TOLERANCE
