"""Multi-dimensional LSTMs: their equations written out, the fast engine against the loop over pixels, padding."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.tolerances import assert_close
from unrolled import UserError
from unrolled.nn import MDLSTM

Array = NDArray[np.float64]
CASES: list[dict[str, Any]] = [{}, {"peephole": True}, {"form": "parallel"}, {"form": "parallel", "kernel_size": 5}]
CASES_NAMED = pytest.mark.parametrize("case", CASES, ids=["diagonal", "peephole", "parallel", "five"])


def made(case: dict[str, Any], engine: str = "sweeps") -> MDLSTM:
    torch.manual_seed(0)
    return MDLSTM(3, 2, **case, engine=engine).double()


def sigma(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def corner_by_equations(layer: MDLSTM, x: Array, number: int, step_w: int, step_r: int) -> Array:
    """One direction of Graves & Schmidhuber's layer, pixel by pixel, backwards from the pixel that is asked for."""
    weights = {name: value.detach().numpy()[number] for name, value in layer.named_parameters()}
    names = ("i", "w", "r", "g", "o")
    W = dict(zip(names, weights["weight_ih"].reshape(5, 2, 3), strict=True))
    U = dict(zip(names, weights["weight_hh"][0].reshape(5, 2, 2), strict=True))
    V = dict(zip(names, weights["weight_hh"][1].reshape(5, 2, 2), strict=True))
    b = dict(zip(names, weights["bias"].reshape(5, 2), strict=True))
    p = dict(zip("iwro", weights.get("weight_peephole", np.zeros((4, 2))), strict=True))

    @functools.cache
    def pixel(w: int, r: int) -> tuple[Array, Array]:
        if not (0 <= w < x.shape[0] and 0 <= r < x.shape[1]):
            return np.zeros(2), np.zeros(2)
        h_w, c_w = pixel(w - step_w, r)
        h_r, c_r = pixel(w, r - step_r)
        a = {name: W[name] @ x[w, r] + U[name] @ h_w + V[name] @ h_r + b[name] for name in names}
        i = sigma(a["i"] + p["i"] * (c_w + c_r))
        c = sigma(a["w"] + p["w"] * c_w) * c_w + sigma(a["r"] + p["r"] * c_r) * c_r + i * np.tanh(a["g"])
        return sigma(a["o"] + p["o"] * c) * np.tanh(c), c

    return np.array([[pixel(w, r)[0] for r in range(x.shape[1])] for w in range(x.shape[0])])


def side_by_equations(layer: MDLSTM, x: Array, number: int, step_w: int, step_r: int) -> Array:
    """One direction of Stollenga's layer."""
    W, U, b = (getattr(layer, name).detach().numpy()[number] for name in ("weight_ih", "weight_hh", "bias"))
    middle = layer.kernel_size // 2

    @functools.cache
    def pixel(w: int, r: int) -> tuple[Array, Array]:
        if not (0 <= w < x.shape[0] and 0 <= r < x.shape[1]):
            return np.zeros(2), np.zeros(2)
        a = b.copy()
        for tap in range(-middle, middle + 1):
            u, v = (w, r + tap) if step_w else (w + tap, r)
            if 0 <= u < x.shape[0] and 0 <= v < x.shape[1]:
                a += W[tap + middle] @ x[u, v]
                a += U[tap + middle] @ pixel(u - step_w, v - step_r)[0]
        i, f, g, o = a.reshape(4, 2)
        c = sigma(f) * pixel(w - step_w, r - step_r)[1] + sigma(i) * np.tanh(g)
        return sigma(o) * np.tanh(c), c

    return np.array([[pixel(w, r)[0] for r in range(x.shape[1])] for w in range(x.shape[0])])


@CASES_NAMED
@pytest.mark.parametrize("engine", ["sweeps", "reference"])
def test_it_computes_its_equations(case: dict[str, Any], engine: str) -> None:
    layer, x = made(case, engine), torch.randn(2, 4, 3, 3, dtype=torch.float64)
    corners = ((1, 1), (-1, 1), (1, -1), (-1, -1))
    sides = ((1, 0), (-1, 0), (0, 1), (0, -1))
    written, ways = (side_by_equations, sides) if layer.form == "parallel" else (corner_by_equations, corners)
    for row in range(2):
        parts = [written(layer, x[row].numpy(), number, *way) for number, way in enumerate(ways)]
        assert_close(layer(x)[row], np.concatenate(parts, axis=-1))


def outcome(layer: MDLSTM, x: Tensor, lengths: list[int]) -> dict[str, Tensor]:
    """The output, and the gradients of a sum with random weights."""
    x = x.clone().requires_grad_()
    output = layer(x, lengths)
    generator = torch.Generator().manual_seed(1)
    (output * torch.randn(output.shape, dtype=output.dtype, generator=generator)).sum().backward()
    assert x.grad is not None
    gradients = {name: value.grad for name, value in layer.named_parameters() if value.grad is not None}
    return {"output": output, "x": x.grad, **gradients}


@CASES_NAMED
@pytest.mark.parametrize("size", [(1, 1), (5, 1), (1, 4), (2, 7), (6, 3)])
def test_sweeps_equal_the_loop_over_pixels(case: dict[str, Any], size: tuple[int, int]) -> None:
    x, lengths = torch.randn(3, *size, 3, dtype=torch.float64), [size[0], size[0] - 1, size[0] // 2]
    fast, slow = (outcome(made(case, engine), x, lengths) for engine in ("sweeps", "reference"))
    assert fast.keys() == slow.keys()
    for name, value in fast.items():
        assert_close(value, slow[name], name)


@CASES_NAMED
def test_padding_changes_nothing(case: dict[str, Any]) -> None:
    """A plane alone and in a batch gives the same numbers; NaN beyond its end reaches no gradient."""
    layer, x = made(case), torch.randn(2, 5, 3, 3, dtype=torch.float64)
    alone = outcome(layer, x[1:, :3], [3])["output"][0]
    x[1, 3:] = torch.nan
    together = outcome(made(case), x, [5, 3])
    assert_close(together["output"][1, :3], alone)
    assert not together["output"][1, 3:].any()
    assert all(torch.isfinite(value).all() for value in together.values())


@CASES_NAMED
def test_gradients_are_the_differences(case: dict[str, Any]) -> None:
    layer = made(case)
    x = torch.randn(1, 3, 2, 3, dtype=torch.float64, requires_grad=True)
    parameters = tuple(layer.parameters())
    assert torch.autograd.gradcheck(lambda *values: layer(values[0], [2]), (x, *parameters), fast_mode=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "diagnal"}, "Unknown form 'diagnal'. Did you mean 'diagonal'? Choices: diagonal, parallel."),
        ({"engine": "fast"}, "Unknown engine 'fast'. Choices: reference, sweeps."),
        (
            {"form": "parallel", "peephole": True},
            "peephole=True is for form='diagonal'. The parallel form has no peepholes.",
        ),
        ({"kernel_size": 4}, "kernel_size=4 is not odd. Use 1, 3, 5 or more: it has a middle."),
        ({"hidden_size": 0}, "hidden_size=0 is not above 0. Use 1 or more."),
    ],
)
def test_messages(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        MDLSTM(**{"input_size": 3, "hidden_size": 2, **options})
    assert str(error.value) == message


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(UserError) as error:
        MDLSTM(3, 2)(torch.zeros(2, 5, 3))
    assert str(error.value) == (
        "The input has shape (2, 5, 3). Expected (batch, columns, rows, 3): four dimensions, features last."
    )
