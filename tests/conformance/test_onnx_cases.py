"""The onnx package's own generated RNN, LSTM and GRU node cases, against the outputs stored with them.

They test little: most have one constant as all weights, so that gates and rows in any order give the same numbers,
and many have a single step. What they are good for is ONNX's layout, `layout=1` (batch first) above all, which
onnxruntime does not implement. `onnx.reference` is not used as an oracle anywhere: it is wrong with sequence lengths.
The tests with random weights are in `test_onnxruntime`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.backend.test.case import node as generated

from tests.conformance.test_onnxruntime import INPUTS, Node, engines, ours
from tests.tolerances import assert_close

Outputs = dict[str, NDArray[np.generic]]


def stored_cases() -> Iterator[tuple[str, Node, Outputs]]:
    """Name, node and outputs of each case.

    onnx's `collect_testcases` makes the cases of every operator, which takes many seconds: only three are imported.
    """
    for name in INPUTS:
        importlib.import_module(f"{generated.__name__}.{name.lower()}")
    for case in generated._NodeTestCases:
        assert case.model is not None
        assert case.data_sets is not None
        made = case.model.graph.node[0]
        if made.op_type not in INPUTS or len(case.model.graph.node) != 1:
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in made.attribute}
        attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
        for inputs, outputs in case.data_sets:
            given = dict(zip(filter(None, made.input), inputs, strict=True))
            expected = dict(zip(filter(None, made.output), outputs, strict=True))
            assert set(given) <= set(INPUTS[made.op_type])
            yield case.name, Node(made.op_type, given, attributes), expected


CASES = list(stored_cases())
ON_ENGINES: list[Any] = [
    pytest.param(node, expected, engine, id=f"{name}-{engine}")
    for name, node, expected in CASES
    for engine in engines(node)
]


@pytest.mark.parametrize(("node", "expected", "engine"), ON_ENGINES)
def test_stored_outputs(node: Node, expected: Outputs, engine: str) -> None:
    known = {"hidden_size", "direction", "layout", "linear_before_reset"}
    assert set(node.attributes) <= known, "the case asks for something that is not mapped"
    actual = ours(node, engine)
    for name, value in expected.items():
        assert_close(actual[name], value, name)


def test_every_kind_of_case_is_there() -> None:
    """So that a change in how onnx collects its cases does not leave none."""
    kinds = {(node.op, node.direction, node.batch_first) for _, node, _ in CASES}
    assert kinds >= {
        (op, direction, layout)
        for op in INPUTS
        for direction, layout in (("forward", False), ("reverse", False), ("bidirectional", False), ("forward", True))
    }
    assert any("P" in node.inputs for _, node, _ in CASES)
