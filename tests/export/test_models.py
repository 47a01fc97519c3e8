"""Exported models of every task agree with their network in onnxruntime, on ragged batches of many sizes."""

from __future__ import annotations

import onnx
import pytest

from tests.runtime.folders import folder_of, model_of
from unrolled.export.checking import TOLERANCE, largest_difference
from unrolled.export.graphs import plans_of

MODELS = {
    "caption": ["encode", "step"],
    "classify": ["whole"],
    "classify-linear": ["whole"],
    "classify-wide": ["whole"],
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
    model, folder = model_of(name), folder_of(name)
    model.network.eval()
    plans = plans_of(model)
    assert [plan.name for plan in plans.graphs if plan.name in MODELS[name]] == MODELS[name]
    for plan in plans.graphs:
        graph = onnx.load(folder / f"{plan.name}.onnx")
        for value in graph.graph.input:
            sizes = [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
            free = plan.free.get(value.name, {})
            assert {axis: size for axis, size in enumerate(sizes) if isinstance(size, str)} == free
        assert largest_difference(plan, graph.SerializeToString(), batches=15) <= TOLERANCE
