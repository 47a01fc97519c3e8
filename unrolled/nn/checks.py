"""What every layer checks before it runs, in one wording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from unrolled.errors import UnknownOption, UserError, unknown_name


def check_input(x: Tensor, input_size: int, weight: Tensor) -> None:
    """x must have features last, the weights' dtype and their device."""
    if not isinstance(x, Tensor):
        raise UserError(f"The input must be a tensor, got {type(x).__name__}.")
    if x.dim() not in (2, 3):
        raise UserError(
            f"The input has {x.dim()} dimensions, shape {tuple(x.shape)}.",
            "Expected 3 (batch, time, features; time first unless batch_first=True) or 2 (time, features).",
        )
    if x.shape[-1] != input_size:
        raise UserError(
            f"The input has {x.shape[-1]} features, shape {tuple(x.shape)}.",
            f"Expected input_size={input_size} in the last dimension.",
        )
    if x.device != weight.device:
        raise UserError(f"The input is on {x.device}, the weights on {weight.device}.", f"Use x.to('{weight.device}').")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise UserError(
            f"The input is {x.dtype}, the weights are {weight.dtype}.",
            f"Use x.to({weight.dtype})" + (f" or layer.to({x.dtype})." if x.is_floating_point() else "."),
        )


def check_steps(steps: int) -> None:
    if steps == 0:
        raise UserError("The input has no time steps.", "Expected at least one; use lengths=0 for empty sequences.")


def check_state(name: str, state: Tensor, shape: tuple[int, ...], meaning: str, x: Tensor) -> None:
    """An initial state must have the layer's shape, and x's dtype and device."""
    if not isinstance(state, Tensor):
        raise UserError(f"The initial state {name} must be a tensor, got {type(state).__name__}.")
    if tuple(state.shape) != shape:
        raise UserError(f"The initial state {name} has shape {tuple(state.shape)}.", f"Expected {shape}: {meaning}.")
    if state.device != x.device:
        problem = f"The initial state {name} is on {state.device}, the input on {x.device}."
        raise UserError(problem, f"Use {name}.to('{x.device}').")
    if state.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise UserError(
            f"The initial state {name} is {state.dtype}, the input {x.dtype}.", f"Use {name}.to({x.dtype})."
        )


def check_resets(resets: Tensor, batch: int, steps: int, *, time_first: bool, device: torch.device) -> Tensor:
    """(B,) or the input's first two dimensions, bool; returned as (B,) or (B, T) on the input's device."""
    if not isinstance(resets, Tensor) or resets.dtype != torch.bool:
        got = resets.dtype if isinstance(resets, Tensor) else type(resets).__name__
        raise UserError(f"resets are {got}.", "Expected a torch.bool tensor, True where a new sequence begins.")
    full = (steps, batch) if time_first else (batch, steps)
    if tuple(resets.shape) not in ((batch,), full):
        meaning = "(time, batch)" if time_first else "(batch, time)"
        raise UserError(
            f"resets have shape {tuple(resets.shape)}.",
            f"Expected {full}, {meaning} as the input, or ({batch},) for the first step.",
        )
    if resets.dim() == 2 and time_first:
        resets = resets.t()
    return resets.to(device)


def check_sizes(**sizes: object) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{name}={value!r} is not a size.", "Expected a whole number, 1 or more.")


def check_probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise UserError(f"{name}={value!r} is not a probability.", "Expected a number from 0 up to, not including, 1.")
    return float(value)


def check_pair(name: str, value: object) -> tuple[float, float]:
    """One probability for both, or one for each."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise UserError(f"{name}={value!r} has {len(value)} numbers.", "Expected one number, or a pair.")
        return check_probability(name, value[0]), check_probability(name, value[1])
    both = check_probability(name, value)
    return both, both


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    if value not in (names := list(choices)):
        raise unknown_name(name, value, names)
    return str(value)


def check_options(layer: str, unknown: Mapping[str, object], known: Iterable[str]) -> None:
    """Refuses the first option a layer does not have, and names the nearest it has."""
    for name in unknown:
        raise UnknownOption(layer, name, known)
