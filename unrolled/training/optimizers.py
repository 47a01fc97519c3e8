"""Optimisers and averages of the weights, as the settings choose them, and noise on the weights."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn

from unrolled.training.average import Average, LastMean, StalledMean
from unrolled.training.settings import TrainSettings


def make_optimizer(network: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimiser of the settings; weight decay skips biases and gains.

    On a GPU they take the learning rate from the device and can skip an update there (`updates_on_device`).
    """
    decayed = [p for p in network.parameters() if p.requires_grad and p.dim() >= 2]
    plain = [p for p in network.parameters() if p.requires_grad and p.dim() < 2]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    on_gpu = any(p.is_cuda for p in network.parameters())
    kinds = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam}
    options: dict[str, Any] = {"fused": True}  # one pass over the weights: 3 to 10 times faster on a CPU
    if settings.optimizer == "sgd":
        options = {"momentum": settings.momentum, "fused": on_gpu or None}
    elif settings.optimizer == "rmsprop":
        options = {"momentum": settings.momentum}
    made: torch.optim.Optimizer
    made = _uncompiled(kinds.get(settings.optimizer, torch.optim.AdamW))(groups, lr=settings.lr, **options)
    return made


@cache
def _uncompiled(kind: Any) -> Any:
    """The same optimiser without its marks for torch's compiler.

    They import the compiler at the first call, which takes seconds, and no run compiles its updates.
    """
    marked = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in marked}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


def updates_on_device(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> bool:
    """True if the optimiser updates weights on a GPU without a look at a value: see `bind_rate`."""
    on_gpu = all(parameter.is_cuda for group in optimizer.param_groups for parameter in group["params"])
    return on_gpu and (not scaler.is_enabled() or _skips(optimizer))


def _skips(optimizer: torch.optim.Optimizer) -> bool:
    """True of torch's fused optimisers, which can skip a step on the device."""
    return not isinstance(optimizer, torch.optim.RMSprop)


def bind_rate(optimizer: torch.optim.Optimizer, rate: torch.Tensor) -> None:
    """Let the optimiser read its learning rate from a tensor on the GPU, so that a CUDA graph sees it change.

    Loading a state undoes this: bind again after it.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
        if _skips(optimizer):
            group["fused"] = True
        if "capturable" in group:
            group["capturable"] = True
    for state in optimizer.state.values():
        if "step" in state:  # counted on the host before
            state["step"] = torch.as_tensor(state["step"]).to(rate.device)
    vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True  # some updates run outside a graph: as intended


def step_unless(optimizer: torch.optim.Optimizer, failed: torch.Tensor, rate: torch.Tensor) -> None:
    """A step of the optimiser that changes no weight if `failed` is 1; `rate` is that of `bind_rate`.

    >>> weight, failed, rate = nn.Parameter(torch.ones(2)), torch.tensor(1.0), torch.tensor(0.1)
    >>> optimizer = torch.optim.RMSprop([weight])
    >>> weight.grad = torch.tensor([1.0, float("nan")])
    >>> step_unless(optimizer, failed, rate)
    >>> weight.data, rate
    (tensor([1., 1.]), tensor(0.))
    """
    if not _skips(optimizer):
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            parameter.grad.masked_fill_(failed > 0, 0.0)
        rate.mul_(1 - failed)
        optimizer.step()
        return
    skip = vars(optimizer)  # as GradScaler tells torch's fused optimisers
    skip["grad_scale"], skip["found_inf"] = None, failed
    optimizer.step()
    del skip["grad_scale"], skip["found_inf"]


def stored_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimiser's state for a checkpoint, with learning rates as numbers."""
    state = optimizer.state_dict()
    groups = [{**group, "lr": float(group["lr"])} for group in state["param_groups"]]
    return {**state, "param_groups": groups}


def make_average(network: nn.Module, settings: TrainSettings) -> Average | LastMean | StalledMean | None:
    """The average of the weights that is evaluated and saved, if the settings have one."""
    if settings.average_stalled:
        return StalledMean(network, settings.average_stalled)
    if settings.average_last:
        return LastMean(network, settings.average_last)
    return Average(network, settings.average) if settings.average else None


def common_generator(device: torch.device) -> torch.Generator:
    """A generator that goes on where torch's own is now, for random numbers that all processes share."""
    own = torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index or 0]
    made = torch.Generator(device)
    made.set_state(own.get_state())
    return made


@contextmanager
def noisy_weights(network: nn.Module, deviation: float, generator: torch.Generator | None = None) -> Iterator[None]:
    """A block in which weights have Gaussian noise (Graves 2011), so that gradients are those of the noisy weights.

    The noise is torch's, or a generator's of its own.

    >>> layer = nn.Linear(2, 2)
    >>> before = layer.weight.clone()
    >>> with noisy_weights(layer, 0.1):
    ...     changed = not torch.equal(layer.weight, before)
    >>> changed, torch.equal(layer.weight, before)
    (True, True)
    """
    if deviation == 0:
        yield
        return
    parameters = [p for p in network.parameters() if p.requires_grad]
    kept = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for parameter in parameters:
            noise = torch.randn(parameter.shape, dtype=parameter.dtype, device=parameter.device, generator=generator)
            parameter.add_(noise, alpha=deviation)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)
