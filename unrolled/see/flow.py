"""Gradient flow: the Jacobian of each step, and its share of the weights' gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unrolled.cells.base import State, Step
from unrolled.see.trace import ModelTrace

ITERATIONS = 200
CLOSE = 1e-5  # relative change of a singular value at which the iteration ends


def largest_singular_values(trace: ModelTrace, layer: str | None = None, steps: Sequence[int] | None = None) -> Tensor:
    """σ_max of ∂state_t/∂state_{t-1} at every step of a layer, (T,): above 1 a step can amplify gradients.

    The state is everything that a step passes on: [h; c] of an LSTM. Power iteration on JᵀJ, all steps at once.
    `steps` selects steps; default: all.
    """
    layer = trace.layers[0] if layer is None else layer
    step, entering = one_step(trace, layer, steps)
    sizes = [part.shape[-1] for part in entering]
    with torch.enable_grad():
        start = torch.cat(entering, dim=-1).requires_grad_()  # (T, all states)
        after = torch.cat(step(tuple(torch.split(start, sizes, dim=-1))), dim=-1)
        weights = torch.zeros_like(after).requires_grad_()
        (back,) = torch.autograd.grad(after, start, weights, create_graph=True)  # Jᵀ w, linear in w: its gradient is J
    vector = torch.ones_like(start) + torch.linspace(0, 1, start.shape[-1], dtype=start.dtype, device=start.device)
    vector = vector / vector.norm(dim=-1, keepdim=True)
    values = start.new_zeros(len(start))
    for _ in range(ITERATIONS):
        (pushed,) = torch.autograd.grad(back, weights, vector, retain_graph=True)  # J v
        new: Tensor = torch.linalg.vector_norm(pushed, dim=-1)
        (vector,) = torch.autograd.grad(after, start, pushed, retain_graph=True)  # Jᵀ J v
        vector = vector / vector.norm(dim=-1, keepdim=True).clamp(min=1e-30)
        if bool(((new - values).abs() <= CLOSE * new).all()):
            return new.detach()
        values = new
    return values.detach()


def one_step(
    trace: ModelTrace, layer: str, steps: Sequence[int] | None = None
) -> tuple[Callable[[State], State], State]:
    """A layer's step as a function of its input state, batched over `steps`, and these input states."""
    part, scan = trace.part_of(layer), trace.scans[layer]
    cell_of, parameters = part.trace.cells[layer.rpartition(".")[2]]
    cell = cell_of({name: value.detach() for name, value in parameters.items()})
    kept = slice(None) if steps is None else list(steps)
    gates_x = scan.gates_x[0].detach()[kept]
    entering = tuple(state[0].detach()[kept] for state in scan.entering.values())

    def step(state: State) -> State:
        return Step(*cell.step(gates_x, state)).state

    return step, entering


def contributions(trace: ModelTrace, layer: str | None = None, steps: Sequence[int] | None = None) -> dict[str, Tensor]:
    """‖∇_{W(t)} L‖ of every step t for each weight of a layer, name → (T,), with L the sum of all losses.

    Each step has its own copy W(t) of W: the gradient of W is the sum over the copies. `steps` selects steps.
    """
    layer = trace.layers[0] if layer is None else layer
    part = trace.part_of(layer)
    return part.trace.weight_gradient_norms(trace._losses.sum(), layer.rpartition(".")[2], steps)
