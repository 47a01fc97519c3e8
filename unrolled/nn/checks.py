"""Checks of the arguments of all layers."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from unrolled.errors import UnknownOption, UserError, UserTypeError, unknown_name


def check_input(layer: str, x: Tensor, input_size: int, weight: Tensor) -> None:
    """Check the shape of x, and that it has the weights' dtype and device."""
    if not isinstance(x, Tensor):
        raise UserTypeError(f"The input must be a tensor, got {type(x).__name__}.")
    if x.dim() not in (2, 3):
        raise UserError(
            f"{layer}: Expected input to be 2D or 3D, got {x.dim()}D instead: shape {tuple(x.shape)}.",
            "3D is (batch, time, features), time first unless batch_first=True; 2D is (time, features).",
        )
    if x.shape[-1] != input_size:
        raise UserError(
            f"input.size(-1) must be equal to input_size. Expected {input_size}, got {x.shape[-1]}: "
            f"the input has shape {tuple(x.shape)}.",
            "The last dimension holds the features.",
        )
    if x.device != weight.device:
        raise UserError(
            f"Input and parameter tensors are not at the same device, found input tensor at {x.device} "
            f"and parameter tensor at {weight.device}.",
            f"Use x.to('{weight.device}').",
        )
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise UserError(
            f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}).",
            f"Convert input: input.to({weight.dtype})"
            + (f", or convert model: model.to({x.dtype})." if x.is_floating_point() else "."),
        )


def check_steps(steps: int) -> None:
    if steps == 0:
        raise UserError(
            "Expected sequence length to be larger than 0 in RNN: the input has no time steps.",
            "Use lengths=0 for empty sequences.",
        )


def check_hidden(states: Sequence[Tensor], sizes: Sequence[int], runs: int, x: Tensor, unbatched: bool) -> None:
    """Check the initial states of a drop-in, in torch's layout; x is (B, T, D)."""
    names = ("h_0", "c_0")[: len(states)]
    for name, state in zip(names, states, strict=True):
        if not isinstance(state, Tensor):
            raise UserTypeError(f"The initial state {name} must be a tensor, got {type(state).__name__}.")
    rank = 2 if unbatched else 3
    if any(state.dim() != rank for state in states):
        arguments = "hx and cx" if len(states) > 1 else "hx"
        dims = ", ".join(f"{state.dim()}-D" for state in states)
        got = f"({dims}) tensors" if len(states) > 1 else f"{dims} tensor"
        kind, meaning = ("unbatched", "") if unbatched else ("batched", "batch, ")
        raise UserError(
            f"For {kind} {rank}-D input, {arguments} should also be {rank}-D but got {got}.",
            f"Expected (layers · directions, {meaning}size).",
        )
    for place, (name, size, state) in enumerate(zip(names, sizes, states, strict=True)):
        shape = (runs, size) if unbatched else (runs, x.shape[0], size)
        if tuple(state.shape) != shape:
            hidden = f"hidden[{place}]" if len(states) > 1 else "hidden"
            meaning = "(layers · directions, size)" if unbatched else "(layers · directions, batch, size)"
            raise UserError(
                f"Expected {hidden} size {shape}, got {list(state.shape)}: the initial state {name} does not fit.",
                f"Its shape is {meaning}.",
            )
        check_state_kind(name, state, x)


def check_state(name: str, state: Tensor, shape: tuple[int, ...], meaning: str, x: Tensor) -> None:
    """Check that an initial state has this shape, and x's dtype and device."""
    if not isinstance(state, Tensor):
        raise UserTypeError(f"The initial state {name} must be a tensor, got {type(state).__name__}.")
    if tuple(state.shape) != shape:
        raise UserError(f"The initial state {name} has shape {tuple(state.shape)}.", f"Expected {shape}: {meaning}.")
    check_state_kind(name, state, x)


def check_state_kind(name: str, state: Tensor, x: Tensor) -> None:
    """Check that an initial state has x's dtype and device."""
    if state.device != x.device:
        raise UserError(
            f"Input and hidden tensors are not at the same device, found input tensor at {x.device} "
            f"and hidden tensor at {state.device}.",
            f"Use {name}.to('{x.device}').",
        )
    if state.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise UserError(
            f"The initial state {name} is {state.dtype}, the input {x.dtype}.", f"Use {name}.to({x.dtype})."
        )


def check_resets(resets: Tensor, batch: int, steps: int, *, time_first: bool, device: torch.device) -> Tensor:
    """Check resets, (B,) or in the input's layout; return (B,) or (B, T) on the input's device."""
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
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserTypeError(f"{name} should be of type int, got: {type(value).__name__} ({value!r}).")
        if value < 1:
            raise UserError(f"{name} must be greater than zero, got {value}.")


def check_flags(**flags: object) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UserTypeError(
                f"{name} should be of type bool, got: {type(value).__name__} ({value!r}).",
                f"Use {name}=True or {name}=False.",
            )


def check_dropout(value: object) -> None:
    """Check torch.nn's dropout, which may be 1, unlike the other probabilities."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= float(value) <= 1:
        raise UserError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed, "
            f"got {value!r}."
        )


def check_projection(proj_size: object, hidden_size: int) -> None:
    """Check the projected width of an LSTM's h."""
    if isinstance(proj_size, bool) or not isinstance(proj_size, int):
        raise UserTypeError(f"proj_size should be of type int, got: {type(proj_size).__name__} ({proj_size!r}).")
    if proj_size < 0:
        raise UserError(f"proj_size should be a positive integer or zero to disable projections, got {proj_size}.")
    if proj_size >= hidden_size:
        raise UserError(
            f"proj_size has to be smaller than hidden_size: got proj_size={proj_size} and hidden_size={hidden_size}.",
            "A projection makes h smaller; 0 is none.",
        )


def check_probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise UserError(f"{name}={value!r} is not a probability.", "Expected a number from 0 up to, not including, 1.")
    return float(value)


def check_pair(name: str, value: object) -> tuple[float, float]:
    """A pair of probabilities, from one for both or one for each."""
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
    """Reject the first unknown option of a layer, with the most similar known one."""
    for name in unknown:
        if name == "proj_size":
            raise UserError(
                "proj_size argument is only supported for LSTM, not RNN or GRU.", "Use LSTM, or leave it out."
            )
        raise UnknownOption(layer, name, known)
