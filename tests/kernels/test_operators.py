"""Every torch operator of the package passes torch's own checks; a new one without a case here fails."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import unrolled.kernels
from tests.kernels.test_attention import USUAL
from tests.kernels.test_attention import cast as cast_decoder
from tests.kernels.test_attention import make as make_decoder
from tests.kernels.test_native import small
from unrolled.kernels import ENGINES
from unrolled.kernels.ctc.reference import CTCJob
from unrolled.kernels.native_operator import NativeOperator
from unrolled.nn.crf_partition import ChainInputs, chain

HERE = Path(__file__).parent
# operators of a GPU: the test file that checks them on a simulated one
ON_GPU = {
    "cuda_recurrence": "test_cuda_simulated.py",
    "cuda_attention": "test_attention_cuda.py",
    "cuda_ctc": "test_ctc_cuda.py",
}
Case = tuple[NativeOperator[Any, Any], tuple[Any, ...]]


def recurrence(**changes: Any) -> Callable[[], Case]:
    def case() -> Case:
        from unrolled.kernels.recurrence import native, native_ops

        return native_ops.recurrence, native.operator_inputs(small(**changes))

    return case


def attention() -> Case:
    from unrolled.kernels.attention import native, native_ops

    return native_ops.attention, native.operator_inputs(cast_decoder(make_decoder(USUAL), torch.float32)[0])


def ctc() -> Case:
    from unrolled.kernels.ctc import native_ops

    log_probs = torch.randn(2, 12, 5).log_softmax(-1).requires_grad_()
    lengths = torch.tensor([12, 9]), torch.tensor([1, 2])
    return native_ops.ctc, CTCJob(log_probs, torch.tensor([1, 2, 2]), torch.tensor([0, 1]), *lengths, 0)


def linear() -> Case:
    from unrolled.kernels.vocabulary import native_ops

    # 16: rows of other sizes have padding, which is never written, and the checks compare all of a saved buffer
    x, weight, bias = (part.requires_grad_() for part in (torch.randn(6, 4), torch.randn(16, 4), torch.randn(16)))
    return native_ops.linear_operator, native_ops.LinearInputs(x, weight, bias, torch.randint(16, (6,)), 0.1, False)


def crf() -> Case:
    shapes = ((3, 5, 4), (4, 4), (4,), (4,))
    emissions, transitions, start, end = (torch.randn(shape, requires_grad=True) for shape in shapes)
    return chain, ChainInputs(emissions, transitions, start, end, torch.tensor([5, 2, 0]))


CASES: dict[str, list[Callable[[], Case]]] = {"crf_log_partition": [crf]}
if "native" in ENGINES:
    CASES |= {
        "recurrence": [recurrence(), recurrence(norm=True, time_major=True), recurrence(kind="gru", resets="learned")],
        "attention": [attention],
        "ctc": [ctc],
        "linear_cross_entropy": [linear],
    }


def operators() -> set[str]:
    """All operators in the package's namespace."""
    for package in (unrolled.kernels, unrolled.nn):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "native" in ENGINES or "native" not in module.name:
                importlib.import_module(module.name)
    names = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("unrolled::") for name in names if name.startswith("unrolled::")}


def test_every_operator_has_a_case() -> None:
    checked = [*CASES, *ON_GPU]
    assert operators() == {*checked, *(f"{name}_backward" for name in checked)}
    for name, file in ON_GPU.items():
        assert "torch.library.opcheck(" in (HERE / file).read_text(), name


@pytest.mark.parametrize(("name", "number"), [(name, i) for name, cases in CASES.items() for i in range(len(cases))])
def test_the_operator_is_what_it_says_it_is(name: str, number: int) -> None:
    operator, inputs = CASES[name][number]()
    assert operator.kernel.name == name
    torch.library.opcheck(operator.forward, (*inputs, True))
    torch.library.opcheck(operator.forward, (*inputs, False), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("name", list(CASES))
def test_its_backward_pass_too(name: str) -> None:
    operator, inputs = CASES[name][0]()
    results = [result.detach() for result in operator.forward(*inputs, True)]
    gradients = [torch.randn_like(result) for result in results[:-1]]
    plain = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    needed = [value is not None for value in inputs[: operator._differentiable]]
    arguments = (*gradients, None, *results, *plain, needed)
    torch.library.opcheck(operator.backward, arguments, test_utils=("test_schema", "test_faketensor"))
